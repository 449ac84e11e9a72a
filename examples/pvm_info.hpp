// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The command `pvm info`.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <pvm/core/error.hpp>
#include <pvm/core/open_fault.hpp>
#include <pvm/core/printable.hpp>
#include <pvm/io/chart.hpp>
#include <pvm/io/checkpoint_parts.hpp>
#include <pvm/io/network_picture.hpp>
#include <pvm/io/original.hpp>
#include <pvm/io/safetensors.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/json.hpp>
#include <pvm/model/parse_json.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/rates.hpp>

namespace info_command {

using Json = nlohmann::ordered_json;

struct Options {
  std::string file, spec, out;
  bool json = false, quiet = false;
  std::string (*find_spec)(const std::string& name) = nullptr;  ///< the file that a name means
};

inline void describe(CLI::App& app, Options& o) {
  app.add_option("FILE", o.file, "a checkpoint, or a spec (also by its name, as for pvm -S)")
      ->type_name("FILE");
  app.add_option("-S,--spec", o.spec, "the spec of a checkpoint that holds none (.bin, .zip)")
      ->type_name("FILE");
  app.add_option("-o,--out", o.out, "draw the network")->type_name("FILE.png");
  app.add_flag("--json", o.json, "print one JSON object");
  app.add_flag("-q,--quiet", o.quiet, "only warnings and errors beside what was asked for");
  app.footer(R"(
Examples:
  pvm info small
      a network of the model zoo, before it is trained
  pvm info runs/mine_000040000.safetensors -o network.png
      what a checkpoint is, with a picture of its network)");
}

/// What is known of a file. A spec alone has no run.
struct Known {
  std::string kind;
  pvm::Spec spec;
  std::optional<std::uint64_t> step{};
  std::vector<pvm::Rates> rates{};
  Json run{};      ///< what its checkpoint says of the run
  Json readout{};  ///< what it says of a readout
};

/// Whether the file begins as JSON text does.
inline bool is_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  char first = 0;
  return (file >> first) && first == '{';
}

/// Reads the header of a checkpoint in safetensors format, and its rates; not its weights.
inline Known read_checkpoint(const Options& o) {
  pvm::io::SafetensorsReader file(o.file);
  const auto& metadata = file.metadata();
  const auto text = [&metadata](const char* key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
  };
  const bool frozen = text("format") == pvm::io::detail::frozen_format;
  if (!frozen && !file.has("weights")) file.refuse("it has no tensor 'weights'");
  Known known;
  const std::string version = text("pvm_version");
  known.kind =
      (frozen ? "a network for prediction only, in " + text("precision") + "," : "a checkpoint") +
      (version.empty() ? "" : " of pvm " + version);
  if (const std::string spec = text("spec"); !spec.empty()) {
    known.spec = pvm::parse_spec(spec, file.where() + ": its spec");
    known.spec.name = pvm::file_name_part(text("name").empty() ? known.spec.name : text("name"));
  } else if (!o.spec.empty()) {
    known.spec = pvm::load_spec(o.find_spec(o.spec));
  } else {
    file.refuse("it holds no spec; name the spec it was made with: -S FILE");
  }
  if (!frozen) {
    const pvm::io::TensorInfo& weights = file.tensors().at("weights");
    pvm::io::detail::check_weight_count(
        file.where(), static_cast<std::size_t>(weights.bytes) / (weights.dtype == "F64" ? 8 : 4),
        known.spec);
  }
  if (file.has("rates")) {
    const auto number = [&](const char* key) {
      const std::string digits = text(key);
      if (digits.empty() || digits.size() > 19 ||
          digits.find_first_not_of("0123456789") != std::string::npos) {
        file.refuse("its metadata '" + std::string(key) + "' is " + pvm::quote(digits) +
                    " and not a whole number");
      }
      return std::uint64_t{std::stoull(digits)};
    };
    known.step = number("step");
    const auto rates = file.read<float>("rates");
    for (std::size_t k = 0; k + 1 < rates.size(); k += 2) {
      known.rates.push_back({rates[k], rates[k + 1]});
    }
    for (const char* key : {"batch", "seed"}) known.run[key] = number(key);
    for (const char* key : {"precision", "reduce", "engine"}) known.run[key] = text(key);
    if (!text("chosen").empty()) known.run["chosen"] = text("chosen");
    known.run["sources"] =
        pvm::detail::parse_shallow(text("sources").empty() ? "[]" : text("sources"),
                                   file.where() + ": sources", pvm::Fault::checkpoint);
  }
  for (const auto& [key, value] : metadata) {
    if (key.starts_with("readout")) known.readout[key] = value;
  }
  return known;
}

