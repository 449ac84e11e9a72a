// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Specs, wiring and rates.

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <pvm/model/connectome.hpp>

#include <pvm/core/log.hpp>
#include <pvm/core/printable.hpp>
#include <pvm/model/json.hpp>
#include <pvm/model/schedule.hpp>

#include "catch.hpp"

namespace {

const std::filesystem::path zoo = PVM_MODEL_ZOO;

std::string small_with(const std::string& key, const std::string& value) {
  auto json = nlohmann::json::parse(pvm::to_json_text(pvm::load_spec(zoo / "small.json")));
  if (value.empty()) {
    json.erase(key);
  } else {
    json[key] = nlohmann::json::parse(value);
  }
  return json.dump();
}

std::string refusal(const std::string& text) {
  try {
    (void)pvm::parse_spec(text, "spec 'x'");
  } catch (const pvm::Error& error) {
    CHECK(error.fault() == pvm::Fault::spec);
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the published networks have the published sizes", "[model]") {
  struct Row {
    const char* name;
    std::size_t units, weights;
    int frame;
  };
  const Row rows[] = {{"small", 265, 17538806, 60},          {"classic", 350, 18556921, 80},
                      {"classic_medium", 350, 18556921, 80}, {"med", 521, 36490970, 80},
                      {"very_deep", 617, 47318598, 80},      {"large", 1497, 119129058, 120},
                      {"med_exp", 521, 157803994, 80},       {"tiny", 21, 97328, 12}};
  for (const Row& row : rows) {
    INFO(row.name);
    const auto spec = pvm::load_spec(zoo / (std::string(row.name) + ".json"));
    const auto net = pvm::make_connectome(spec);
    CHECK(net.units.size() == row.units);
    CHECK(net.weights == row.weights);
    CHECK(spec.frame_side() == row.frame);
    CHECK(spec.name == row.name);
  }
}

TEST_CASE("every spec of the model zoo loads without a warning", "[model]") {
  std::vector<std::string> messages;
  pvm::set_log_sink([&](pvm::Severity, const std::string& m) { messages.push_back(m); });
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(zoo)) {
    INFO(entry.path());
    const auto spec = pvm::load_spec(entry.path());
    auto again = pvm::parse_spec(pvm::to_json_text(spec), "again");
    again.name = spec.name;
    CHECK(again == spec);
    ++count;
  }
  pvm::set_log_sink({});
  CHECK(count >= 8);
  CHECK(messages.empty());
}

TEST_CASE("context sources repeat, once per path", "[model]") {
  const auto net = pvm::make_connectome(pvm::load_spec(zoo / "small.json"));
  CHECK(net.context.ids.size() == 4453);
  std::size_t repeats = 0;
  for (std::size_t u = 0; u < net.units.size(); ++u) {
    std::vector<std::uint32_t> ids(net.context[u].begin(), net.context[u].end());
    std::sort(ids.begin(), ids.end());
    repeats += static_cast<std::size_t>(ids.end() - std::unique(ids.begin(), ids.end()));
  }
  CHECK(repeats == 237);
}

TEST_CASE("numbers may be strings, switches are on above 0", "[model]") {
  const auto spec = pvm::parse_spec(
      R"({"layer_shapes": ["4", "2"], "input_block_size": " 3 ", "hidden_block_size": "4",
          "fan_in_square_size": 2.0, "fan_in_radius": "2", "lateral_radius": "1",
          "initial_learning_rate": "0.002", "momentum": 0.1, "delay_each_layer_learning": "00010",
          "context_exclude_self": "1", "polynomial": 2, "last_layer_context_to_all": -1})",
      "text");
  CHECK(spec.layer_shapes == std::vector<int>{4, 2});
  CHECK(spec.input_block_size == 3);
  CHECK(spec.fan_in_square_size == 2);
  CHECK(spec.delay_each_layer_learning == 10);
  CHECK(spec.context_exclude_self);
  CHECK(spec.activation == pvm::ActivationKind::polynomial);
  CHECK_FALSE(spec.last_layer_context_to_all);
  CHECK_FALSE(spec.delay_final_learning_rate.has_value());
}

