// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the fuzz targets share. A target is a file with LLVMFuzzerTestOneInput; what it finds wrong
/// ends the program: a sanitizer's error, an exception that is not pvm::Error, or `fuzz::found`.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <sys/mman.h>
#include <unistd.h>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace fuzz {

/// Ends the program: the input has shown that `what`.
[[noreturn]] inline void found(const std::string& what) {
  std::fprintf(stderr, "FOUND: %s\n", what.c_str());
  std::abort();
}
inline void require(bool holds, const char* what) {
  if (!holds) found(std::string("not so: ") + what);
}

/// A message is one line of moderate length, without what a terminal would obey.
inline void require_sentence(std::string_view text) {
  if (text.empty() || text.size() > 4000) found("a message of " + std::to_string(text.size()));
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20 || code == 0x7F) found("a message with code " + std::to_string(code));
  }
}

/// Calls `action`, which may throw a pvm::Error with a sentence, and nothing else.
template <class Action>
void expect(Action&& action) {
  try {
    action();
  } catch (const pvm::Error& error) {
    require_sentence(error.what());
  }
}

/// Sends the library's messages to require_sentence.
inline const bool log_is_checked = [] {
  pvm::set_log_sink([](pvm::Severity, const std::string& message) { require_sentence(message); });
  return true;
}();

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// A file in memory, for readers that take a path.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("fuzz", 0)) { require(descriptor_ >= 0, "a file"); }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  /// Replaces the content and returns the path.
  std::string write(const std::uint8_t* data, std::size_t size) const {
    const bool written = ftruncate(descriptor_, 0) == 0 &&
                         pwrite(descriptor_, data, size, 0) == static_cast<ssize_t>(size);
    require(written, "the file can be written");
    return "/proc/self/fd/" + std::to_string(descriptor_);
  }

 private:
  int descriptor_;
};

}  // namespace fuzz
