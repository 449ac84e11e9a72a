// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Logging. The library prints nothing itself; it passes its messages to a sink. By default that is
/// `warnings_to_stderr`, so that a program which sets none loses no warning:
///
///     pvm::set_log_sink(pvm::log_to_stderr);  // information, too
///     pvm::set_log_sink(nullptr);             // nothing at all

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

/// The default sink: warnings on standard error, as `log_to_stderr` writes them, and no information.
inline void warnings_to_stderr(Severity severity, const std::string& message) {
  if (severity == Severity::warning) log_to_stderr(severity, message);
}

namespace detail {
struct LogState {
  std::mutex mutex;
  LogSink sink = warnings_to_stderr;
};
inline LogState& log_state() {
  static LogState state;
  return state;
}
}  // namespace detail

/// Sends all messages to `sink` from now on; `nullptr` drops them. `sink` may be called from any
/// thread, but only one call at a time. Messages logged by a sink itself are dropped, too; a sink
/// must not call set_log_sink.
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
