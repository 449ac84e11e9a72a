// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Logging. The library passes its messages to the sink that the program has set. Until one is set,
/// warnings go to standard error, so that no program loses them, and other messages are dropped.

#include <functional>
#include <iostream>
#include <mutex>
#include <string>
#include <utility>

#include <pvm/core/config.hpp>
#include <pvm/core/printable.hpp>

namespace pvm::inline v0 {

enum class Severity { info, warning };

using LogSink = std::function<void(Severity, const std::string&)>;

/// A sink for programs: one line per message on standard error.
inline void log_to_stderr(Severity severity, const std::string& message) {
  std::cerr << (severity == Severity::warning ? "warning: " : "") + message + '\n';
}

/// The sink until another one is set: only warnings, on standard error.
inline void log_warnings_to_stderr(Severity severity, const std::string& message) {
  if (severity == Severity::warning) log_to_stderr(severity, message);
}

namespace detail {
struct LogState {
  std::mutex mutex;
  LogSink sink = log_warnings_to_stderr;
};
inline LogState& log_state() {
  static LogState state;
  return state;
}
}  // namespace detail

/// Sends all messages to `sink` from now on. It may be called from any thread, but only one call at
/// a time. With an empty sink, set_log_sink({}), all messages are dropped; log_to_stderr shows all
/// of them, log_warnings_to_stderr (the default) the warnings. Messages logged by a sink itself are
/// dropped; a sink must not call set_log_sink.
inline void set_log_sink(LogSink sink) {
  auto& state = detail::log_state();
  const std::lock_guard lock(state.mutex);
  state.sink = std::move(sink);
}

/// Passes a message to the sink, if there is one. A message is one line: whatever text from outside
/// is in it, it is made `printable`. May be called from any thread.
inline void log(Severity severity, const std::string& message) {
  thread_local bool in_sink = false;
  if (in_sink) return;
  auto& state = detail::log_state();
  const std::lock_guard lock(state.mutex);
  const struct Inside {
    Inside() { in_sink = true; }
    ~Inside() { in_sink = false; }
  } inside;
  if (state.sink) state.sink(severity, printable(message));
}

}  // namespace pvm::inline v0
