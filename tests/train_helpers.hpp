// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Helpers for the tests of checkpoints and training.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/io/safetensors.hpp>
#include <pvm/model/spec.hpp>

#include "catch.hpp"
#include "temp_dir.hpp"

namespace train_test {

using pvm_test::TempDir;

/// A spec with 21 units and 12 x 12 frames, whose steps take microseconds.
inline pvm::Spec tiny_spec() {
  pvm::Spec spec;
  spec.name = "tiny_test";
  spec.layer_shapes = {4, 2, 1};
  spec.input_block_size = 3;
  spec.hidden_block_size = 3;
  spec.fan_in_square_size = 2;
  spec.fan_in_radius = 2;
  spec.lateral_radius = 1;
  spec.last_layer_context_to_all = true;
  spec.activation = pvm::ActivationKind::polynomial;
  spec.initial_learning_rate = 0.01;
  spec.momentum = 0.1;
  spec.delay_each_layer_learning = 7;
  spec.delay_final_learning_rate = 150;
  spec.final_learning_rate = 0.005;
  pvm::validate(spec, "tiny_spec");
  return spec;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// The bytes of a safetensors file with an arbitrary header.
inline std::string raw_safetensors(const std::string& header, const std::string& data = "") {
  const std::uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  return bytes + header + data;
}

/// The bytes of a checkpoint of the native backend.
inline std::string native_file(std::int64_t step, std::int32_t count,
                               const std::vector<float>& weights) {
  std::string bytes("CMVP", 4);
  bytes.append(reinterpret_cast<const char*>(&step), sizeof step);
  bytes.append(reinterpret_cast<const char*>(&count), sizeof count);
  bytes.append(reinterpret_cast<const char*>(weights.data()), weights.size() * sizeof(float));
  return bytes;
}

/// The message of the pvm::Error that `f` throws; empty if it throws none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const pvm::Error& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());  // directories have no order
  return names;
}

/// Collects the messages logged during its lifetime.
class Messages {
 public:
  Messages() {
    pvm::set_log_sink([this](pvm::Severity, const std::string& line) { lines_.push_back(line); });
  }
  ~Messages() { pvm::set_log_sink(nullptr); }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  [[nodiscard]] bool mention(const std::string& part) const { return count(part) > 0; }
  [[nodiscard]] std::ptrdiff_t count(const std::string& part) const {
    return std::count_if(lines_.begin(), lines_.end(),
                         [&](const std::string& line) { return contains(line, part); });
  }
  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

}  // namespace train_test