inline Known read(const Options& o) {
  if (o.file.empty()) {
    throw pvm::Error(pvm::Fault::usage, "name a checkpoint or a spec (see pvm info --help)");
  }
  std::error_code ignored;
  const bool exists = std::filesystem::exists(o.file, ignored);
  const std::string spec = o.find_spec(o.file);
  if (!exists && !std::filesystem::exists(spec, ignored)) {
    throw pvm::Error(pvm::Fault::usage, pvm::quote(o.file) +
                                            ": no such file, and no spec of that name; name a "
                                            "checkpoint or a spec");
  }
  if (!exists || is_json(o.file)) return {"a spec", pvm::load_spec(exists ? o.file : spec)};
  if (pvm::io::detail::kind_of(o.file) == pvm::io::detail::CheckpointKind::safetensors) {
    return read_checkpoint(o);
  }
  std::optional<pvm::Spec> named;
  if (!o.spec.empty()) named = pvm::load_spec(o.find_spec(o.spec));
  const auto checkpoint = pvm::io::load_any_checkpoint(o.file, named ? &*named : nullptr);
  const bool native = pvm::io::detail::kind_of(o.file) == pvm::io::detail::CheckpointKind::native;
  return {native ? "weights of the native backend" : "weights of the original", checkpoint.spec,
          checkpoint.state.step, checkpoint.state.rates};
}

/// What there is of a layer.
struct LayerFacts {
  int side = 0;
  std::size_t weights = 0;
  int least_inputs = 0, most_inputs = 0;  ///< of its units: values that they read
};

inline std::vector<LayerFacts> layers_of(const pvm::Spec& spec, const pvm::Connectome& net) {
  std::vector<LayerFacts> layers;
  for (std::size_t l = 0; l < spec.layer_shapes.size(); ++l) {
    LayerFacts facts{spec.layer_shapes[l], 0, net.units[net.layer_start[l]].inputs, 0};
    for (std::size_t u = net.layer_start[l]; u < net.layer_start[l + 1]; ++u) {
      const pvm::Unit& unit = net.units[u];
      facts.weights +=
          static_cast<std::size_t>(net.hidden) * static_cast<std::size_t>(unit.inputs) +
          static_cast<std::size_t>(unit.outputs) * static_cast<std::size_t>(unit.representation);
      facts.least_inputs = std::min(facts.least_inputs, unit.inputs);
      facts.most_inputs = std::max(facts.most_inputs, unit.inputs);
    }
    layers.push_back(facts);
  }
  return layers;
}

/// A number in the digits that a float has.
inline std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

/// The spec's schedule of rates, as a sentence.
inline std::string schedule_of(const pvm::Spec& spec) {
  std::string text = "rate " + short_number(spec.initial_learning_rate) + ", momentum " +
                     short_number(spec.momentum) + ", layer l from step l x " +
                     std::to_string(spec.delay_each_layer_learning) + " on";
  std::vector<std::pair<std::uint64_t, double>> later;
  if (spec.delay_intermediate_learning_rate) {
    later.emplace_back(*spec.delay_intermediate_learning_rate, spec.intermediate_learning_rate);
  }
  if (spec.delay_final_learning_rate &&
      spec.delay_final_learning_rate != spec.delay_intermediate_learning_rate) {
    later.emplace_back(*spec.delay_final_learning_rate, spec.final_learning_rate);
  }
  std::sort(later.begin(), later.end());
  for (const auto& [step, rate] : later) {
    text += "; all " + short_number(rate) + " from step " + std::to_string(step);
  }
  return text;
}

/// Layers that have the same rates, together: `0.02 (momentum 0.1) in layers 0-3`.
inline std::string rates_of(const std::vector<pvm::Rates>& rates) {
  std::string text;
  for (std::size_t begin = 0; begin < rates.size();) {
    std::size_t end = begin + 1;
    while (end < rates.size() && rates[end] == rates[begin]) ++end;
    if (!text.empty()) text += ", ";
    text += short_number(rates[begin].learning_rate) + " (momentum " +
            short_number(rates[begin].momentum) + ") in layer" + (end - begin > 1 ? "s " : " ") +
            std::to_string(begin) + (end - begin > 1 ? "-" + std::to_string(end - 1) : "");
    begin = end;
  }
  return text;
}

