// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Parses the arguments of the numbered examples: words and numbers in a fixed order.

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <system_error>

class Arguments {
 public:
  /// `usage`: a line with the program's name and its `least` to `most` arguments. If the number of
  /// arguments is wrong, or for --help, prints it and ends the program.
  Arguments(int argc, char** argv, int least, int most, const char* usage)
      : argc_(argc), argv_(argv), usage_(usage) {
    if (argc > 1 && (argv[1] == std::string_view("--help") || argv[1] == std::string_view("-h"))) {
      std::printf("usage: %s\n", usage);
      std::exit(0);
    }
    if (argc <= least || argc > most + 1) refuse();
  }

  const char* operator[](int at) const { return argv_[at]; }
  int count() const { return argc_ - 1; }

  /// Argument number `at` (from 1), a number of steps, or `otherwise` if it is not given. At least
  /// 3, because predictions can be scored from the third step on.
  std::uint64_t steps(int at, std::uint64_t otherwise) const {
    return number<std::uint64_t>(at, otherwise, 3, " is no number of steps (3 or more)");
  }
  double decibels(int at, double otherwise) const {
    return number<double>(at, otherwise, -1e9, " is no number of decibels");
  }

 private:
  template <class T>
  T number(int at, T otherwise, T least, const char* complaint) const {
    if (at >= argc_) return otherwise;
    const std::string_view text = argv_[at];
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || !(value >= least)) {
      std::fprintf(stderr, "'%s'%s\n", argv_[at], complaint);
      refuse();
    }
    return value;
  }
  [[noreturn]] void refuse() const {
    std::fprintf(stderr, "usage: %s\n", usage_);
    std::exit(2);
  }

  int argc_;
  char** argv_;
  const char* usage_;
};
