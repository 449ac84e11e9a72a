// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The bodies of json.hpp: the only header in model/ that needs nlohmann_json.

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <pvm/core/need_json.hpp>

#include <nlohmann/json.hpp>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/open_fault.hpp>
#include <pvm/model/json.hpp>
#include <pvm/model/parse_json.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/model/spec_keys.hpp>

namespace pvm::inline v0 {

namespace detail {

/// Levenshtein distance.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      diagonal = above;
    }
  }
  return row.back();
}

/// The largest edit distance at which a key is taken for a misspelling of a known one.
inline constexpr std::size_t most_slips = 4;

/// The element of `keys` with the smallest edit distance to `key`; empty if there are no keys.
template <class Keys>
[[nodiscard]] std::string nearest_key(std::string_view key, const Keys& keys) {
  std::string best;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const auto& candidate : keys) {
    if (const auto d = edit_distance(key.substr(0, 64), candidate); d < least) {
      least = d;
      best = candidate;
    }
  }
  return best;
}

template <class Keys>
[[nodiscard]] bool is_one_of(std::string_view key, const Keys& keys) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

/// Reads values from a JSON object. Numbers may be JSON numbers or numbers in JSON strings. All
/// functions throw Fault::spec if a value is not as expected, or missing and without a default
/// (`absent`).
class SpecReader {
 public:
  SpecReader(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  [[nodiscard]] bool has(const char* key) const { return object_.contains(key); }

  template <class T>
  [[nodiscard]] T number(const char* key) const {
    if (!has(key)) missing(key);
    return convert<T>(key, object_.at(key));
  }
  template <class T>
  [[nodiscard]] T number(const char* key, T absent) const {
    return has(key) ? number<T>(key) : absent;
  }
  /// Whether a switch is on: `true`, or a whole number greater than 0. A missing switch is off.
  [[nodiscard]] bool is_on(const char* key) const {
    if (has(key) && object_.at(key).is_boolean()) return object_.at(key).get<bool>();
    return number<std::int64_t>(key, 0) > 0;
  }

  [[nodiscard]] std::string text(const char* key, std::string absent) const {
    if (!has(key)) return absent;
    const auto& value = object_.at(key);
    constexpr std::size_t longest = 64;
    const auto* text = value.get_ptr<const std::string*>();
    if (text == nullptr || text->size() > longest || printable(*text) != *text) {
      refuse(key, value, "a name of at most 64 letters, digits and signs");
    }
    return *text;
  }

  [[nodiscard]] std::vector<int> numbers(const char* key) const {
    if (!has(key)) missing(key);
    const auto& list = object_.at(key);
    if (!list.is_array()) refuse(key, list, "a list of whole numbers");
    std::vector<int> out;
    for (const auto& item : list) out.push_back(convert<int>(key, item));
    if (out.empty()) refuse(key, list, "a list with at least one layer");
    return out;
  }

  void warn_about_unknown_keys() const {
    std::size_t unknown = 0;
    for (const auto& [key, value] : object_.items()) {
      if (is_one_of(key, effective_keys) || is_one_of(key, ignored_keys)) continue;
      if (++unknown > most_warnings) continue;
      std::string sentence = where_ + ": unknown key " + quote(key) + " is ignored";
      const std::string near = nearest_key(key, effective_keys);
      if (edit_distance(near, key) <= most_slips) sentence += "; is '" + near + "' meant?";
      log(Severity::warning, sentence);
    }
    if (unknown > most_warnings) {
      log(Severity::warning, where_ + ": " + std::to_string(unknown - most_warnings) +
                                 " more unknown keys are ignored");
    }
  }

 private:
  template <class T>
  [[nodiscard]] T convert(const char* key, const nlohmann::json& value) const {
    const char* allowed = std::is_floating_point_v<T> ? "a number"
                          : std::is_unsigned_v<T>     ? "a whole number, not below 0"
                                                      : "a whole number";
    if (value.is_string()) {
      const auto text = trimmed(value.get_ref<const std::string&>());
      T out{};
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
      if (error != std::errc() || end != text.data() + text.size()) refuse(key, value, allowed);
      return out;
    }
    if (!value.is_number()) refuse(key, value, allowed);
    if constexpr (std::is_floating_point_v<T>) {
      return value.get<T>();
    } else {
      return whole<T>(key, value, allowed);
    }
  }

  template <class T>
  [[nodiscard]] T whole(const char* key, const nlohmann::json& value, const char* allowed) const {
    if (value.is_number_unsigned()) {
      const auto v = value.get<std::uint64_t>();
      if (std::in_range<T>(v)) return static_cast<T>(v);
    } else if (value.is_number_integer()) {
      const auto v = value.get<std::int64_t>();
      if (std::in_range<T>(v)) return static_cast<T>(v);
    } else if (const auto v = value.get<double>(); std::abs(v) < 1e15 && v == std::floor(v)) {
      if (std::in_range<T>(static_cast<std::int64_t>(v))) return static_cast<T>(v);
    }
    refuse(key, value, allowed);
  }

  static std::string_view trimmed(std::string_view text) {
    constexpr std::string_view blanks = " \t\r\n";
    const auto first = text.find_first_not_of(blanks);
    if (first == std::string_view::npos) return {};
    text = text.substr(first, text.find_last_not_of(blanks) - first + 1);
    if (text.size() > 1 && text.front() == '+') text.remove_prefix(1);
    return text;
  }

  [[noreturn]] void missing(const char* key) const {
    std::string sentence = where_ + ": key '" + key + "' is missing";
    std::vector<std::string> unknown;
    for (const auto& [name, value] : object_.items()) {
      if (!is_one_of(name, effective_keys) && !is_one_of(name, ignored_keys))
        unknown.push_back(name);
    }
    if (const auto near = nearest_key(key, unknown);
        !near.empty() && edit_distance(near, key) <= most_slips) {
      sentence += "; is " + quote(near) + " a slip of the pen?";
    }
    throw Error(Fault::spec, sentence);
  }

  [[noreturn]] void refuse(const char* key, const nlohmann::json& value,
                           const std::string& allowed) const {
    throw Error(Fault::spec,
                where_ + ": key '" + key + "' is " +
                    quote(value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace), 60) +
                    "; allowed: " + allowed);
  }

