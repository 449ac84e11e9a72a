// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The order people expect of numbered files: frame2 before frame10.

#include <cstddef>
#include <string_view>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::io {

namespace detail {

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

/// Removes the digits at the front of `text` and returns them without leading zeros.
constexpr std::string_view take_number(std::string_view& text) noexcept {
  std::size_t end = 0;
  while (end < text.size() && is_digit(text[end])) ++end;
  std::string_view number = text.substr(0, end);
  text.remove_prefix(end);
  while (!number.empty() && number.front() == '0') number.remove_prefix(1);
  return number;
}

}  // namespace detail

/// Whether `a` comes before `b`: runs of digits (of any length) compare by their value, everything
/// else byte by byte. Names that differ only in leading zeros compare by their bytes, so that the
/// order is total and the same on every system.
constexpr bool natural_less(std::string_view a, std::string_view b) noexcept {
  std::string_view left = a;
  std::string_view right = b;
  while (!left.empty() && !right.empty()) {
    if (detail::is_digit(left.front()) && detail::is_digit(right.front())) {
      const std::string_view m = detail::take_number(left);
      const std::string_view n = detail::take_number(right);
      if (m.size() != n.size()) return m.size() < n.size();
      if (m != n) return m < n;
    } else {
      const auto c = static_cast<unsigned char>(left.front());
      const auto d = static_cast<unsigned char>(right.front());
      if (c != d) return c < d;
      left.remove_prefix(1);
      right.remove_prefix(1);
    }
  }
  if (left.empty() != right.empty()) return left.empty();
  return a < b;
}

}  // namespace pvm::inline v0::io
