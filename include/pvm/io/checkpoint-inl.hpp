// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The bodies of checkpoint.hpp: reads and writes the files. docs/checkpoints.md describes the
/// format.

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <pvm/core/need_json.hpp>

#include <nlohmann/json.hpp>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/open_fault.hpp>
#include <pvm/core/printable.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/core/trace.hpp>
#include <pvm/core/version.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/checkpoint_parts.hpp>
#include <pvm/io/safetensors.hpp>
#include <pvm/io/source.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/json.hpp>
#include <pvm/model/parse_json.hpp>
#include <pvm/model/schedule.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::io {

namespace detail {

inline constexpr std::string_view checkpoint_format = "pvm-checkpoint";
inline constexpr std::string_view checkpoint_version = "1";

/// The arrays that every resumable state has, with their names in the file.
template <class State>  // an EngineState, const or not
auto resumable_arrays(State& state) {
  using Array = decltype(&state.folded);
  return std::array<std::pair<const char*, Array>, 7>{
      {{"folded", &state.folded},
       {"hidden", &state.hidden},
       {"squeezed", &state.squeezed},
       {"frames", &state.frames},
       {"outputs", &state.outputs},
       {"hidden_gradients", &state.hidden_gradients},
       {"output_gradients", &state.output_gradients}}};
}

/// The name (as in the file) of the first array of `state` with a value that is not finite; empty
/// if all values are finite.
inline std::string not_finite_in(const EngineState& state) {
  if (!all_finite(state.weights)) return "weights";
  if (!all_finite(state.dweights)) return "dweights";
  for (const auto& [name, values] : resumable_arrays(state)) {
    if (!all_finite(*values)) return name;
  }
  const bool rates = std::all_of(state.rates.begin(), state.rates.end(), [](const Rates& layer) {
    return std::isfinite(layer.learning_rate) && std::isfinite(layer.momentum);
  });
  if (!rates) return "rates";
  const bool coefficients = all_finite(state.coefficients) && all_finite(state.coefficients1);
  return coefficients ? "" : "coefficients";
}

PVM_INLINE std::string_view published_spec_with(std::size_t weights) {
  struct Known {
    std::size_t weights;
    std::string_view name;
  };
  constexpr std::array published = {Known{17'538'806, "small"},  Known{18'556'921, "classic"},
                                    Known{36'490'970, "med"},    Known{47'318'598, "very_deep"},
                                    Known{119'129'058, "LARGE"}, Known{157'803'994, "med_exp"}};
  for (const Known& known : published) {
    if (known.weights == weights) return known.name;
  }
  return {};
}

PVM_INLINE void check_weight_count(const std::string& where, std::size_t weights, const Spec& spec,
                                   std::string_view theirs) {
  const std::size_t needed = make_connectome(spec).weights;
  if (weights == needed) return;
  if (theirs.empty()) theirs = published_spec_with(weights);
  throw Error(Fault::checkpoint,
              where + ": it has " + std::to_string(weights) + " weights and spec " +
                  quote(spec.name) + " needs " + std::to_string(needed) + "; " +
                  (theirs.empty() ? "it was made with another spec: name that one"
                                  : "it looks like one of spec " + quote(theirs) + ": name that"));
}

PVM_INLINE void refuse_not_finite(const std::string& where, const std::string& what) {
  throw Error(Fault::checkpoint, where + ": its " + what +
                                     " hold values that are not numbers (NaN or infinite); " +
                                     "continue from an earlier checkpoint");
}

PVM_INLINE Spec network_of(Spec spec) {
  Spec network;
  spec.name = network.name;
  spec.steps = network.steps;
  spec.learning_rule = network.learning_rule;
  spec.initial_learning_rate = network.initial_learning_rate;
  spec.momentum = network.momentum;
  spec.delay_each_layer_learning = network.delay_each_layer_learning;
  spec.delay_final_learning_rate = network.delay_final_learning_rate;
  spec.final_learning_rate = network.final_learning_rate;
  spec.delay_intermediate_learning_rate = network.delay_intermediate_learning_rate;
  spec.intermediate_learning_rate = network.intermediate_learning_rate;
  return spec;
}

PVM_INLINE std::string differing_key(const Spec& a, const Spec& b) {
  const auto left = nlohmann::json::parse(to_json_text(network_of(a)));
  const auto right = nlohmann::json::parse(to_json_text(network_of(b)));
  for (const auto& [key, value] : left.items()) {
    if (!right.contains(key) || right[key] != value) return key;
  }
  return "polynomial";
}

PVM_INLINE Spec agreed_spec(const std::string& where, const Spec* named,
                            std::optional<Spec> stored) {
  if (named == nullptr && !stored) {
    throw Error(Fault::usage, where + ": it holds no spec; name the spec it was made with");
  }
  if (named == nullptr) return *stored;
  if (!stored) return *named;
  if (network_of(*named) != network_of(*stored)) {
    throw Error(Fault::checkpoint, where + ": it was made with spec " + quote(stored->name) +
                                       ", which differs from spec " + quote(named->name) + " in '" +
                                       differing_key(*named, *stored) +
                                       "'; name that spec, or none");
  }
  if (named->learning_rule != stored->learning_rule) {
    log(Severity::warning, where + ": it learned by rule " + quote(stored->learning_rule) +
                               " and spec " + quote(named->name) + " says " +
                               quote(named->learning_rule) +
                               ", which counts from here on; what the other kept is dropped");
  }
  Spec same = *stored;
  same.name = named->name;
  same.steps = named->steps;
  same.learning_rule = named->learning_rule;
  if (same != *named) {
    log(Severity::warning, where + ": the rates of spec " + quote(named->name) +
                               " differ from the file's; the ones of the spec count from here on");
  }
  return *named;
}

/// The whole number under `key` in the file's metadata. Throws Fault::checkpoint if there is none.
template <class T>
T parse_number(const SafetensorsReader& file, const char* key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) file.refuse("its metadata lacks '" + std::string(key) + "'");
  const std::string& text = found->second;
  T number{};
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (fault != std::errc() || end != text.data() + text.size()) {
    file.refuse("its metadata '" + std::string(key) + "' is " + quote(text) +
                " and not a whole number");
  }
  return number;
}

