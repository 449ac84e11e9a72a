// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The argument checks that every frame source makes.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <pvm/core/error.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0::io {

/// Throws Fault::usage unless `shape` has positive sides and 1 to 4 channels.
inline void check_shape(const FrameShape& shape) {
  if (shape.height <= 0 || shape.width <= 0 || shape.channels < 1 || shape.channels > 4) {
    throw Error(Fault::usage, "a frame cannot be " + std::to_string(shape.height) + " x " +
                                  std::to_string(shape.width) + " with " +
                                  std::to_string(shape.channels) +
                                  " channels; ask for positive sides and 1 to 4 channels");
  }
}

/// Throws Fault::usage unless `shape` is valid (`check_shape`) and `pixels` has `shape.size()`
/// bytes.
inline void check_request(const FrameShape& shape, std::span<const std::uint8_t> pixels) {
  check_shape(shape);
  if (pixels.size() != shape.size()) {
    throw Error(Fault::usage, "a frame of " + std::to_string(shape.size()) +
                                  " bytes was asked for in a buffer of " +
                                  std::to_string(pixels.size()) + "; make them equal");
  }
}

/// Throws Fault::source unless `position` exists in the source `name`, which has one sequence of
/// `length` frames (no value: the number is not known).
inline void check_position(const Position& position, std::optional<std::uint64_t> length,
                           const std::string& name) {
  if (position.sequence != 0) {
    throw Error(Fault::source, pvm::quote(name) +
                                   " is one sequence, but the position to continue at " +
                                   "is in sequence " + std::to_string(position.sequence) +
                                   "; continue with the files the run was started with");
  }
  if (length && position.frame >= *length) {
    throw Error(Fault::source, pvm::quote(name) + " has " + std::to_string(*length) +
                                   " frames, but the position to continue at is frame " +
                                   std::to_string(position.frame) +
                                   "; continue with the file the run was started with");
  }
}

}  // namespace pvm::inline v0::io
