// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a run can be told while it goes on, as text: `dream`, `rate 0.01 2`, `skip`.

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <pvm/core/error.hpp>

namespace pvm::inline v0 {

/// A rectangle of a frame, in pixels of the network's frames.
struct Spot {
  int x = 0, y = 0, width = 0, height = 0;
  bool operator==(const Spot&) const = default;
};

/// The middle third of a frame, in both directions.
constexpr Spot middle_third(int side) noexcept {
  const int margin = side / 3;
  return {margin, margin, side - 2 * margin, side - 2 * margin};
}

/// What the network sees of a sequence.
enum class Sight : std::uint8_t {
  frames,         ///< the frames of the source
  dream,          ///< the prediction that it made of the frame
  partial_dream,  ///< the prediction in a rectangle, and the frame around it
  blind_spot,     ///< grey in a rectangle, and the frame around it
};

/// Their names in commands.
inline constexpr const char* sight_names[] = {"frames", "dream", "partial-dream", "blind-spot"};

/// One command. docs/model.md says what each of them does.
struct Command {
  enum class Verb : std::uint8_t { see, freeze, learn, rate, skip, restart, pause, resume, step };

  Verb verb = Verb::resume;
  Sight sight = Sight::frames;         ///< of `see`
  std::optional<Spot> spot{};          ///< of `see`; without one: the middle third
  std::optional<std::size_t> index{};  ///< of a sequence, or of a layer for `rate`; none: all
  std::optional<float> rate{};         ///< of `rate`; none: that of the spec
  std::uint64_t steps = 1;             ///< of `step`
  bool operator==(const Command&) const = default;
};

/// The commands as a person is told of them.
inline constexpr std::string_view command_words =
    "dream [SEQUENCE], partial-dream [SEQUENCE] [X Y WIDTH HEIGHT], blind-spot [SEQUENCE] [X Y "
    "WIDTH HEIGHT], frames [SEQUENCE], freeze, learn, rate R|spec [LAYER], skip [SEQUENCE], "
    "restart [SEQUENCE], pause, resume, step [N]";

namespace detail {

inline std::vector<std::string_view> words_of(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  std::vector<std::string_view> words;
  for (std::size_t at = text.find_first_not_of(blanks); at < text.size();) {
    const std::size_t end = std::min(text.find_first_of(blanks, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(blanks, end);
  }
  return words;
}

/// The number that `text` is, the whole of it; nothing if it is none, or out of T's range.
template <class T>
std::optional<T> whole_text_as(std::string_view text) {
  T value{};
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Reads the words of a command one after the other.
class CommandWords {
 public:
  explicit CommandWords(std::string_view text) : text_(text), words_(words_of(text)) {}

  [[nodiscard]] std::size_t left() const { return words_.size() - at_; }
  std::string_view next() { return words_[at_++]; }

  template <class T>
  T number(const char* what) {
    const std::string_view word = next();
    if (const auto value = whole_text_as<T>(word)) return *value;
    refuse(quote(word) + " is no " + what);
  }
  std::optional<std::size_t> index_if_any(const char* what) {
    if (left() == 0) return std::nullopt;
    if (words_[at_] == "all") {
      ++at_;
      return std::nullopt;
    }
    return number<std::uint32_t>(what);
  }
  void end() const {
    if (left() > 0) refuse(quote(words_[at_]) + " was not expected");
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Fault::usage, "the command " + quote(text_) + " cannot be understood: " + why);
  }

 private:
  std::string_view text_;
  std::vector<std::string_view> words_;
  std::size_t at_ = 0;
};

inline void read_spot(CommandWords& words, Command& command) {
  if (words.left() == 0) return;
  if (words.left() != 4) words.refuse("a rectangle is X Y WIDTH HEIGHT, in pixels");
  Spot spot;
  for (int* const side : {&spot.x, &spot.y, &spot.width, &spot.height}) {
    *side = words.number<int>("number of pixels");
  }
  command.spot = spot;
}

inline void read_rate(CommandWords& words, Command& command) {
  if (words.left() == 0) words.refuse("a rate is missing; give a number, or spec");
  if (const std::string_view rate = words.next(); rate != "spec") {
    command.rate = whole_text_as<float>(rate);
    if (!command.rate || !(*command.rate >= 0 && *command.rate <= 1000)) {
      words.refuse(quote(rate) + " is no rate; allowed: 0 to 1000, or spec");
    }
  }
  command.index = words.index_if_any("layer");
}

}  // namespace detail

/// Reads a command. Throws Error (Fault::usage) if the text is none.
inline Command parse_command(std::string_view text) {
  detail::CommandWords words(text);
  if (words.left() == 0) words.refuse("it is empty");
  using Verb = Command::Verb;
  Command command;
  const std::string_view verb = words.next();
  constexpr const char* sequence = "number of a sequence";
  if (verb == "dream" || verb == "frames") {
    command = {.verb = Verb::see, .sight = verb == "dream" ? Sight::dream : Sight::frames};
    command.index = words.index_if_any(sequence);
  } else if (verb == "partial-dream" || verb == "blind-spot") {
    command = {.verb = Verb::see,
               .sight = verb == "blind-spot" ? Sight::blind_spot : Sight::partial_dream};
    if (words.left() % 4 == 1) command.index = words.index_if_any(sequence);
    detail::read_spot(words, command);
  } else if (verb == "skip" || verb == "restart") {
    command.verb = verb == "skip" ? Verb::skip : Verb::restart;
    command.index = words.index_if_any(sequence);
  } else if (verb == "rate") {
    command.verb = Verb::rate;
    detail::read_rate(words, command);
  } else if (verb == "step") {
    command.verb = Verb::step;
    if (words.left() > 0) command.steps = words.number<std::uint64_t>("number of steps");
    if (command.steps == 0) words.refuse("no steps are to be done");
  } else if (verb == "freeze" || verb == "learn" || verb == "pause" || verb == "resume") {
    command.verb = verb == "freeze"  ? Verb::freeze
                   : verb == "learn" ? Verb::learn
                   : verb == "pause" ? Verb::pause
                                     : Verb::resume;
  } else {
    words.refuse(quote(verb) + " is unknown; allowed: " + std::string(command_words));
  }
  words.end();
  return command;
}

/// The command as text, of which `parse_command` makes the same command.
inline std::string command_text(const Command& command) {
  using Verb = Command::Verb;
  const auto with_index = [&](std::string text) {
    return command.index ? text + " " + std::to_string(*command.index) : text;
  };
  switch (command.verb) {
    case Verb::see: {
      std::string text = with_index(sight_names[static_cast<std::size_t>(command.sight)]);
      if (command.spot) {
        for (const int side :
             {command.spot->x, command.spot->y, command.spot->width, command.spot->height}) {
          text += " " + std::to_string(side);
        }
      }
      return text;
    }
    case Verb::rate: {
      char digits[32];
      const auto end =
          command.rate ? std::to_chars(digits, digits + sizeof digits, *command.rate).ptr : digits;
      return with_index("rate " + (command.rate ? std::string(digits, end) : "spec"));
    }
    case Verb::skip:
      return with_index("skip");
    case Verb::restart:
      return with_index("restart");
    case Verb::step:
      return "step " + std::to_string(command.steps);
    case Verb::freeze:
      return "freeze";
    case Verb::learn:
      return "learn";
    case Verb::pause:
      return "pause";
    case Verb::resume:
      break;
  }
  return "resume";
}

}  // namespace pvm::inline v0