/// The list of texts under `key` in the file's metadata; empty if there is none.
inline std::vector<std::string> texts(const SafetensorsReader& file, const char* key) {
  const auto json =
      pvm::detail::parse_shallow(text_or(file.metadata(), key, "[]"),
                                 file.where() + ": " + std::string(key), Fault::checkpoint);
  std::vector<std::string> all;
  for (const auto& text : json) {
    if (!text.is_string())
      file.refuse("its metadata '" + std::string(key) + "' is no list of texts");
    all.push_back(text.get<std::string>());
  }
  return all;
}

/// Reads the tensor `weights`, which may be F32, or F64 as other implementations write it.
inline std::vector<float> read_weights(SafetensorsReader& file) {
  const auto found = file.tensors().find("weights");
  if (found == file.tensors().end() || found->second.dtype != "F64") {
    return file.read<float>("weights");
  }
  const auto values = file.read<double>("weights");
  std::vector<float> weights(values.size());
  std::transform(values.begin(), values.end(), weights.begin(),
                 [](double v) { return static_cast<float>(v); });
  return weights;
}

inline void read_state(SafetensorsReader& file, Checkpoint& checkpoint) {
  EngineState& state = checkpoint.state;
  state.step = parse_number<std::uint64_t>(file, "step");
  state.batch = parse_number<int>(file, "batch");
  state.plan = {parse_number<int>(file, "period"), parse_number<int>(file, "terms")};
  state.layout = text_or(file.metadata(), "engine", "");
  const auto rates = file.read<float>("rates");
  for (std::size_t i = 0; i + 1 < rates.size(); i += 2) {
    state.rates.push_back({rates[i], rates[i + 1]});
  }
  state.coefficients = file.read<double>("coefficients");
  if (file.metadata().contains("terms1")) {
    state.plan1 = {parse_number<int>(file, "period1"), parse_number<int>(file, "terms1")};
    state.coefficients1 = file.read<double>("coefficients1");
  }
  for (const auto& [name, values] : resumable_arrays(state)) *values = file.read<float>(name);
  if (file.has("dweights")) state.dweights = file.read<float>("dweights");
  if (!state.resumable()) file.refuse("its tensor 'folded' is empty; continue from another file");
  if (const auto what = not_finite_in(state); !what.empty()) refuse_not_finite(file.where(), what);
}