  const nlohmann::json& object_;
  std::string where_;
};

}  // namespace detail

PVM_INLINE Spec parse_spec(std::string_view text, const std::string& where) {
  const auto json = detail::parse_shallow(text, where, Fault::spec);
  if (!json.is_object()) throw Error(Fault::spec, where + ": a spec is a JSON object, { ... }");
  const detail::SpecReader read(json, where);
  Spec spec;
  spec.layer_shapes = read.numbers("layer_shapes");
  spec.input_block_size = read.number<int>("input_block_size");
  spec.input_channels = read.number<int>("input_channels", 3);
  spec.hidden_block_size = read.number<int>("hidden_block_size");
  spec.fan_in_square_size = read.number<int>("fan_in_square_size");
  spec.fan_in_radius = read.number<double>("fan_in_radius");
  spec.lateral_radius = read.number<int>("lateral_radius");
  spec.context_exclude_self = read.is_on("context_exclude_self");
  spec.send_context_two_layers_back = read.is_on("send_context_two_layers_back");
  spec.last_layer_context_to_all = read.is_on("last_layer_context_to_all");
  spec.feed_context_in_complex_layer = read.is_on("feed_context_in_complex_layer");
  spec.activation =
      read.is_on("polynomial") ? ActivationKind::polynomial : ActivationKind::logistic;
  spec.true_derivative = read.is_on("true_derivative");
  spec.opt_abs_diff = read.is_on("opt_abs_diff");
  spec.own_activation = read.text("own_activation", spec.own_activation);
  spec.learning_rule = read.text("learning_rule", spec.learning_rule);
  spec.initial_learning_rate = read.number<double>("initial_learning_rate");
  spec.momentum = read.number<double>("momentum");
  spec.delay_each_layer_learning = read.number<std::uint64_t>("delay_each_layer_learning");
  if (read.has("delay_final_learning_rate")) {
    spec.delay_final_learning_rate = read.number<std::uint64_t>("delay_final_learning_rate");
    spec.final_learning_rate = read.number<double>("final_learning_rate");
  }
  if (read.has("delay_intermediate_learning_rate")) {
    spec.delay_intermediate_learning_rate =
        read.number<std::uint64_t>("delay_intermediate_learning_rate");
    spec.intermediate_learning_rate = read.number<double>("intermediate_learning_rate");
  }
  spec.steps = read.number<std::uint64_t>("steps", spec.steps);
  validate(spec, where);
  read.warn_about_unknown_keys();
  return spec;
}

