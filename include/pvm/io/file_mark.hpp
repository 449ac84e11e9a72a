// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A short mark of a file's content, by which a resumed run notices that another file has taken the
/// name of the one that it read.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <ios>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/io/file_names.hpp>

namespace pvm::inline v0::io {

namespace detail {

/// 64-bit FNV-1a.
class MarkHash {
 public:
  void add(std::string_view bytes) noexcept {
    for (const char byte : bytes) {
      hash_ = (hash_ ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
    }
  }
  /// The first and last MB of a file of `size` bytes. False if it cannot be read.
  bool add_ends(const std::filesystem::path& path, std::uint64_t size) {
    std::ifstream file(path, std::ios::binary);
    constexpr std::uint64_t most = 1'000'000;
    const std::uint64_t part = std::min(size, most);
    std::string bytes(static_cast<std::size_t>(part), '\0');
    for (const std::uint64_t start : {std::uint64_t{0}, size - part}) {
      file.seekg(static_cast<std::streamoff>(start));
      if (!file.read(bytes.data(), static_cast<std::streamsize>(part))) return false;
      add(bytes);
    }
    return true;
  }
  [[nodiscard]] std::string text(std::uint64_t size) const {
    char text[48];
    std::snprintf(text, sizeof text, "%llu bytes, %016llx", static_cast<unsigned long long>(size),
                  static_cast<unsigned long long>(hash_));
    return text;
  }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325U;
};

inline std::string directory_mark(const std::filesystem::path& path) {
  std::vector<std::string> names;
  std::error_code fault;
  for (std::filesystem::directory_iterator entry(path, fault), end; !fault && entry != end;
       entry.increment(fault)) {
    std::string name = entry->path().filename().string();
    if (is_image_name(name) || is_label_name(name)) names.push_back(std::move(name));
  }
  if (fault || names.empty()) return {};
  std::sort(names.begin(), names.end());
  MarkHash hash;
  std::uint64_t all = 0;
  for (const std::string& name : names) {
    const std::uint64_t size = std::filesystem::file_size(path / name, fault);
    if (fault) continue;  // a directory that has a picture's name
    all += size;
    hash.add(name + '\0' + std::to_string(size) + '\0');
    const bool first_or_last = &name == &names.front() || &name == &names.back();
    if (first_or_last) static_cast<void>(hash.add_ends(path / name, size));
  }
  return hash.text(all);
}

}  // namespace detail

/// The file's size and a hash of its first and last MB, as text. Of a directory: the size of its
/// pictures and labels together, and a hash of their names and sizes and of the first and last one.
/// Empty if `path` is neither or cannot be read.
inline std::string file_mark(const std::filesystem::path& path) {
  std::error_code fault;
  if (std::filesystem::is_directory(path, fault)) return detail::directory_mark(path);
  if (!std::filesystem::is_regular_file(path, fault)) return {};
  const std::uint64_t size = std::filesystem::file_size(path, fault);
  detail::MarkHash hash;
  return !fault && hash.add_ends(path, size) ? hash.text(size) : std::string();
}

/// The marks of several files as one text, as checkpoints have them.
inline std::string join_marks(const std::vector<std::string>& marks) {
  std::string all;
  for (std::size_t i = 0; i < marks.size(); ++i) all += (i > 0 ? "; " : "") + marks[i];
  return all;
}

/// The numbers of the marks in which two such texts differ. A mark that one of them lacks, or has
/// as an empty text, is not known and does not differ.
inline std::vector<std::size_t> differing_marks(std::string_view before, std::string_view now) {
  std::vector<std::size_t> differing;
  const auto take = [](std::string_view& text) {
    const std::size_t end = std::min(text.find("; "), text.size());
    const std::string_view mark = text.substr(0, end);
    text.remove_prefix(std::min(end + 2, text.size()));
    return mark;
  };
  for (std::size_t i = 0; !before.empty() && !now.empty(); ++i) {
    const std::string_view was = take(before), is = take(now);
    if (!was.empty() && !is.empty() && was != is) differing.push_back(i);
  }
  return differing;
}

}  // namespace pvm::inline v0::io