inline void read_streams(SafetensorsReader& file, Checkpoint& checkpoint) {
  const auto positions = file.read<std::uint64_t>("positions");
  const auto since = file.read<std::uint64_t>("frames_since_start");
  const auto names = texts(file, "sources");
  auto marks = texts(file, "source_marks");  // files of earlier versions have none
  const auto batch = static_cast<std::size_t>(std::max(checkpoint.state.batch, 0));
  if (batch == 0 || positions.size() != 3 * batch || since.size() != batch ||
      names.size() != batch) {
    file.refuse("its batch is " + std::to_string(checkpoint.state.batch) + ", but it has " +
                std::to_string(positions.size() / 3) + " positions, " +
                std::to_string(since.size()) + " counts of frames and " +
                std::to_string(names.size()) + " names of sources");
  }
  marks.resize(batch);
  for (std::size_t k = 0; k < batch; ++k) {
    const std::uint64_t* p = positions.data() + 3 * k;
    checkpoint.streams.push_back({{p[0], p[1], p[2]}, since[k], as_saved(names[k]), marks[k]});
  }
}

/// The text under `key` in the file's metadata, or the first of `allowed` if it is missing. Throws
/// Fault::checkpoint if it is not one of `allowed`.
inline std::string one_of(const SafetensorsReader& file, const char* key,
                          std::initializer_list<std::string_view> allowed) {
  std::string value = text_or(file.metadata(), key, std::string(*allowed.begin()));
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
    file.refuse("its " + std::string(key) + " is " + quote(value) +
                ", which this program does not know");
  }
  return value;
}

/// `whole`: with the state that a run continues from, if the file has one.
inline Checkpoint load_safetensors(const std::filesystem::path& path, const Spec* spec,
                                   bool whole) {
  SafetensorsReader file(path);
  const auto stored = stored_spec(file);
  if (text_or(file.metadata(), "format", "") == frozen_format) {
    file.refuse(
        "it is a network for prediction only, which pvm quantize has made; name the "
        "checkpoint that it was made of");
  }
  if (!file.has("weights")) file.refuse("it has no tensor 'weights'");
  Checkpoint checkpoint;
  checkpoint.spec = agreed_spec(file.where(), spec, stored);
  const TensorInfo& info = file.tensors().at("weights");
  const std::uint64_t unit = std::max<std::uint64_t>(1, dtype_bytes(info.dtype));
  check_weight_count(file.where(), static_cast<std::size_t>(info.bytes / unit), checkpoint.spec,
                     stored ? stored->name : "");
  checkpoint.state.weights = read_weights(file);
  if (!all_finite(checkpoint.state.weights)) refuse_not_finite(file.where(), "weights");
  checkpoint.extras = read_extras(file);
  if (!file.has("folded") && !file.has("hidden")) return checkpoint;  // the file has only weights

  if (text_or(file.metadata(), "format_version", "") != checkpoint_version) {
    file.refuse("its format version is " +
                quote(text_or(file.metadata(), "format_version", "missing")) +
                "; this program reads version " + std::string(checkpoint_version));
  }
  if (!whole) return checkpoint;
  checkpoint.precision = one_of(file, "precision", {"fp32", "tf32", "bf16", "fp16"});
  checkpoint.reduce = one_of(file, "reduce", {"mean", "sum"}) == "sum" ? Reduce::sum : Reduce::mean;
  checkpoint.seed = parse_number<std::uint64_t>(file, "seed");
  checkpoint.modes = text_or(file.metadata(), "modes", "");
  checkpoint.chosen = text_or(file.metadata(), "chosen", "");
  read_state(file, checkpoint);
  read_streams(file, checkpoint);
  return checkpoint;
}

inline constexpr std::uint32_t native_magic = 0x50564D43;

