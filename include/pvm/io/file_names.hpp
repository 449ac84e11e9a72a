// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Recognises files by their names: pictures, labels, videos, archives.

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::io {

namespace detail {

/// What separates the components of a path. Some programs on Windows write backslashes into zips.
inline constexpr std::string_view separators = "/\\";

/// The extension of a file name in lower case, without the dot; empty if there is none.
inline std::string extension(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || name.find_first_of(separators, dot) != name.npos) return {};
  std::string lower(name.substr(dot + 1));
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return lower;
}

inline bool has_extension(std::string_view name, auto const& extensions) {
  return std::find(extensions.begin(), extensions.end(), extension(name)) != extensions.end();
}

/// A name for a file that FFmpeg does not misread: it takes the part before a colon for a protocol,
/// except in absolute paths, so the absolute path is returned. A name that is not a file (a
/// stream's address) is returned unchanged.
inline std::string path_for_ffmpeg(const std::string& name) {
  std::error_code fault;
  if (!std::filesystem::exists(name, fault)) return name;
  const std::string absolute = std::filesystem::absolute(name, fault).string();
  return fault ? name : absolute;
}

}  // namespace detail

/// Whether `path` is a file that systems leave behind: anything in `__MACOSX`, and anything whose
/// name, or that of a directory in the path, begins with a dot. The components "." and ".." do not
/// count.
inline bool is_litter(std::string_view path) {
  for (;;) {
    const std::size_t slash = path.find_first_of(detail::separators);
    const std::string_view name = path.substr(0, slash);
    if (name.starts_with('.') && name != "." && name != "..") return true;
    if (slash == std::string_view::npos) return false;
    if (name == "__MACOSX") return true;
    path.remove_prefix(slash + 1);
  }
}

inline bool is_image_name(std::string_view path) {
  static constexpr std::array<std::string_view, 9> images = {"jpg",  "jpeg", "png", "bmp", "tif",
                                                             "tiff", "webp", "ppm", "pgm"};
  return !is_litter(path) && detail::has_extension(path, images);
}

inline bool is_label_name(std::string_view path) {
  return !is_litter(path) && detail::extension(path) == "txt";
}

inline bool is_zip_name(std::string_view path) {
  return !is_litter(path) && detail::extension(path) == "zip";
}

inline bool is_video_name(std::string_view path) {
  static constexpr std::array<std::string_view, 12> videos = {
      "avi", "mp4", "m4v", "mov", "mkv", "webm", "mpg", "mpeg", "wmv", "flv", "ts", "ogv"};
  return !is_litter(path) && detail::has_extension(path, videos);
}

}  // namespace pvm::inline v0::io
