// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Commands, as they come from the network and from scripts: what is understood is the same when it
/// is written and read again, and so are the modes that it leads to.

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <pvm/train/command.hpp>
#include <pvm/train/modes.hpp>

#include "fuzz.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr int side = 12;
  pvm::Modes modes{.sequences = std::vector<pvm::SequenceMode>(3),
                   .rates = std::vector<std::optional<float>>(4)};
  const pvm::Modes none = modes;
  const std::string text(fuzz::text_of(data, size));
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    try {
      const pvm::Command command = pvm::parse_command(line);
      fuzz::require(pvm::parse_command(pvm::command_text(command)) == command,
                    "a written command is the same command");
      modes.obey(command, side);
    } catch (const pvm::Error& error) {
      fuzz::require_sentence(error.what());
      continue;
    }
    pvm::Modes again = none;
    again.obey_all(modes.text(), side);
    fuzz::require(again == modes, "the text of modes leads to the same modes");
    for (const auto& [sight, spot] : modes.sequences) {
      fuzz::require(
          spot.x >= 0 && spot.y >= 0 && spot.x + spot.width <= side && spot.y + spot.height <= side,
          "a rectangle is within the frame");
    }
  }
  return 0;
}