/// Loads a .bin file of the native backend: magic, int64 step, int32 count, float32 weights, packed
/// and little-endian.
inline Checkpoint load_native(const std::filesystem::path& path, const Spec* spec) {
  const std::string where = "checkpoint " + quote(path.string());
  constexpr std::size_t header_bytes = 16;
  std::array<char, header_bytes> header{};
  std::ifstream file(path, std::ios::binary);
  const std::uint64_t bytes = std::filesystem::file_size(path);
  if (bytes < header_bytes || !file.read(header.data(), header_bytes)) {
    throw Error(Fault::checkpoint, where + ": it is cut off: shorter than its header");
  }
  std::int64_t step = 0;
  std::int32_t count = 0;
  std::memcpy(&step, header.data() + 4, sizeof step);
  std::memcpy(&count, header.data() + 12, sizeof count);
  if (step < 0 || count < 0) {
    throw Error(Fault::checkpoint, where + ": its header is damaged: step " + std::to_string(step) +
                                       ", " + std::to_string(count) + " weights");
  }
  const std::uint64_t expected = header_bytes + static_cast<std::uint64_t>(count) * sizeof(float);
  if (bytes != expected) {
    throw Error(Fault::checkpoint, where + ": it should have " + std::to_string(expected) +
                                       " bytes and has " + std::to_string(bytes) +
                                       "; is it cut off?");
  }
  Checkpoint checkpoint;
  checkpoint.spec = agreed_spec(where, spec, std::nullopt);
  check_weight_count(where, static_cast<std::size_t>(count), checkpoint.spec);
  checkpoint.state.weights.resize(static_cast<std::size_t>(count));
  file.read(reinterpret_cast<char*>(checkpoint.state.weights.data()),
            static_cast<std::streamsize>(bytes - header_bytes));
  if (!file) throw Error(Fault::checkpoint, where + ": cannot be read");
  if (!all_finite(checkpoint.state.weights)) refuse_not_finite(where, "weights");
  checkpoint.state.step = static_cast<std::uint64_t>(step);
  checkpoint.state.rates = rates_before(checkpoint.spec, checkpoint.state.step);
  log(Severity::info, where + ": weights at step " + std::to_string(step) +
                          " with the rates of that step; momentum, activity and frames start anew");
  return checkpoint;
}

PVM_INLINE CheckpointKind kind_of(const std::filesystem::path& path) {
  std::array<char, 4> start{};
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) {
    if (const std::string why = why_not_readable(path); !why.empty()) {
      throw Error(Fault::checkpoint,
                  "checkpoint " + quote(path.string()) + ": cannot be read: " + why);
    }
    std::ifstream(path, std::ios::binary).read(start.data(), start.size());
  }
  if (std::bit_cast<std::uint32_t>(start) == native_magic) return CheckpointKind::native;
  const bool zip =
      start == std::array<char, 4>{'P', 'K', 3, 4} || start == std::array<char, 4>{'P', 'K', 5, 6};
  return zip ? CheckpointKind::zip : CheckpointKind::safetensors;
}

/// The shape [rows][batch][rest] of a history of `size` values; [size] if it does not divide
/// evenly.
inline std::vector<std::uint64_t> history_shape(std::size_t size, int rows, int batch) {
  const auto outer = static_cast<std::uint64_t>(rows);
  const auto inner = static_cast<std::uint64_t>(batch);
  if (size % (outer * inner) != 0) return {size};
  return {outer, inner, size / (outer * inner)};
}

PVM_INLINE std::string as_saved(const std::string& name) { return printable(name); }

inline Metadata metadata_of(const Checkpoint& checkpoint) {
  auto sources = nlohmann::json::array(), marks = nlohmann::json::array();
  for (const StreamState& stream : checkpoint.streams) {
    sources.push_back(stream.source);
    marks.push_back(stream.mark);
  }
  constexpr auto replace = nlohmann::json::error_handler_t::replace;
  const EngineState& state = checkpoint.state;
  Metadata all = {{"format", std::string(checkpoint_format)},
                  {"format_version", std::string(checkpoint_version)},
                  {"pvm_version", version_text()},
                  {"name", checkpoint.spec.name},
                  {"spec", to_json_text(checkpoint.spec)},
                  {"step", std::to_string(state.step)},
                  {"batch", std::to_string(state.batch)},
                  {"precision", checkpoint.precision},
                  {"reduce", checkpoint.reduce == Reduce::sum ? "sum" : "mean"},
                  {"seed", std::to_string(checkpoint.seed)},
                  {"engine", state.layout},
                  {"period", std::to_string(state.plan.period)},
                  {"terms", std::to_string(state.plan.terms)},
                  {"sources", sources.dump(-1, ' ', false, replace)},
                  {"source_marks", marks.dump(-1, ' ', false, replace)}};
  for (const auto& [key, text] : checkpoint.extras.texts) all[key] = text;
  if (!checkpoint.modes.empty()) all["modes"] = checkpoint.modes;
  if (!checkpoint.chosen.empty()) all["chosen"] = as_saved(checkpoint.chosen);
  if (state.plan1) {
    all["period1"] = std::to_string(state.plan1->period);
    all["terms1"] = std::to_string(state.plan1->terms);
  }
  return all;
}