PVM_INLINE Spec load_spec(const std::filesystem::path& path) {
  const std::string where = "spec " + quote(path.string());
  constexpr std::uintmax_t most_bytes = 1 << 20;
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    throw Error(Fault::spec, where + ": no such file; name one, as model_zoo/tiny.json");
  }
  if (!std::filesystem::is_regular_file(status)) {
    throw Error(Fault::spec, where + ": not a file; name a file with a spec in it");
  }
  const auto bytes = std::filesystem::file_size(path, error);
  if (bytes == 0) throw Error(Fault::spec, where + ": the file is empty; a spec is a JSON object");
  if (bytes > most_bytes) {
    throw Error(Fault::spec, where + ": larger than 1 MiB, so not a spec");
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    const std::string why = why_not_readable(path);
    throw Error(Fault::spec, where + ": cannot be read" + (why.empty() ? "" : ": " + why));
  }
  Spec spec = parse_spec(text.str(), where);
  spec.name = file_name_part(path.stem().string());
  return spec;
}

PVM_INLINE std::string to_json_text(const Spec& spec, int indent) {
  nlohmann::ordered_json json;
  json["layer_shapes"] = spec.layer_shapes;
  json["input_block_size"] = spec.input_block_size;
  json["input_channels"] = spec.input_channels;
  json["hidden_block_size"] = spec.hidden_block_size;
  json["fan_in_square_size"] = spec.fan_in_square_size;
  json["fan_in_radius"] = spec.fan_in_radius;
  json["lateral_radius"] = spec.lateral_radius;
  const auto put_switch = [&](const char* key, bool on) { json[key] = on ? 1 : 0; };
  put_switch("context_exclude_self", spec.context_exclude_self);
  put_switch("send_context_two_layers_back", spec.send_context_two_layers_back);
  put_switch("last_layer_context_to_all", spec.last_layer_context_to_all);
  put_switch("feed_context_in_complex_layer", spec.feed_context_in_complex_layer);
  put_switch("polynomial", spec.activation == ActivationKind::polynomial);
  put_switch("true_derivative", spec.true_derivative);
  put_switch("opt_abs_diff", spec.opt_abs_diff);
  if (!spec.own_activation.empty()) json["own_activation"] = spec.own_activation;
  if (spec.learning_rule != "momentum") json["learning_rule"] = spec.learning_rule;
  json["initial_learning_rate"] = spec.initial_learning_rate;
  json["momentum"] = spec.momentum;
  json["delay_each_layer_learning"] = spec.delay_each_layer_learning;
  if (spec.delay_final_learning_rate) {
    json["delay_final_learning_rate"] = *spec.delay_final_learning_rate;
    json["final_learning_rate"] = spec.final_learning_rate;
  }
  if (spec.delay_intermediate_learning_rate) {
    json["delay_intermediate_learning_rate"] = *spec.delay_intermediate_learning_rate;
    json["intermediate_learning_rate"] = spec.intermediate_learning_rate;
  }
  json["steps"] = spec.steps;
  return json.dump(indent);
}

}  // namespace pvm::inline v0
