// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The modes that a run is in: what commands have set, as far as it lasts.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/train/command.hpp>

namespace pvm::inline v0 {

/// What the network sees of one sequence, and the rectangle, if that has one.
struct SequenceMode {
  Sight sight = Sight::frames;
  Spot spot{};
  bool operator==(const SequenceMode&) const = default;
};

/// The modes of a run. A new run has none: it sees its frames, learns if it was started to learn,
/// and has the rates of its spec.
struct Modes {
  std::optional<bool> frozen{};             ///< by a command; none: as the run was started
  std::vector<SequenceMode> sequences;      ///< [batch]
  std::vector<std::optional<float>> rates;  ///< [layer]: the rate that is held, if any
  bool operator==(const Modes&) const = default;

  [[nodiscard]] bool dreams() const {
    return std::any_of(sequences.begin(), sequences.end(), [](const SequenceMode& mode) {
      return mode.sight == Sight::dream || mode.sight == Sight::partial_dream;
    });
  }
  [[nodiscard]] bool changes_frames() const {
    return std::any_of(sequences.begin(), sequences.end(),
                       [](const SequenceMode& mode) { return mode.sight != Sight::frames; });
  }

  /// Takes over a command that lasts; the others change nothing here. `side`: of a frame. Throws
  /// Error (Fault::usage) if there is no such sequence or layer, or the rectangle is not within the
  /// frame.
  void obey(const Command& command, int side) {
    if (command.verb == Command::Verb::freeze) frozen = true;
    if (command.verb == Command::Verb::learn) frozen = false;
    if (command.verb == Command::Verb::rate) {
      for (auto& rate : chosen(std::span(rates), command, "layer")) rate = command.rate;
    }
    if (command.verb == Command::Verb::skip || command.verb == Command::Verb::restart) {
      static_cast<void>(chosen(std::span(sequences), command, "sequence"));
    }
    if (command.verb != Command::Verb::see) return;
    const auto all = chosen(std::span(sequences), command, "sequence");
    SequenceMode mode{command.sight};
    if (command.sight == Sight::partial_dream || command.sight == Sight::blind_spot) {
      mode.spot = command.spot.value_or(middle_third(side));
      check(mode.spot, side);
    }
    std::fill(all.begin(), all.end(), mode);
  }

  /// The modes as commands with semicolons between, which make the same modes again; empty for
  /// those of a new run.
  [[nodiscard]] std::string text() const {
    std::string all;
    const auto add = [&all](const Command& command) {
      all += (all.empty() ? "" : "; ") + command_text(command);
    };
    using Verb = Command::Verb;
    if (frozen) add({.verb = *frozen ? Verb::freeze : Verb::learn});
    for (std::size_t l = 0; l < rates.size(); ++l) {
      if (rates[l]) add({.verb = Verb::rate, .index = l, .rate = rates[l]});
    }
    for (std::size_t b = 0; b < sequences.size(); ++b) {
      const auto& [sight, spot] = sequences[b];
      if (sight == Sight::frames) continue;
      Command command{.verb = Verb::see, .sight = sight, .index = b};
      if (sight != Sight::dream) command.spot = spot;
      add(command);
    }
    return all;
  }

  /// Obeys the commands of a `text()`. Throws Error (Fault::usage) as `obey` and `parse_command`.
  void obey_all(std::string_view text, int side) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find(';'), text.size());
      obey(parse_command(text.substr(0, end)), side);
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }

 private:
  template <class T>
  static std::span<T> chosen(std::span<T> all, const Command& command, const char* what) {
    if (!command.index) return all;
    if (*command.index < all.size()) return all.subspan(*command.index, 1);
    throw Error(Fault::usage, "there is no " + std::string(what) + " " +
                                  std::to_string(*command.index) + ": the run has " +
                                  std::to_string(all.size()) + ", counted from 0");
  }
  static void check(const Spot& spot, int side) {
    const auto fits = [side](int from, int length) {
      return from >= 0 && length > 0 && from < side && length <= side - from;
    };
    if (fits(spot.x, spot.width) && fits(spot.y, spot.height)) return;
    throw Error(Fault::usage, "the rectangle " + std::to_string(spot.x) + " " +
                                  std::to_string(spot.y) + " " + std::to_string(spot.width) + " " +
                                  std::to_string(spot.height) +
                                  " is not within the frame, which has " + std::to_string(side) +
                                  " x " + std::to_string(side) + " pixels");
  }
};

}  // namespace pvm::inline v0
