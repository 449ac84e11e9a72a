// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Sends what the libraries that decode pictures print to the log. libpng, libjpeg and others write
/// to the C library's `stderr`, and OpenCV offers no way to stop them.

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <pvm/core/config.hpp>
#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>

namespace pvm::inline v0::io {

/// While an object of this type lives, what its thread prints to `stderr` goes to the log, as
/// `Severity::info`: each text once, and no more than `most_texts` different ones.
///
/// The file descriptor stays as it is, so that nothing else is lost: `std::cerr`, other threads,
/// and what a crash leaves behind reach it as always. Only the variable `stderr` is another stream
/// meanwhile, which passes on what other threads print to it. Needs glibc; elsewhere nothing is
/// collected.
class CodecMessages {
 public:
  static constexpr std::size_t most_texts = 10;

  CodecMessages() {
    outer_ = std::exchange(collecting(), this);
    redirect(1);
  }
  ~CodecMessages() {
    redirect(-1);
    collecting() = outer_;
    try {
      log_lines();
    } catch (...) {  // no memory for messages that nobody needs
    }
  }
  CodecMessages(const CodecMessages&) = delete;
  CodecMessages& operator=(const CodecMessages&) = delete;

 private:
  /// The object of this thread, if there is one.
  static CodecMessages*& collecting() noexcept {
    thread_local CodecMessages* mine = nullptr;
    return mine;
  }

  /// Only remembers the text: the log's sink may print to `stderr` itself.
  void collect(std::string_view part) noexcept {
    try {
      text_ += part.substr(0, most_bytes - std::min(most_bytes, text_.size()));
    } catch (...) {  // no memory for it
    }
  }

  void log_lines() const {
    for (std::string_view rest = text_; !rest.empty();) {
      const std::string line(rest.substr(0, rest.find('\n')));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      if (!line.empty() && is_new(line)) {
        log(Severity::info, "a picture's decoder says " + pvm::quote(line));
      }
    }
  }

  static bool is_new(const std::string& line) {
    static std::mutex mutex;
    static std::set<std::string> texts;
    const std::lock_guard lock(mutex);
    return texts.size() < most_texts && texts.insert(line).second;
  }

#if defined(__GLIBC__)
  struct Streams {
    std::mutex mutex;
    std::size_t users = 0;
    std::FILE* original = nullptr;  // what `stderr` was
    std::FILE* replacing = nullptr;
  };
  /// Never destroyed: other threads may print until the program's last moment.
  static Streams& streams() {
    static Streams& all = *new Streams;
    return all;
  }

  /// Adds `change` to the number of objects; `stderr` is replaced as long as there are any.
  static void redirect(int change) noexcept {
    try {
      Streams& all = streams();
      const std::lock_guard lock(all.mutex);
      if (all.replacing == nullptr) {
        all.replacing =
            ::fopencookie(nullptr, "w", {nullptr, &CodecMessages::write, nullptr, nullptr});
        if (all.replacing == nullptr) return;
        (void)std::setvbuf(all.replacing, nullptr, _IONBF, 0);  // each print arrives by itself
      }
      if (change > 0 && all.users++ == 0) {
        all.original = stderr;
        stderr = all.replacing;
      } else if (change < 0 && all.users > 0 && --all.users == 0 && stderr == all.replacing) {
        stderr = all.original;
      }
    } catch (...) {  // a lock that fails: what is printed is printed
    }
  }

  /// Called by the C library on the thread that prints.
  static ssize_t write(void*, const char* text, std::size_t size) noexcept {
    if (CodecMessages* const mine = collecting()) {
      mine->collect({text, size});
    } else {
      (void)std::fwrite(text, 1, size, streams().original);
    }
    return static_cast<ssize_t>(size);
  }
#else
  static void redirect(int) noexcept {}
#endif

  static constexpr std::size_t most_bytes = 1 << 12;  // of one picture's messages
  CodecMessages* outer_ = nullptr;
  std::string text_;
};

}  // namespace pvm::inline v0::io
