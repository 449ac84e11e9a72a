// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A file of commands, each with the step before which it is obeyed.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/open_fault.hpp>
#include <pvm/train/command.hpp>
#include <pvm/train/trainer_base.hpp>

namespace pvm::inline v0 {

/// A command, and the step before which it is obeyed.
struct ScriptLine {
  std::uint64_t step = 0;
  Command command{};
};

/// Reads a script: lines of a step and a command, for example `5000 dream`. Empty lines and what
/// follows a `#` are left out. Returned in the order of the steps; the commands of one step keep
/// theirs. Throws Error (Fault::usage) with the line's number if a line is something else, or if
/// it pauses, which nobody could end.
inline std::vector<ScriptLine> load_script(const std::filesystem::path& path) {
  const std::string where = "script " + quote(path.string());
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw Error(Fault::usage, where + " is a directory, not a file");
  }
  if (const std::string why = why_not_readable(path); !why.empty()) {
    throw Error(Fault::usage, where + " cannot be read: " + why);
  }
  std::ifstream file(path);
  std::vector<ScriptLine> lines;
  std::string line;
  for (std::uint64_t number = 1; std::getline(file, line); ++number) {
    line.resize(std::min(line.find('#'), line.size()));
    const auto words = detail::words_of(line);
    if (words.empty()) continue;
    const std::string here = where + ", line " + std::to_string(number) + ": ";
    const auto step = detail::whole_text_as<std::uint64_t>(words.front());
    if (!step) {
      throw Error(Fault::usage, here + quote(words.front()) +
                                    " is no step; a line is a step and a command: 5000 dream");
    }
    Command command;
    try {
      const auto rest =
          static_cast<std::size_t>(words.front().data() - line.data()) + words.front().size();
      command = parse_command(std::string_view(line).substr(rest));
    } catch (const Error& error) {
      throw Error(Fault::usage, here + error.what());
    }
    using Verb = Command::Verb;
    if (command.verb == Verb::pause || command.verb == Verb::resume || command.verb == Verb::step) {
      throw Error(Fault::usage, here + quote(command_text(command)) +
                                    " is for a run that somebody looks at; leave it out");
    }
    lines.push_back({*step, command});
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const ScriptLine& a, const ScriptLine& b) { return a.step < b.step; });
  return lines;
}

/// Lets a run obey the script's commands, each right before its step. Those for steps that the run
/// has done already are left out: a checkpoint contains them. Throws Error (Fault::usage) if one of
/// them cannot be obeyed by this run.
inline void follow_script(TrainerBase& trainer, const std::vector<ScriptLine>& script) {
  for (const auto& [step, command] : script) {
    if (step < trainer.step()) continue;
    try {
      trainer.command_at(step, command);
    } catch (const Error& error) {
      throw Error(Fault::usage, "the script's command " + quote(command_text(command)) +
                                    " at step " + std::to_string(step) + ": " + error.what());
    }
  }
}

}  // namespace pvm::inline v0
