// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Parses JSON of unknown origin: bounded in depth, with an error in one sentence.

#include <cstddef>
#include <set>
#include <string>
#include <string_view>

#include <pvm/core/need_json.hpp>

#include <nlohmann/json.hpp>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/printable.hpp>

namespace pvm::inline v0::detail {

/// How many keys of a file get a warning of their own.
inline constexpr std::size_t most_warnings = 10;

/// Parses JSON of limited depth, so that a small file of brackets does not become a gigabyte of
/// arrays. Throws `fault` if the text is not such JSON. Logs a warning for each of the first
/// repeated keys of the outermost object; the last one counts. `where` begins the messages.
inline nlohmann::json parse_shallow(std::string_view text, const std::string& where, Fault fault) {
  constexpr int most_depth = 8;
  using Event = nlohmann::json::parse_event_t;
  std::set<std::string> keys;
  std::size_t repeated = 0;
  const auto bounded = [&](int depth, Event event, nlohmann::json& value) {
    if (depth > most_depth) throw Error(fault, where + ": brackets nested too deep for a spec");
    if (event == Event::key && depth == 1 && !keys.insert(value.get<std::string>()).second &&
        ++repeated <= most_warnings) {
      log(Severity::warning, where + ": key " + quote(value.get<std::string>()) +
                                 " is there more than once; the last one counts");
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text, bounded, true, true);
  } catch (const nlohmann::json::exception& error) {
    std::string why = error.what();
    if (const auto end = why.find("] "); end != std::string::npos) why.erase(0, end + 2);
    if (constexpr std::size_t most = 160; why.size() > most) {
      why = std::string(beginning(why, most)) + "...";
    }
    throw Error(fault, where + ": not JSON: " + why);
  }
}

}  // namespace pvm::inline v0::detail
