// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A short mark of a file's content, by which a resumed run notices that another file has taken the
/// name of the one that it read.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::io {

/// The file's size and a hash (64-bit FNV-1a) of its first and last MB, as text. Empty if `path` is
/// not a file that can be read.
inline std::string file_mark(const std::filesystem::path& path) {
  std::error_code fault;
  if (!std::filesystem::is_regular_file(path, fault)) return {};
  const std::uint64_t size = std::filesystem::file_size(path, fault);
  std::ifstream file(path, std::ios::binary);
  if (fault || !file) return {};
  constexpr std::uint64_t most = 1'000'000;
  const std::uint64_t part = std::min(size, most);
  std::vector<char> bytes(static_cast<std::size_t>(part));
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const std::uint64_t start : {std::uint64_t{0}, size - part}) {
    file.seekg(static_cast<std::streamoff>(start));
    if (!file.read(bytes.data(), static_cast<std::streamsize>(part))) return {};
    for (const char byte : bytes) {
      hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
    }
  }
  char text[48];
  std::snprintf(text, sizeof text, "%llu bytes, %016llx", static_cast<unsigned long long>(size),
                static_cast<unsigned long long>(hash));
  return text;
}

}  // namespace pvm::inline v0::io
