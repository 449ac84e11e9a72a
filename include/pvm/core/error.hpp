// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The library's only exception type: a stable id and a sentence that says what to do.

#include <stdexcept>
#include <string>
#include <string_view>

#include <pvm/core/config.hpp>

namespace pvm::inline v0 {

/// The kind of a failure. The values are stable: scripts may rely on them.
enum class Fault : int {
  usage = 1,       ///< an argument that no run could work with
  spec = 2,        ///< a model spec that is wrong
  source = 3,      ///< frames that cannot be read
  checkpoint = 4,  ///< a checkpoint that cannot be read or written
  device = 5,      ///< a GPU that is missing, too small or lost
  memory = 6,      ///< not enough memory for what was asked
};

/// Thrown for every failure that the library reports. `what()` is one sentence: what went wrong,
/// where, and what to do.
class Error : public std::runtime_error {
 public:
  Error(Fault fault, const std::string& sentence) : std::runtime_error(sentence), fault_(fault) {}

  [[nodiscard]] Fault fault() const noexcept { return fault_; }

 private:
  Fault fault_;
};

/// Quotes a text from outside (a file name, a key, a value) for a message: replaces control
/// characters by `?` and cuts it after `most` bytes, so that a message stays one readable line.
inline std::string quote(std::string_view text, std::size_t most = 120) {
  std::string out = "'";
  for (const char c : text.substr(0, most)) {
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return out + (text.size() > most ? "...'" : "'");
}

}  // namespace pvm::inline v0
