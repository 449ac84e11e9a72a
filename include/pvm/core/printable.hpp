// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Makes text from outside (a name in a file, a value, the name of a file) safe to print and to use
/// in a name: whatever a terminal or a log would not take for letters is replaced.

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include <pvm/core/config.hpp>

namespace pvm::inline v0 {

namespace detail {

/// The first character of a text: how many bytes it has, and whether it may be printed.
struct Utf8Character {
  std::size_t bytes = 1;
  bool printable = false;
};

/// Whether a code point may be printed: neither a control character, nor one that changes the
/// direction of text or is invisible, nor no character at all.
constexpr bool is_printable(char32_t c) noexcept {
  struct Range {
    char32_t first, last;
  };
  constexpr std::array<Range, 18> refused = {{{0x00, 0x1F},
                                              {0x7F, 0x9F},
                                              {0xAD, 0xAD},
                                              {0x034F, 0x034F},
                                              {0x061C, 0x061C},
                                              {0x115F, 0x1160},
                                              {0x17B4, 0x17B5},
                                              {0x180B, 0x180F},
                                              {0x200B, 0x200F},
                                              {0x2028, 0x202E},
                                              {0x2060, 0x206F},
                                              {0x3164, 0x3164},
                                              {0xD800, 0xDFFF},
                                              {0xFEFF, 0xFEFF},
                                              {0xFFA0, 0xFFA0},
                                              {0xFFF0, 0xFFFB},
                                              {0x1D173, 0x1D17A},
                                              {0xE0000, 0xE0FFF}}};
  for (const Range& range : refused) {
    if (c >= range.first && c <= range.last) return false;
  }
  return (c & 0xFFFE) != 0xFFFE && c <= 0x10FFFF;
}

/// Reads the first character of `text`, which is not empty. A byte that begins no valid UTF-8
/// sequence counts as one character that cannot be printed.
constexpr Utf8Character first_character(std::string_view text) noexcept {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, is_printable(lead)};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || bytes > text.size()) return {};
  char32_t c = lead & (0x7FU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return {};
    c = c << 6U | (byte(i) & 0x3FU);
  }
  constexpr std::array<char32_t, 5> least = {0, 0, 0x80, 0x800, 0x10000};
  if (c < least[bytes]) return {};  // overlong
  return {bytes, is_printable(c)};
}

}  // namespace detail

/// `text` with `mark` in place of each character that must not be printed: control characters
/// (line ends and terminal escapes among them), characters that change the direction of text or are
/// invisible, and bytes that are not valid UTF-8.
inline std::string printable(std::string_view text, char mark = '?') {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const detail::Utf8Character c = detail::first_character(text);
    if (c.printable) {
      out += text.substr(0, c.bytes);
    } else {
      out += mark;
    }
    text.remove_prefix(c.bytes);
  }
  return out;
}

/// The first bytes of `text`, at most `most` of them, cut between two characters of UTF-8.
inline std::string_view beginning(std::string_view text, std::size_t most) noexcept {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0U) == 0x80) --most;
  return text.substr(0, most);
}

/// The last bytes of `text`, likewise.
inline std::string_view ending(std::string_view text, std::size_t most) noexcept {
  if (text.size() <= most) return text;
  std::size_t from = text.size() - most;
  while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0U) == 0x80) ++from;
  return text.substr(from);
}

/// Quotes a text from outside (a file name, a key, a value) for a message: it is made `printable`,
/// and if it has more than `most` bytes its middle is left out, so that a message stays one
/// readable line. Of a long path, its directory and its file name's end are kept.
inline std::string quote(std::string_view text, std::size_t most = 120) {
  if (text.size() <= most) return "'" + printable(text) + "'";
  const std::string start = printable(beginning(text, most - most / 3));
  return "'" + start + "..." + printable(ending(text, most / 3)) + "'";
}

/// A name from outside as a name for files in one directory: `printable`, without slashes and
/// backslashes (each such character becomes `_`), at most 100 bytes, and neither empty nor hidden.
inline std::string file_name_part(std::string_view name) {
  constexpr std::size_t most = 100;
  std::string out = printable(beginning(name, most), '_');
  for (char& c : out) {
    if (c == '/' || c == '\\') c = '_';
  }
  if (out.empty()) return "unnamed";
  if (out.front() == '.') out.front() = '_';
  return out;
}

}  // namespace pvm::inline v0
