// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The bodies of metrics.hpp.

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <ios>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <pvm/core/need_json.hpp>

#include <nlohmann/json.hpp>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/memory.hpp>
#include <pvm/core/open_fault.hpp>
#include <pvm/io/atomic_file.hpp>
#include <pvm/train/callback.hpp>
#include <pvm/train/metrics.hpp>
#include <pvm/train/trainer_base.hpp>

namespace pvm::inline v0 {

namespace detail {

/// Parses a line of metrics; nothing if `line` is something else, or incomplete.
inline std::optional<nlohmann::json> parse_metrics(const std::string& line) {
  auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_unsigned()) {
    return std::nullopt;
  }
  return json;
}

}  // namespace detail

PVM_INLINE void Metrics::begin(const Moment& moment) {
  file_.reset();
  last_step_ = moment.begin;
  last_seconds_ = 0;
  commands_ = moment.trainer.commands();
  std::error_code ignored;
  if (std::filesystem::exists(path_, ignored)) {
    if (!std::filesystem::is_regular_file(path_, ignored))
      refuse("it is not a file; choose another name");
    if (!holds_metrics()) refuse("it exists and holds something else; choose another name");
  }
  if (const auto why = io::why_not_writable(path_); !why.empty()) {
    refuse(why + "; choose another place");
  }
}

PVM_INLINE void Metrics::refuse(const std::string& why) const {
  throw Error(Fault::usage, "metrics cannot be written to " + quote(path_.string()) + ": " + why);
}

PVM_INLINE void Metrics::check_name(const std::string& name) const {
  constexpr std::array<std::string_view, 12> keys = {"step",
                                                     "fps",
                                                     "loss",
                                                     "mse",
                                                     "psnr",
                                                     "persistence_mse",
                                                     "persistence_psnr",
                                                     "seconds",
                                                     "memory_mb",
                                                     "gpu_memory_mb",
                                                     "commands",
                                                     "modes"};
  const auto has_name = [&](const auto& own) { return own.first == name; };
  if (std::find(keys.begin(), keys.end(), name) != keys.end() ||
      std::any_of(own_.begin(), own_.end(), has_name)) {
    throw Error(Fault::usage, "a line of metrics has " + quote(name) +
                                  " already; give the program's own metric another name");
  }
}

PVM_INLINE bool Metrics::holds_metrics() const {
  std::ifstream file(path_);
  if (!file) refuse("it exists and cannot be read (" + why_not_readable(path_) + ")");
  std::string line;
  return !std::getline(file, line) || detail::parse_metrics(line).has_value();
}

PVM_INLINE void Metrics::append(const Moment& moment) {
  if (!file_) open(moment.begin);
  const double seconds = moment.seconds - last_seconds_;
  const auto frames = static_cast<double>(moment.step - last_step_) * moment.trainer.batch();
  nlohmann::ordered_json line;
  line["step"] = moment.step;
  line["fps"] = frames / seconds;
  line["loss"] = mean_loss(moment.score);
  line["mse"] = prediction_mse(moment.score);
  line["psnr"] = psnr(prediction_mse(moment.score));
  line["persistence_mse"] = persistence_mse(moment.score);
  line["persistence_psnr"] = psnr(persistence_mse(moment.score));
  line["seconds"] = seconds_before_ + moment.seconds;
  line["memory_mb"] = static_cast<double>(resident_bytes() / 100'000) / 10;
  if (const std::size_t bytes = moment.trainer.device_memory(); bytes > 0) {
    line["gpu_memory_mb"] = static_cast<double>(bytes / 100'000) / 10;
  }
  for (auto& [name, value] : own_) line[name] = value(moment);
  if (moment.trainer.commands() > commands_) {
    const auto& obeyed = moment.trainer.obeyed();
    const std::uint64_t news = moment.trainer.commands() - commands_;
    for (std::size_t i = obeyed.size() - std::min<std::size_t>(obeyed.size(), news);
         i < obeyed.size(); ++i) {
      line["commands"].push_back({obeyed[i].step, obeyed[i].command});
    }
    commands_ = moment.trainer.commands();
  }
  if (const auto modes = moment.trainer.modes().text(); !modes.empty()) line["modes"] = modes;
  *file_ << line.dump() + "\n" << std::flush;
  if (!*file_ && !std::exchange(failed_, true)) {
    log(Severity::warning,
        "metrics cannot be written to " + quote(path_.string()) + "; the run goes on without them");
  }
  last_step_ = moment.step;
  last_seconds_ = moment.seconds;
}

PVM_INLINE void Metrics::open(std::uint64_t begin) {
  std::error_code ignored;
  io::make_directories_of(path_);
  seconds_before_ = 0;
  bool is_ready = true;
  if (std::filesystem::exists(path_, ignored)) {
    if (begin == 0) {
      is_ready = set_aside();
    } else {
      is_ready = drop_after(begin);
    }
  }
  file_.emplace();
  if (is_ready) file_->open(path_, std::ios::app);
}

PVM_INLINE bool Metrics::set_aside() const {
  std::error_code fault;
  if (std::filesystem::file_size(path_, fault) == 0) return true;
  std::filesystem::path old = path_.string() + ".old";
  for (int n = 2; std::filesystem::exists(old, fault); ++n) {
    old = path_.string() + ".old" + std::to_string(n);
  }
  std::filesystem::rename(path_, old, fault);
  if (!fault) log(Severity::info, "metrics of an earlier run are kept as " + old.string());
  return !fault;
}

PVM_INLINE bool Metrics::drop_after(std::uint64_t begin) {
  std::ifstream file(path_);
  std::string kept, line;
  while (std::getline(file, line)) {
    const auto json = detail::parse_metrics(line);
    if (!json || (*json)["step"] > begin)
      continue;  // a later step, or a line that a killed run left incomplete
    kept += line + "\n";
    const auto& seconds = (*json)["seconds"];
    if (seconds.is_number()) seconds_before_ = seconds.get<double>();
  }
  try {
    io::AtomicFile rewritten(path_);
    rewritten.write(kept.data(), kept.size());
    rewritten.commit();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace pvm::inline v0
