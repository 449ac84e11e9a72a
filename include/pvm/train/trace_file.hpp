// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Writes a trace of a run, for Chrome's and Perfetto's viewers.

#include <filesystem>
#include <string>
#include <utility>

#include <pvm/core/trace.hpp>
#include <pvm/io/atomic_file.hpp>
#include <pvm/io/output_file.hpp>
#include <pvm/train/report.hpp>

namespace pvm::inline v0 {

/// Records what all threads do while it exists, and writes it to a file: stages of sources, blocks
/// of steps, callbacks, checkpoints, with the threads' names; how many frames are ready, and how
/// much memory is used, as counters; and the way of each frame that is decoded.
/// https://ui.perfetto.dev and chrome://tracing show the file. Of a long run it has the beginning
/// and the end, and at most about 25 MB. One at a time.
class TraceFile {
 public:
  /// Starts to record. Throws Error (Fault::usage) if the file cannot be written, or is there and
  /// no JSON file.
  explicit TraceFile(std::filesystem::path path) : path_(std::move(path)) {
    io::require_json_output(path_, "the trace");
    trace::name_thread_in_traces("run");
    trace::start();
  }
  ~TraceFile() { trace::stop(); }
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  /// Stops, and writes the file, with the report of the run. Throws Error (Fault::checkpoint) if
  /// that fails.
  void write(const Report& report) const {
    trace::stop();
    const std::string text = trace::json("\"report\": " + report_json(report));
    io::make_directories_of(path_);
    io::AtomicFile file(path_);
    file.write(text.data(), text.size());
    file.commit(false);
  }

 private:
  std::filesystem::path path_;
};

}  // namespace pvm::inline v0