TEST_CASE("wrong specs are refused with key, value and what is allowed", "[model]") {
  struct Row {
    const char *key, *value;
    std::vector<std::string> said;
  };
  const Row rows[] = {
      {"layer_shapes", "[]", {"layer_shapes", "at least one layer"}},
      {"layer_shapes", "[12, 0]", {"layer_shapes", "0", "1 to 512"}},
      {"layer_shapes", "[12, -3]", {"layer_shapes", "-3"}},
      {"layer_shapes", "[12, 1, 1]", {"fan_in_square_size", "layer 1", "side of 1"}},
      {"layer_shapes", "\"12\"", {"layer_shapes", "a list of whole numbers"}},
      {"layer_shapes", "[\"a\"]", {"layer_shapes", "whole number"}},
      {"hidden_block_size", "0", {"hidden_block_size", "1 to 64"}},
      {"hidden_block_size", "1e9", {"hidden_block_size", "1000000000"}},
      {"hidden_block_size", "7.5", {"hidden_block_size", "7.5", "whole number"}},
      {"hidden_block_size", "99999999999999999999", {"hidden_block_size"}},
      {"hidden_block_size", "\"7x\"", {"hidden_block_size", "7x"}},
      {"hidden_block_size", "null", {"hidden_block_size", "null"}},
      {"hidden_block_size", "", {"hidden_block_size", "missing"}},
      {"input_block_size", "-1", {"input_block_size", "-1"}},
      {"input_channels", "0", {"input_channels", "0", "1 (grey), 2"}},
      {"input_channels", "5", {"input_channels", "5", "1 (grey), 2"}},
      {"fan_in_square_size", "3", {"fan_in_square_size", "3", "layer 4"}},
      {"fan_in_radius", "0.5", {"fan_in_radius", "0.5", "0.7072"}},
      {"lateral_radius", "-1", {"lateral_radius", "-1"}},
      {"momentum", "1", {"momentum", "less than 1"}},
      {"momentum", "0.99999999", {"momentum", "less than 1"}},  // which is 1 as a float
      {"delay_final_learning_rate", "-1", {"delay_final_learning_rate", "not below 0"}},
      {"initial_learning_rate", "-0.1", {"initial_learning_rate", "-0.1"}},
      {"initial_learning_rate", "\"nan\"", {"initial_learning_rate"}},
      {"delay_each_layer_learning", "0", {"delay_each_layer_learning", "0"}},
      {"layer_shapes", "[512, 400, 300]", {"too large", "million weights"}},
  };
  for (const Row& row : rows) {
    INFO(row.key << " = " << row.value);
    const std::string said = refusal(small_with(row.key, row.value));
    INFO(said);
    CHECK(contains(said, "spec 'x'"));
    for (const auto& part : row.said) CHECK(contains(said, part));
    CHECK_FALSE(contains(said, "\n"));
  }
}

