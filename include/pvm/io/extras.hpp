// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What files of networks carry for a readout.

#include <map>
#include <string>
#include <vector>

namespace pvm::inline v0::io {

/// What a checkpoint carries besides the run, for a readout: texts and arrays by name. Names begin
/// with `readout`.
struct Extras {
  std::map<std::string, std::string> texts;
  std::map<std::string, std::vector<float>> floats;
  std::map<std::string, std::vector<double>> doubles;
  bool operator==(const Extras&) const = default;
  [[nodiscard]] bool empty() const noexcept {
    return texts.empty() && floats.empty() && doubles.empty();
  }
};

}  // namespace pvm::inline v0::io