inline Json json_of(const Options& o, const Known& known, const pvm::Connectome& net) {
  const pvm::Spec& spec = known.spec;
  Json all = {{"file", o.file},
              {"kind", known.kind},
              {"spec", spec.name},
              {"frame", {spec.frame_side(), spec.frame_side(), spec.input_channels}},
              {"units", net.units.size()},
              {"hidden", net.hidden},
              {"outputs", net.outputs},
              {"weights", net.weights},
              {"steps", spec.steps},
              {"activation", !spec.own_activation.empty() ? spec.own_activation
                             : spec.activation == pvm::ActivationKind::polynomial ? "polynomial"
                                                                                  : "logistic"},
              {"learning_rule", spec.learning_rule}};
  all["layers"] = Json::array();
  for (const LayerFacts& layer : layers_of(spec, net)) {
    all["layers"].push_back({{"side", layer.side},
                             {"units", layer.side * layer.side},
                             {"weights", layer.weights},
                             {"inputs", {layer.least_inputs, layer.most_inputs}}});
  }
  if (known.step) all["step"] = *known.step;
  for (const pvm::Rates& layer : known.rates) {
    all["rates"].push_back({{"rate", layer.learning_rate}, {"momentum", layer.momentum}});
  }
  if (!known.run.empty()) all["run"] = known.run;
  if (!known.readout.empty()) all["readout"] = known.readout;
  return all;
}

inline void print_text(const Options& o, const Known& known, const pvm::Connectome& net) {
  const pvm::Spec& spec = known.spec;
  const auto line = [](const char* what, const std::string& words) {
    std::printf("%-10s %s\n", what, pvm::printable(words).c_str());
  };
  std::printf("%s: %s\n", pvm::printable(o.file).c_str(), pvm::printable(known.kind).c_str());
  const std::string activation = !spec.own_activation.empty() ? spec.own_activation
                                 : spec.activation == pvm::ActivationKind::polynomial ? "polynomial"
                                                                                      : "logistic";
  line("spec:", spec.name + ": frames of " + std::to_string(spec.frame_side()) + " x " +
                    std::to_string(spec.frame_side()) + " x " +
                    std::to_string(spec.input_channels) + ", " + std::to_string(net.units.size()) +
                    " units of " + std::to_string(net.hidden) + " hidden values, " +
                    std::to_string(net.weights) + " weights, " + activation + ", rule " +
                    spec.learning_rule);
  line("schedule:", schedule_of(spec) + "; " + std::to_string(spec.steps) + " steps");
  if (known.step) line("step:", std::to_string(*known.step));
  if (!known.rates.empty()) line("rates:", rates_of(known.rates));
  if (!known.run.empty()) {
    line("run:", known.run["precision"].get<std::string>() + ", batch " +
                     known.run["batch"].dump() + " (" + known.run["reduce"].get<std::string>() +
                     "), seed " + known.run["seed"].dump() + ", folded as " +
                     known.run["engine"].get<std::string>());
    if (known.run.contains("chosen")) {
      line("chosen:", known.run["chosen"].get<std::string>() + ", by trials before it began");
    }
    std::map<std::string, int> sources;
    for (const auto& source : known.run["sources"]) {
      if (source.is_string()) ++sources[source.get<std::string>()];
    }
    for (const auto& [name, streams] : sources) {
      line("frames:", (name.empty() ? "of no source" : name) +
                          (streams > 1 ? ", " + std::to_string(streams) + " sequences" : ""));
    }
  }
  if (const auto kind = known.readout.find("readout"); kind != known.readout.end()) {
    line("readout:", kind->get<std::string>());
  }
  const auto layers = layers_of(spec, net);
  int most = 1;
  for (const LayerFacts& layer : layers) most = std::max(most, layer.side);
  constexpr int widest = 48;
  std::printf("\n%6s %12s %12s %13s\n", "layer", "units", "weights", "inputs");
  for (std::size_t l = layers.size(); l-- > 0;) {
    const LayerFacts& layer = layers[l];
    const int width = std::max(1, most <= widest ? layer.side : layer.side * widest / most);
    const std::string units = std::to_string(layer.side) + " x " + std::to_string(layer.side);
    const std::string inputs =
        layer.least_inputs == layer.most_inputs
            ? std::to_string(layer.most_inputs)
            : std::to_string(layer.least_inputs) + " - " + std::to_string(layer.most_inputs);
    std::printf(
        "%6zu %12s %12zu %13s   %s%s\n", l, units.c_str(), layer.weights, inputs.c_str(),
        std::string(static_cast<std::size_t>(std::min(most, widest) - width) / 2, ' ').c_str(),
        std::string(static_cast<std::size_t>(width), '#').c_str());
  }
}

inline int info(const Options& o) {
  const Known known = read(o);
  const pvm::Connectome net = pvm::make_connectome(known.spec);
  if (!o.out.empty()) pvm::io::write_png(o.out, pvm::io::draw_network(known.spec, net));
  if (o.json) {
    constexpr auto replace = nlohmann::json::error_handler_t::replace;
    std::printf("%s\n", json_of(o, known, net).dump(-1, ' ', true, replace).c_str());
    return 0;
  }
  print_text(o, known, net);
  if (!o.out.empty()) std::printf("\npicture: %s\n", pvm::printable(o.out).c_str());
  return 0;
}

}  // namespace info_command
