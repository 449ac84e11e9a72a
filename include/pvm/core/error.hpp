// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The one exception of the library: a stable id and a sentence that says what to do.

#include <stdexcept>
#include <string>
#include <string_view>

#include <pvm/core/config.hpp>

namespace pvm::inline v0 {

/// What kind of thing went wrong. The values are stable: scripts may rely on them.
enum class Fault : int {
  usage = 1,       ///< an argument no run could work with
  spec = 2,        ///< a model spec that is wrong
  source = 3,      ///< frames that cannot be read
  checkpoint = 4,  ///< a checkpoint that cannot be read or written
  device = 5,      ///< a GPU that is missing, too small or lost
  memory = 6,      ///< not enough memory for what was asked
};

/// Every failure the library reports. `what()` is one sentence: what, where, what to do.
class Error : public std::runtime_error {
 public:
  Error(Fault fault, const std::string& sentence) : std::runtime_error(sentence), fault_(fault) {}

  [[nodiscard]] Fault fault() const noexcept { return fault_; }

 private:
  Fault fault_;
};

/// Text from outside (a file name, a key, a value), quoted, without control characters, and cut
/// so that a message stays one readable line.
inline std::string quote(std::string_view text, std::size_t most = 120) {
  std::string out = "'";
  for (const char c : text.substr(0, most)) {
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return out + (text.size() > most ? "...'" : "'");
}

}  // namespace pvm::inline v0