PVM_INLINE void write_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint) {
  const trace::Span span("write a checkpoint");
  const EngineState& state = checkpoint.state;
  const int ring = state.plan.terms + 4;  // rows of a history, see EngineState
  std::vector<std::uint64_t> positions, since;
  for (const StreamState& stream : checkpoint.streams) {
    const Position& p = stream.position;
    positions.insert(positions.end(), {p.sequence, p.frame, p.pass});
    since.push_back(stream.frames_since_start);
  }
  std::vector<float> rates;
  for (const Rates& layer : state.rates) {
    rates.insert(rates.end(), {layer.learning_rate, layer.momentum});
  }
  const auto whole = [](const auto& values) { return std::span(std::as_const(values)); };
  const auto history = [&](const char* name, const std::vector<float>& values, int rows) {
    return TensorView{name, history_shape(values.size(), rows, state.batch), whole(values)};
  };
  std::vector<TensorView> tensors = {
      {"coefficients", {state.coefficients.size()}, whole(state.coefficients)},
      {"positions", {since.size(), 3}, whole(positions)},
      {"frames_since_start", {since.size()}, whole(since)},
      {"weights", {state.weights.size()}, whole(state.weights)}};
  for (const auto& [name, values] : checkpoint.extras.doubles) {  // 8-byte values come first
    tensors.insert(tensors.begin(), {name, {values.size()}, whole(values)});
  }
  if (state.plan1) {
    tensors.push_back({"coefficients1", {state.coefficients1.size()}, whole(state.coefficients1)});
  }
  if (state.resumable()) {
    tensors.push_back({"rates", {state.rates.size(), 2}, whole(rates)});
    tensors.push_back({"folded", {state.folded.size()}, whole(state.folded)});
    if (!state.dweights.empty()) {
      tensors.push_back({"dweights", {state.dweights.size()}, whole(state.dweights)});
    }
    tensors.push_back(history("hidden", state.hidden, ring));
    tensors.push_back(history("squeezed", state.squeezed, ring));
    tensors.push_back(history("frames", state.frames, ring));
    tensors.push_back(history("outputs", state.outputs, 2));
    tensors.push_back(history("hidden_gradients", state.hidden_gradients, state.plan.terms));
    tensors.push_back(history("output_gradients", state.output_gradients, state.plan.terms));
  }
  for (const auto& [name, values] : checkpoint.extras.floats) {
    tensors.push_back({name, {values.size()}, whole(values)});
  }
  write_safetensors(path, metadata_of(checkpoint), tensors);
}

}  // namespace detail

PVM_INLINE void require_finite(const Checkpoint& checkpoint) {
  const EngineState& state = checkpoint.state;
  if (const auto what = detail::not_finite_in(state); !what.empty()) {
    throw Error(Fault::checkpoint, "at step " + std::to_string(state.step) + " " + what +
                                       " have become infinite: the rates are too high for these " +
                                       "frames; earlier checkpoints are untouched");
  }
}

PVM_INLINE bool is_checkpoint(const std::filesystem::path& path) {
  try {
    const SafetensorsReader file(path);
    return detail::text_or(file.metadata(), "format", "") == detail::checkpoint_format;
  } catch (const Error&) {
    return false;
  }
}

PVM_INLINE void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint) {
  require_finite(checkpoint);
  detail::write_checkpoint(path, checkpoint);
}

namespace detail {

inline Checkpoint load(const std::filesystem::path& path, const Spec* spec, bool whole) {
  switch (kind_of(path)) {
    case CheckpointKind::native:
      return load_native(path, spec);
    case CheckpointKind::zip:
      throw Error(Fault::checkpoint,
                  "checkpoint " + quote(path.string()) +
                      " is a zip: use load_any_checkpoint of pvm/io/original.hpp");
    case CheckpointKind::safetensors:
      break;
  }
  return load_safetensors(path, spec, whole);
}

}  // namespace detail

PVM_INLINE Checkpoint load_checkpoint(const std::filesystem::path& path, const Spec* spec) {
  return detail::load(path, spec, true);
}
PVM_INLINE Checkpoint load_network(const std::filesystem::path& path, const Spec* spec) {
  return detail::load(path, spec, false);
}

}  // namespace pvm::inline v0::io
