// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Checkpoint files: what is written is read back, and wrong files are refused with a clear
/// message.

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <zip.h>

#include <nlohmann/json.hpp>
#include <pvm/core/printable.hpp>
#include <pvm/core/random.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/model/json.hpp>
#include <pvm/io/original.hpp>
#include <pvm/io/safetensors.hpp>
#include <pvm/io/synthetic.hpp>
#include <pvm/model/json.hpp>
#include <pvm/train/checkpoints.hpp>
#include <pvm/train/trainer.hpp>

#include "catch.hpp"
#include "train_helpers.hpp"

namespace io = pvm::io;
using namespace train_test;

namespace {

std::vector<float> some_weights(const pvm::Spec& spec) {
  std::vector<float> weights(pvm::make_connectome(spec).weights);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = pvm::uniform(5, i) - 0.5F;
  return weights;
}

/// A file with only `weights`.
void write_weights(const std::filesystem::path& path, const std::vector<float>& weights) {
  const std::vector<io::TensorView> tensors = {{"weights", {weights.size()}, std::span(weights)}};
  io::write_safetensors(path, {}, tensors);
}

void write_trained(const std::filesystem::path& path, std::uint64_t steps = 40) {
  io::Synthetic frames;
  pvm::Trainer<> trainer(tiny_spec());
  trainer.fit(frames, pvm::Steps{steps});
  io::save_checkpoint(path, trainer.checkpoint());
}

void write_original(const std::filesystem::path& path, const std::string& entry,
                    const std::string& bytes) {
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
  REQUIRE(archive != nullptr);
  zip_file_add(archive, "sim/pvm/options.pkl", zip_source_buffer(archive, "cos\n", 4, 0), 0);
  zip_file_add(archive, entry.c_str(), zip_source_buffer(archive, bytes.data(), bytes.size(), 0),
               0);
  REQUIRE(zip_close(archive) == 0);
}

std::string as_bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace

TEST_CASE("Philox gives the numbers of its authors", "[core]") {
  using Four = std::array<std::uint32_t, 4>;
  CHECK(pvm::philox({0, 0, 0, 0}, {0, 0}) == Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(pvm::philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  double sum = 0;
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    const float u = pvm::uniform(1, i);
    REQUIRE((u >= 0.0F && u < 1.0F));
    sum += u;
  }
  CHECK(std::abs(sum / 10'000 - 0.5) < 0.01);
}

TEST_CASE("A checkpoint is read back as it was written", "[checkpoint]") {
  const TempDir dir;
  write_trained(dir / "a.safetensors");
  const auto read = io::load_checkpoint(dir / "a.safetensors");
  CHECK(read.spec == tiny_spec());
  CHECK(read.state.step == 40);
  CHECK(read.state.resumable());
  REQUIRE(read.streams.size() == 1);
  CHECK(read.streams[0].position.frame == 40);
  CHECK(read.streams[0].frames_since_start == 40);
  CHECK(read.streams[0].source == "synthetic:0");
  io::save_checkpoint(dir / "b.safetensors", read);
  CHECK(read_file(dir / "a.safetensors") == read_file(dir / "b.safetensors"));
  CHECK(names_in(dir.path()).size() == 2);
}

TEST_CASE("The coefficients of W1 are read back where it has a plan of its own", "[checkpoint]") {
  const TempDir dir;
  write_trained(dir / "a.safetensors");
  auto checkpoint = io::load_checkpoint(dir / "a.safetensors");
  CHECK_FALSE(checkpoint.state.plan1.has_value());
  checkpoint.state.plan1 = pvm::DeferralPlan{2, 3};
  checkpoint.state.coefficients1 = {0.5, 0.25, 0.125};
  io::save_checkpoint(dir / "b.safetensors", checkpoint);
  const auto read = io::load_checkpoint(dir / "b.safetensors");
  CHECK(read.state.plan1 == checkpoint.state.plan1);
  CHECK(read.state.coefficients1 == checkpoint.state.coefficients1);
  std::string other = read_file(dir / "b.safetensors");
  other[other.find("coefficients1")] = 'X';
  write_file(dir / "c.safetensors", other);
  CHECK(contains(error_of([&] { io::load_checkpoint(dir / "c.safetensors"); }), "no tensor"));
}

TEST_CASE("Tensors start at multiples of their size", "[checkpoint]") {
  const TempDir dir;
  write_trained(dir / "a.safetensors");
  const io::SafetensorsReader file(dir / "a.safetensors");
  for (const auto& [name, info] : file.tensors()) {
    INFO(name);
    CHECK(info.begin % io::detail::dtype_bytes(info.dtype) == 0);
  }
}

TEST_CASE("A checkpoint does not say where files go", "[checkpoint]") {
  const TempDir dir;
  write_trained(dir / "a.safetensors");
  auto checkpoint = io::load_checkpoint(dir / "a.safetensors");
  const auto read_as = [&](const std::string& name) {
    checkpoint.spec.name = name;
    io::save_checkpoint(dir / "b.safetensors", checkpoint);
    return io::load_checkpoint(dir / "b.safetensors").spec.name;
  };
  {
    const Messages messages;
    for (const char* name : {"small", "my net (2)", "h\u00e9"}) CHECK(read_as(name) == name);
    CHECK(messages.count("") == 0);
  }
  const std::vector<std::string> hostile = {"x/../../escaped/here",
                                            "/tmp/absolute",
                                            "..",
                                            ".hidden",
                                            "",
                                            "a\nwarning: fake line",
                                            "\x1b[31mRED\x07",
                                            std::string("a\0b", 3),
                                            "not utf-8 \xff",
                                            "\u202egnp",
                                            "a\\b",
                                            std::string(10'000, 'n')};
  for (const std::string& name : hostile) {
    INFO(pvm::quote(name));
    const Messages messages;
    const std::string got = read_as(name);
    CHECK(got == pvm::file_name_part(got));
    CHECK(got.size() <= 100);
    // Bytes that are no UTF-8 were replaced as the file was written, before anything was read.
    CHECK(messages.count("no name for files") == (contains(name, "utf-8") ? 0 : 1));
    CHECK(messages.count("\n") == 0);
  }
  // The weights are the same all the while.
  CHECK(io::load_checkpoint(dir / "b.safetensors").state.weights == checkpoint.state.weights);
}

TEST_CASE("What is in a checkpoint is shown as text, in one short line", "[checkpoint]") {
  const TempDir dir;
  write_trained(dir / "a.safetensors");
  const io::SafetensorsReader whole(dir / "a.safetensors");
  const auto good = io::load_checkpoint(dir / "a.safetensors");
  const std::vector<std::string> hostile = {"../../up",
                                            "/tmp/absolute",
                                            "a\nwarning: fake",
                                            "\x1b[31mRED\x1b]0;owned\x07",
                                            std::string("a\0b", 3),
                                            "\u202egnp\u2066",
                                            "\xc2\x9b",
                                            "",
                                            std::string(10'000, 'n'),
                                            std::string(10'000, '\x1b')};
  const auto check_line = [](const std::string& line) {
    CHECK(line == pvm::printable(line));
    CHECK(line.size() < 600);
    CHECK_FALSE(contains(line, std::string(121, 'n')));
  };
  // A file with other metadata: the tensors are left as they are.
  const std::string bytes = read_file(dir / "a.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const auto header = nlohmann::ordered_json::parse(bytes.substr(8, length));
  const auto load = [&](const nlohmann::ordered_json& other) {
    write_file(dir / "b.safetensors",
               raw_safetensors(other.dump(), bytes.substr(8 + static_cast<std::size_t>(length))));
    const Messages messages;
    check_line(error_of([&] { (void)io::load_checkpoint(dir / "b.safetensors"); }));
    for (const std::string& line : messages.lines()) check_line(line);
  };
  for (const std::string& text : hostile) {
    INFO(pvm::quote(text));
    for (const auto& [key, value] : whole.metadata()) {
      auto other = header;
      other["__metadata__"][key] = text;
      load(other);
      other["__metadata__"][key] = nlohmann::json::array({text}).dump();
      load(other);
      other["__metadata__"][key] = nlohmann::json::object({{text, text}}).dump();
      load(other);
    }
    auto other = header;
    other["__metadata__"][text] = 1;
    load(other);
    other = header;
    other[text] = text;
    load(other);
    other[text] = {{"dtype", text}, {"shape", {1}}, {"data_offsets", {0, 4}}};
    load(other);
    other = header;
    other["weights"]["dtype"] = text;
    load(other);

    // The names of the sources: a run that goes on with others says so.
    auto checkpoint = good;
    checkpoint.streams.at(0).source = text;
    io::save_checkpoint(dir / "c.safetensors", checkpoint);
    const Messages messages;
    pvm::Trainer<> trainer(io::load_checkpoint(dir / "c.safetensors"));
    io::Synthetic frames;
    trainer.fit(frames, pvm::Steps{41});
    CHECK(messages.mention("frames came from") == !text.empty());
    for (const std::string& line : messages.lines()) check_line(line);
  }
  CHECK(names_in(dir.path()).size() == 3);
}

TEST_CASE("A spec's file name with anything in it makes a name for files", "[checkpoint]") {
  const TempDir dir;
  for (const std::string name : {"a\nb", "\x1b[31m", "..x", "caf\xe9"}) {
    write_file(dir / (name + ".json"), pvm::to_json_text(tiny_spec()));
    const std::string got = pvm::load_spec(dir / (name + ".json")).name;
    CHECK(got == pvm::file_name_part(name));
    CHECK(got == pvm::printable(got));
  }
}

TEST_CASE("A file with only weights starts at step 0", "[checkpoint]") {
  const TempDir dir;
  const auto spec = tiny_spec();
  const auto weights = some_weights(spec);
  write_weights(dir / "w.safetensors", weights);
  const auto read = io::load_checkpoint(dir / "w.safetensors", &spec);
  CHECK(read.state.step == 0);
  CHECK_FALSE(read.state.resumable());
  pvm::Trainer<> trainer(read);
  CHECK(trainer.step() == 0);
  CHECK(trainer.weights() == weights);
  CHECK(contains(error_of([&] { io::load_checkpoint(dir / "w.safetensors"); }), "holds no spec"));
}

TEST_CASE("Malformed headers are refused before memory is taken", "[checkpoint]") {
  const TempDir dir;
  const auto path = dir / "bad.safetensors";
  const auto spec = tiny_spec();
  const auto refused = [&](const std::string& bytes) {
    write_file(path, bytes);
    return error_of([&] { io::load_checkpoint(path, &spec); });
  };
  const auto tensor = [](const std::string& fields) {
    return raw_safetensors("{\"weights\":{" + fields + "}}", std::string(16, '\0'));
  };
  CHECK(contains(error_of([&] { io::load_checkpoint(dir / "none"); }), "no such file"));
  CHECK(contains(error_of([&] { io::load_checkpoint(dir.path()); }), "not a file"));
  CHECK(contains(refused(""), "shorter than 8 bytes"));
  CHECK(contains(refused("abc"), "shorter than 8 bytes"));
  std::string huge(64, 'x');
  const std::uint64_t length = std::uint64_t{1} << 60;
  std::memcpy(huge.data(), &length, sizeof length);
  CHECK(contains(refused(huge), "1152921504606846976"));
  CHECK(contains(refused(raw_safetensors("{}").substr(0, 9)), "cut off"));
  CHECK(contains(refused(raw_safetensors("{\"a\":")), "not JSON"));
  CHECK(contains(refused(raw_safetensors("[]")), "not a JSON object"));
  CHECK(contains(refused(raw_safetensors(std::string(1 << 20, '['))), "nested too deep"));
  CHECK(contains(refused(raw_safetensors("{\"weights\":7}")), "not an object"));
  CHECK(contains(refused(raw_safetensors("{\"__metadata__\":{\"a\":1}}")), "not a string"));
  CHECK(contains(refused(raw_safetensors("{}")), "no tensor 'weights'"));
  CHECK(contains(refused(tensor("\"shape\":[4],\"data_offsets\":[0,16]")), "no dtype"));
  CHECK(contains(refused(tensor("\"dtype\":\"F33\",\"shape\":[4],\"data_offsets\":[0,16]")),
                 "unknown dtype"));
  CHECK(contains(refused(tensor("\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,20]")),
                 "cut off"));
  CHECK(contains(refused(tensor("\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,0]")),
                 "not a begin and an end"));
  CHECK(contains(refused(tensor("\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[-4,12]")),
                 "not a whole number"));
  CHECK(contains(refused(tensor("\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,16]")),
                 "shape"));
  CHECK(contains(refused(tensor("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4],"
                                "\"data_offsets\":[0,16]")),
                 "shape"));
  CHECK(contains(
      refused(raw_safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
                              "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}",
                              std::string(16, '\0'))),
      "overlap"));
}

TEST_CASE("A checkpoint cut anywhere is refused", "[checkpoint]") {
  const TempDir dir;
  write_trained(dir / "a.safetensors");
  const std::string whole = read_file(dir / "a.safetensors");
  for (std::size_t k = 1; k < 40; ++k) {
    write_file(dir / "cut.safetensors", whole.substr(0, whole.size() * k / 40));
    CHECK_FALSE(error_of([&] { io::load_checkpoint(dir / "cut.safetensors"); }).empty());
  }
}

TEST_CASE("A checkpoint without one of its tensors is refused", "[checkpoint]") {
  const TempDir dir;
  write_trained(dir / "a.safetensors");
  const std::string whole = read_file(dir / "a.safetensors");
  for (const char* name : {"rates", "coefficients", "positions", "squeezed", "hidden_gradients",
                           "frames_since_start", "\"outputs"}) {
    std::string other = whole;
    other[other.find(std::string(name)) + 1] = 'X';
    write_file(dir / "b.safetensors", other);
    INFO(name);
    CHECK(contains(error_of([&] { io::load_checkpoint(dir / "b.safetensors"); }), "no tensor"));
  }
}

TEST_CASE("A checkpoint whose tensors are empty is not one of weights alone", "[checkpoint]") {
  const TempDir dir;
  const auto path = dir / "empty.safetensors";
  pvm::Trainer<> trainer(tiny_spec());
  const auto checkpoint = trainer.checkpoint();
  const std::vector<float> none;
  std::vector<io::TensorView> tensors = {{"weights",
                                          {checkpoint.state.weights.size()},
                                          std::span<const float>(checkpoint.state.weights)},
                                         {"coefficients", {0}, std::span<const double>()}};
  for (const char* name : {"rates", "folded", "hidden", "squeezed", "frames", "outputs",
                           "hidden_gradients", "output_gradients"}) {
    tensors.push_back({name, {0}, std::span<const float>(none)});
  }
  io::save_checkpoint(dir / "whole.safetensors", checkpoint);
  const io::SafetensorsReader whole(dir / "whole.safetensors");
  io::write_safetensors(path, whole.metadata(), tensors);
  CHECK(contains(error_of([&] { io::load_checkpoint(path); }), "'folded' is empty"));
}

TEST_CASE("A checkpoint that says what this program does not know is refused", "[checkpoint]") {
  const TempDir dir;
  write_trained(dir / "a.safetensors");
  const std::string whole = read_file(dir / "a.safetensors");
  for (const auto& [said, other] : {std::pair{"\"reduce\":\"mean\"", "\"reduce\":\"most\""},
                                    {"\"precision\":\"fp32\"", "\"precision\":\"int4\""}}) {
    std::string changed = whole;
    changed.replace(changed.find(said), std::string(said).size(), other);
    write_file(dir / "b.safetensors", changed);
    INFO(other);
    CHECK(contains(error_of([&] { io::load_checkpoint(dir / "b.safetensors"); }), "does not know"));
  }
}

TEST_CASE("Weights that are not numbers are refused", "[checkpoint]") {
  const TempDir dir;
  const auto spec = tiny_spec();
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    auto weights = some_weights(spec);
    weights[weights.size() / 2] = bad;
    write_weights(dir / "w.safetensors", weights);
    CHECK(contains(error_of([&] { io::load_checkpoint(dir / "w.safetensors", &spec); }), "NaN"));
  }
}

TEST_CASE("Another spec's weights: both numbers and a guess", "[checkpoint]") {
  const TempDir dir;
  const auto spec = tiny_spec();
  const auto path = dir / "w.safetensors";
  write_weights(path, std::vector<float>(100));
  const auto sentence = error_of([&] { io::load_checkpoint(path, &spec); });
  CHECK(contains(sentence, "100 weights"));
  CHECK(contains(sentence, std::to_string(pvm::make_connectome(spec).weights)));
  CHECK(contains(sentence, "another spec"));
  CHECK(io::detail::published_spec_with(17'538'806) == "small");

  write_trained(path);
  auto other = spec;
  other.lateral_radius = 2;
  CHECK(contains(error_of([&] { io::load_checkpoint(path, &other); }), "'lateral_radius'"));
  auto slower = spec;
  slower.initial_learning_rate = 0.001;
  const Messages messages;
  CHECK(io::load_checkpoint(path, &slower).spec == slower);
  CHECK(messages.mention("rates"));
}

TEST_CASE("The native backend's file continues at its step", "[checkpoint]") {
  const TempDir dir;
  const auto spec = tiny_spec();
  const auto weights = some_weights(spec);
  const auto count = static_cast<std::int32_t>(weights.size());
  const auto path = dir / "native.bin";
  const Messages messages;
  for (const std::int64_t step : {0, 1, 8, 150, 151, 5'000'000}) {
    write_file(path, native_file(step, count, weights));
    const auto read = io::load_checkpoint(path, &spec);
    pvm::RateSchedule replayed(spec);
    for (std::int64_t t = 0; t < std::min<std::int64_t>(step, 200); ++t) {
      replayed.begin_step(static_cast<std::uint64_t>(t));
    }
    CHECK(read.state.rates == replayed.layers());
    pvm::Trainer<> trainer(read);
    CHECK(trainer.step() == static_cast<std::uint64_t>(step));
    CHECK(trainer.weights() == weights);
  }
  CHECK(messages.mention("start anew"));

  const auto refused = [&](const std::string& bytes) {
    write_file(path, bytes);
    return error_of([&] { io::load_checkpoint(path, &spec); });
  };
  CHECK(contains(refused(native_file(5, count, weights).substr(0, 11)), "cut off"));
  CHECK(contains(refused(native_file(5, count, weights).substr(0, 999)), "cut off"));
  CHECK(contains(refused(native_file(-5, count, weights)), "damaged"));
  CHECK(contains(refused(native_file(5, -1, weights)), "damaged"));
  CHECK(contains(refused(native_file(5, 3, {1, 2, 3})), "3 weights"));
  CHECK(contains(refused(native_file(5, 3, {1, 2, 3})), "another spec"));
}

TEST_CASE("The original's zip gives its weights", "[checkpoint]") {
  const TempDir dir;
  const auto spec = tiny_spec();
  const auto weights = some_weights(spec);
  const auto path = dir / "original.zip";
  const auto loaded = [&] { return io::load_any_checkpoint(path, &spec).state.weights; };

  write_original(path, "sim_20/pvm/weight_memory_main.npy", as_bytes(weights));
  CHECK(loaded() == weights);
  write_original(path, "pvm/weight_memory_main.npy", as_bytes(weights));
  CHECK(loaded() == weights);
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
  header.resize(118, ' ');
  const std::string npy = std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header;
  write_original(path, "a/b/pvm/weight_memory_main.npy", npy + as_bytes(weights));
  CHECK(loaded() == weights);

  CHECK(contains(error_of([&] { io::load_any_checkpoint(path); }), "name the spec"));
  CHECK(contains(error_of([&] { io::load_checkpoint(path, &spec); }), "is a zip"));
  write_original(path, "pvm/weights.npy", as_bytes(weights));
  CHECK(contains(error_of(loaded), "no entry"));
  write_original(path, "pvm/weight_memory_main.npy", as_bytes({1, 2, 3}));
  CHECK(contains(error_of(loaded), "3 weights"));
  write_original(path, "pvm/weight_memory_main.npy", as_bytes(weights) + "x");
  CHECK(contains(error_of(loaded), "float32"));
  write_file(path, read_file(path).substr(0, 500));
  CHECK(contains(error_of(loaded), "cannot be opened"));
}

TEST_CASE("A file that cannot be written leaves the one before as it was", "[checkpoint]") {
  const TempDir dir;
  const auto path = dir / "run_000000040.safetensors";
  write_trained(path);
  const std::string before = read_file(path);
  const auto checkpoint = io::load_checkpoint(path);
  rlimit was{};
  getrlimit(RLIMIT_FSIZE, &was);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{20'000, was.rlim_max};  // like a disk that fills up
  setrlimit(RLIMIT_FSIZE, &small);
  const auto sentence = error_of([&] { io::save_checkpoint(path, checkpoint); });
  setrlimit(RLIMIT_FSIZE, &was);
  CHECK(contains(sentence, "cannot be written"));
  CHECK(read_file(path) == before);
  CHECK(names_in(dir.path()).size() == 1);
  CHECK(contains(error_of([&] { io::save_checkpoint(dir / "no/a.safetensors", checkpoint); }),
                 "cannot be written"));
}

TEST_CASE("Temporary files of the dead are removed, of the living kept", "[checkpoint]") {
  const TempDir dir;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  const std::string ending = "@" + io::detail::host_name() + ".tmp";
  const std::string file = "run_000000001.safetensors.";
  write_file(dir / (file + std::to_string(child) + ending), "");
  write_file(dir / (file + std::to_string(getppid()) + ending), "");
  write_file(dir / (file + std::to_string(child) + "@elsewhere.tmp"), "");
  write_file(dir / ("other_1." + std::to_string(child) + ending), "");
  io::remove_abandoned_temporaries(dir / "run_");
  const auto names = names_in(dir.path());
  CHECK(names.size() == 3);
  CHECK_FALSE(std::filesystem::exists(dir / (file + std::to_string(child) + ending)));
}

TEST_CASE("A process killed while it saves leaves whole checkpoints only", "[checkpoint][slow]") {
  const TempDir dir;
  for (unsigned k = 0; k < 15; ++k) {
    const pid_t child = fork();
    if (child == 0) {
      io::Synthetic frames;
      pvm::Trainer<> trainer(tiny_spec(), {.threads = 1});
      trainer.fit(frames, pvm::Checkpoints{(dir / "run").string(), 1});
      _exit(0);
    }
    usleep(20'000 + 1'700 * k);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  std::size_t whole = 0, temporary = 0;
  for (const auto& name : names_in(dir.path())) {
    if (name.ends_with(".tmp")) {
      ++temporary;
    } else {
      CHECK(error_of([&] { io::load_checkpoint(dir / name); }).empty());
      ++whole;
    }
  }
  CHECK(whole > 0);
  CHECK(temporary <= 1);  // every start removes those of the run before
}
