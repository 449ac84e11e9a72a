// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Text from outside: what may be printed of it, and what names of files are made of it.

#include <string>
#include <string_view>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/printable.hpp>

#include "catch.hpp"

namespace {

struct Row {
  std::string_view text;
  std::string_view shown;
};
using std::string_view_literals::operator""sv;

constexpr Row rows[] = {
    {"", ""},
    {"plain name-1.json", "plain name-1.json"},
    {"it's \\ \"quoted\"", "it's \\ \"quoted\""},
    {"\x1b[31mRED\x1b]0;owned\x07\nwarning: fake", "?[31mRED?]0;owned??warning: fake"},
    {"a\0b\rc\td\x7f"sv, "a?b?c?d?"},
    {"h\u00e9 \u4e2d\u6587 \U0001F600", "h\u00e9 \u4e2d\u6587 \U0001F600"},
    {"csi \xc2\x9b nel \xc2\x85", "csi ? nel ?"},
    {"bidi \u202e\u2066\u200f\u061c.", "bidi ????."},
    {"lines \u2028\u2029 hidden \u200b\u2060\ufeff\U000e0041", "lines ?? hidden ????"},
    {"soft \u00ad joined \u034f fillers \u115f\u3164\uffa0 vowel \u180e",
     "soft ? joined ? fillers ??? vowel ?"},
    {"not utf-8 \xff\xfe\xc3 \xa9", "not utf-8 ??? ?"},
    {"overlong \xc0\xaf\xe0\x80\xaf", "overlong ?????"},
    {"surrogate \xed\xa0\x80 beyond \xf4\x90\x80\x80", "surrogate ? beyond ?"},
    {"cut off \xe4\xb8", "cut off ??"},
    {"no character \xef\xbf\xbf\xef\xbf\xbe", "no character ??"},
};

}  // namespace

TEST_CASE("text from outside is printed as letters, and nothing else", "[core]") {
  for (const Row& row : rows) {
    INFO(row.shown);
    CHECK(pvm::printable(row.text) == row.shown);
    CHECK(pvm::quote(row.text) == "'" + std::string(row.shown) + "'");
    CHECK(pvm::Error(pvm::Fault::source, std::string(row.text)).what() == row.shown);
  }
}

TEST_CASE("a message is one line, whatever is in it", "[core]") {
  std::string said;
  pvm::set_log_sink([&](pvm::Severity, const std::string& message) { said = message; });
  for (const Row& row : rows) {
    pvm::log(pvm::Severity::warning, std::string(row.text));
    CHECK(said == row.shown);
  }
  pvm::set_log_sink({});
}

TEST_CASE("long text is shortened in its middle, between two characters", "[core]") {
  const std::string long_name = "start" + std::string(10'000, 'n') + "end.zip";
  const std::string quoted = pvm::quote(long_name);
  CHECK(quoted.size() == 2 + 120 + 3);
  CHECK(quoted.starts_with("'startnnn"));
  CHECK(quoted.find("nnn...nnn") != std::string::npos);
  CHECK(quoted.ends_with("nnend.zip'"));
  CHECK(pvm::quote(std::string(120, 'n')) == "'" + std::string(120, 'n') + "'");
  for (std::size_t shift = 0; shift < 4; ++shift) {
    std::string wide(shift, 'x');
    for (int i = 0; i < 1'000; ++i) wide += "\u4e2d";
    const std::string shown = pvm::quote(wide);
    CHECK(shown.size() <= 2 + 120 + 3);
    CHECK(shown.find('?') == std::string::npos);
  }
  CHECK(pvm::quote(std::string(10'000, '\n')).find('\n') == std::string::npos);
}

TEST_CASE("a name from outside names files of one directory only", "[core]") {
  constexpr Row names[] = {
      {"small", "small"},
      {"my net (2)", "my net (2)"},
      {"h\u00e9", "h\u00e9"},
      {"", "unnamed"},
      {".", "_"},
      {"..", "_."},
      {".hidden", "_hidden"},
      {"x/../../escaped/here", "x_.._.._escaped_here"},
      {"/etc/passwd", "_etc_passwd"},
      {"..\\up", "_._up"},
      {"a\0b\nc"sv, "a_b_c"},
      {"\x1b[31mRED", "_[31mRED"},
      {"\u202egnp", "_gnp"},
      {"\xff\xfe", "__"},
  };
  for (const Row& row : names) {
    INFO(row.shown);
    CHECK(pvm::file_name_part(row.text) == row.shown);
    CHECK(pvm::file_name_part(pvm::file_name_part(row.text)) == row.shown);
  }
  CHECK(pvm::file_name_part(std::string(10'000, 'n')) == std::string(100, 'n'));
  CHECK(pvm::file_name_part(std::string(99, 'n') + "\u00e9") == std::string(99, 'n'));
}
