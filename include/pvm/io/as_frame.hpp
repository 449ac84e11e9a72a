// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Pictures of other libraries as frames. Says only how a type is made known; pvm/io/mat.hpp does
/// it for cv::Mat.

#include <concepts>
#include <cstdint>
#include <span>

#include <pvm/io/source.hpp>

namespace pvm::inline v0::io {

/// Specialise it for a type of pictures: `write` converts and resizes a picture to a frame of
/// `shape` in `pixels` (`shape.size()` bytes), and returns the size that the picture had. It throws
/// Error (Fault::usage) for a picture that no frame can be made of.
template <class Picture>
struct AsFrame;

template <class Picture>
concept IsPicture = requires(const Picture& picture, const FrameShape& shape,
                             std::span<std::uint8_t> pixels) {
  { AsFrame<Picture>::write(picture, shape, pixels) } -> std::same_as<PictureSize>;
};

}  // namespace pvm::inline v0::io