TEST_CASE("what is not JSON is refused", "[model]") {
  CHECK(contains(refusal(""), "not JSON"));
  CHECK(contains(refusal("{\"layer_shapes\": [1,"), "not JSON"));
  CHECK(contains(refusal("[1, 2]"), "JSON object"));
  CHECK(contains(refusal(std::string(500'000, '[')), "nested too deep"));
  CHECK(contains(refusal("\x01\x02\xff"), "not JSON"));
}

TEST_CASE("unknown keys are named with the nearest known one", "[model]") {
  std::string message;
  pvm::set_log_sink([&](pvm::Severity, const std::string& m) { message = m; });
  auto json = nlohmann::json::parse(pvm::to_json_text(pvm::load_spec(zoo / "tiny.json")));
  json["lateral_radios"] = 3;
  (void)pvm::parse_spec(json.dump(), "text");
  CHECK(contains(message, "'lateral_radios'"));
  CHECK(contains(message, "'lateral_radius' meant?"));
  auto far = json;
  far["frobnicate"] = 3;
  far.erase("lateral_radios");
  (void)pvm::parse_spec(far.dump(), "text");
  pvm::set_log_sink({});
  CHECK(message == "text: unknown key 'frobnicate' is ignored");

  json.erase("lateral_radius");
  CHECK(contains(refusal(json.dump()), "'lateral_radios' a slip of the pen?"));
}

TEST_CASE("a key that is there twice is a warning", "[model]") {
  const std::string text = pvm::to_json_text(pvm::load_spec(zoo / "tiny.json"));
  std::vector<std::string> messages;
  pvm::set_log_sink([&](pvm::Severity, const std::string& line) { messages.push_back(line); });
  const auto twice = pvm::parse_spec("{\"momentum\": 0.5, " + text.substr(1), "s");
  pvm::set_log_sink({});
  CHECK(twice == pvm::parse_spec(text, "s"));
  CHECK(messages ==
        std::vector<std::string>{"s: key 'momentum' is there more than once; the last one counts"});
}

TEST_CASE("what a spec says is shown as text, in short lines, and not too many", "[model]") {
  const auto tiny = nlohmann::json::parse(pvm::to_json_text(pvm::load_spec(zoo / "tiny.json")));
  std::vector<std::string> messages;
  pvm::set_log_sink([&](pvm::Severity, const std::string& line) { messages.push_back(line); });
  const auto check_line = [](const std::string& line) {
    CHECK_FALSE(line.empty());
    CHECK(line == pvm::printable(line));
    CHECK(line.size() < 300);
  };
  for (const std::string& text :
       {std::string("\x1b[31mRED\x07"), std::string("a\nwarning: fake"), std::string("a\0b", 3),
        std::string("\u202egnp"), std::string("\xc2\x9b"), std::string("../../up\r"),
        std::string(10'000, '\n'), std::string(10'000, 'n')}) {
    INFO(pvm::quote(text));
    auto unknown = tiny;
    unknown[text] = 1;
    messages.clear();
    (void)pvm::parse_spec(unknown.dump(), "s");
    REQUIRE(messages.size() == 1);
    check_line(messages[0]);
    auto missing = unknown;
    missing.erase("momentum");
    check_line(refusal(missing.dump()));
    for (const char* key : {"momentum", "layer_shapes", "own_activation", "learning_rule"}) {
      auto wrong = tiny;
      wrong[key] = text + "\n";
      check_line(refusal(wrong.dump()));
      wrong[key] = {{text, text}};
      check_line(refusal(wrong.dump()));
    }
    const std::string name = nlohmann::json(text).dump();
    messages.clear();
    (void)pvm::parse_spec("{" + name + ": 1, " + unknown.dump().substr(1), "s");
    CHECK(messages.size() == 2);  // unknown, and there twice
    for (const std::string& line : messages) check_line(line);
    check_line(refusal("{" + name + ": " + text));
    check_line(refusal("{\"" + text));
  }
  check_line(refusal("{\"momentum\": \"\xff\xfe\"}"));

  std::string many = "{";
  for (int i = 0; i < 2'000; ++i) many += "\"zzzzzzzzzzz" + std::to_string(i % 1'000) + "\": 1, ";
  messages.clear();
  (void)pvm::parse_spec(many + tiny.dump().substr(1), "s");
  pvm::set_log_sink({});
  CHECK(messages.size() == 21);
  CHECK(messages.back() == "s: 990 more unknown keys are ignored");
}

TEST_CASE("rates switch as the original's do", "[model]") {
  auto spec = pvm::load_spec(zoo / "tiny.json");
  spec.delay_each_layer_learning = 5;
  spec.delay_final_learning_rate = 7;
  spec.delay_intermediate_learning_rate = 12;
  pvm::RateSchedule schedule(spec);
  const auto at = [&](std::uint64_t step) {
    schedule.begin_step(step);
    return schedule.layers();
  };
  const auto initial = static_cast<float>(spec.initial_learning_rate);
  const auto last = static_cast<float>(spec.final_learning_rate);
  const auto between = static_cast<float>(spec.intermediate_learning_rate);
  const auto momentum = static_cast<float>(spec.momentum);
  std::vector<std::vector<pvm::Rates>> rates;
  for (std::uint64_t t = 0; t < 14; ++t) rates.push_back(at(t));
  CHECK(rates[0] == std::vector<pvm::Rates>{{initial, momentum}, {}, {}});
  CHECK(rates[5] == std::vector<pvm::Rates>{{initial, momentum}, {initial, momentum}, {}});
  // The final rate reaches every layer, but no momentum with it; layer 2 is switched on after it.
  CHECK(rates[7] == std::vector<pvm::Rates>{{last, momentum}, {last, momentum}, {last, 0}});
  CHECK(rates[10][2] == pvm::Rates{initial, momentum});
  for (const auto& layer : rates[12]) CHECK(layer == pvm::Rates{between, momentum});
  for (std::uint64_t t = 0; t < 14; ++t) CHECK(pvm::rates_before(spec, t + 1) == rates[t]);
  CHECK(pvm::rates_before(spec, 0) == std::vector<pvm::Rates>(3));

  // A layer is on since it first had rates, even if these are 0 now.
  spec.intermediate_learning_rate = 0;
  spec.delay_intermediate_learning_rate = 8;
  pvm::RateSchedule later(spec);
  later.skip_to(7);
  CHECK((later.is_on(0) && later.is_on(1) && !later.is_on(2)));
  later.begin_step(7);
  CHECK(later.is_on(2));
  later.begin_step(8);
  CHECK((later.layers()[2] == pvm::Rates{} && later.is_on(2)));
  later.restore(later.layers(), 9);
  CHECK(later.is_on(2));
}
