// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Reads how a video in an MP4 or QuickTime file is to be turned, from the file itself: what OpenCV
/// tells of it has changed its sign from version to version, and never tells of mirrors.

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <optional>
#include <string_view>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/io/file_bytes.hpp>
#include <pvm/io/orientation.hpp>

namespace pvm::inline v0::io {

namespace detail {

/// The boxes of an MP4 file, of which only what is asked for is read.
class Mp4Boxes {
 public:
  struct Box {
    std::array<char, 4> type{};
    std::uint64_t begin = 0, end = 0;  ///< its content, in bytes from the start of the file
    [[nodiscard]] bool is(std::string_view name) const {
      return std::string_view(type.data(), type.size()) == name;
    }
  };

  explicit Mp4Boxes(const std::filesystem::path& path) : file_(path, std::ios::binary) {
    file_.seekg(0, std::ios::end);
    const auto size = static_cast<std::int64_t>(file_.tellg());
    whole_.end = size > 0 ? static_cast<std::uint64_t>(size) : 0;
  }

  [[nodiscard]] const Box& whole() const noexcept { return whole_; }

  /// Calls `visit(box)` for each box directly inside of `outer`, until it returns false.
  template <class Visit>
  void each(const Box& outer, const Visit& visit) {
    for (std::uint64_t at = outer.begin; at + 8 <= outer.end;) {
      if (++visited_ > most_boxes) return;
      const auto head = read(at, 8);
      if (head.empty()) return;
      Box box{{}, at + 8, 0};
      for (std::size_t i = 0; i < 4; ++i) box.type[i] = static_cast<char>(head[4 + i]);
      std::uint64_t size = big_endian(head, 0, 4);
      if (size == 1) {  // its size has 64 bits
        const auto large = read(at + 8, 8);
        if (large.empty()) return;
        size = std::uint64_t{big_endian(large, 0, 4)} << 32 | big_endian(large, 4, 4);
        box.begin += 8;
      }
      if (size == 0) size = outer.end - at;  // up to the end
      if (size < box.begin - at || size > outer.end - at) return;
      box.end = at + size;
      if (!visit(box)) return;
      at = box.end;
    }
  }

  /// `count` bytes at offset `at` of the file; empty if they do not exist.
  std::vector<std::uint8_t> read(std::uint64_t at, std::size_t count) {
    std::vector<std::uint8_t> bytes(count);
    file_.clear();
    file_.seekg(static_cast<std::streamoff>(at));
    file_.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(count));
    if (!file_) bytes.clear();
    return bytes;
  }

 private:
  static constexpr std::size_t most_boxes = 100'000;  // a damaged file may seem to have billions
  std::ifstream file_;
  Box whole_;
  std::size_t visited_ = 0;
};

/// The part of a display matrix that turns: (x, y) becomes (a x + c y, b x + d y).
struct TurnMatrix {
  double a = 1, b = 0, c = 0, d = 1;

  /// First this one, then `next`.
  [[nodiscard]] TurnMatrix then(const TurnMatrix& next) const {
    return {a * next.a + b * next.c, a * next.b + b * next.d, c * next.a + d * next.c,
            c * next.b + d * next.d};
  }
};

/// The matrix in the header of a track or of the whole movie, whose content is `box`. `fixed`: the
/// bytes before the matrix if times have 32 bits; `wide`: if they have 64.
inline TurnMatrix mp4_matrix(Mp4Boxes& file, const Mp4Boxes::Box& box, std::size_t fixed,
                             std::size_t wide) {
  const auto version = file.read(box.begin, 1);
  if (version.empty()) return {};
  const std::size_t start = version[0] == 1 ? wide : fixed;
  if (box.end - box.begin < start + 36) return {};
  const auto bytes = file.read(box.begin + start, 36);
  if (bytes.empty()) return {};
  const auto entry = [&bytes](std::size_t index) {
    return static_cast<double>(static_cast<std::int32_t>(big_endian(bytes, 4 * index, 4))) / 65536;
  };
  return {entry(0), entry(1), entry(3), entry(4)};
}

/// The matrix of the track in `track`; nothing if it is not a track of pictures.
inline std::optional<TurnMatrix> mp4_track_matrix(Mp4Boxes& file, const Mp4Boxes::Box& track) {
  TurnMatrix matrix;
  bool pictures = false;
  file.each(track, [&](const Mp4Boxes::Box& box) {
    if (box.is("tkhd")) matrix = mp4_matrix(file, box, 40, 52);
    if (!box.is("mdia")) return true;
    file.each(box, [&](const Mp4Boxes::Box& inner) {
      if (!inner.is("hdlr")) return true;
      const auto kind = file.read(inner.begin + 8, 4);
      pictures = !kind.empty() && starts_with(kind, "vide");
      return false;
    });
    return true;
  });
  return pictures ? std::optional(matrix) : std::nullopt;
}

}  // namespace detail

/// The orientation of the first video track of an MP4 or QuickTime file. Nothing if the file is of
/// another kind or cannot be read. A matrix that turns by something else than quarters, which no
/// phone writes, counts as upright.
inline std::optional<Orientation> mp4_orientation(const std::filesystem::path& path) {
  using detail::Mp4Boxes;
  Mp4Boxes file(path);
  const auto magic = file.read(4, 4);
  if (magic.empty()) return std::nullopt;
  bool known = false;
  for (const char* type : {"ftyp", "moov", "mdat", "free", "skip", "wide", "pnot"}) {
    known = known || detail::starts_with(magic, type);
  }
  if (!known) return std::nullopt;
  detail::TurnMatrix movie;
  std::optional<detail::TurnMatrix> track;
  file.each(file.whole(), [&](const Mp4Boxes::Box& box) {
    if (!box.is("moov")) return true;
    file.each(box, [&](const Mp4Boxes::Box& inner) {
      if (inner.is("mvhd")) movie = detail::mp4_matrix(file, inner, 36, 48);
      if (inner.is("trak") && !track) track = detail::mp4_track_matrix(file, inner);
      return true;
    });
    return false;
  });
  if (!track) return std::nullopt;
  const detail::TurnMatrix both = track->then(movie);
  return orientation_of_matrix(both.a, both.b, both.c, both.d).value_or(Orientation{});
}

}  // namespace pvm::inline v0::io
