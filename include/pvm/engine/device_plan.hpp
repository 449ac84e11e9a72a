// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// GPUs by name, and what an engine would take on one, whether it is there or not.

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>

#include <pvm/core/error.hpp>
#include <pvm/core/printable.hpp>
#include <pvm/engine/memory_part.hpp>

namespace pvm::inline v0 {

/// A kind of GPU, by its data sheet.
struct GpuModel {
  std::string_view name;
  std::size_t memory = 0;          ///< bytes
  int multiprocessors = 0;         ///< SMs
  double bandwidth = 0;            ///< of the memory, bytes a second
  std::size_t cache = 0;           ///< bytes of the L2 cache
  std::size_t shared = 227 << 10;  ///< most bytes of shared memory of a thread block
  int capability = 90;             ///< compute capability, times ten
};

/// The GPUs that are known by name. (Those of compute capability 10 and 12 run the library, too,
/// but nobody has measured it there.)
inline constexpr std::array gpu_models = {
    GpuModel{"H200", std::size_t{141} * 1'000'000'000, 132, 4.8e12, 50 << 20},
    GpuModel{"GH200", std::size_t{96} * 1'000'000'000, 132, 4.0e12, 50 << 20},
    GpuModel{"H100", std::size_t{80} << 30, 132, 3.35e12, 50 << 20},
    GpuModel{"H100 PCIe", std::size_t{80} << 30, 114, 2.0e12, 50 << 20},
    GpuModel{"A100", std::size_t{40} << 30, 108, 1.555e12, 40 << 20, 163 << 10, 80},
    GpuModel{"A100 80GB", std::size_t{80} << 30, 108, 2.0e12, 40 << 20, 163 << 10, 80},
    GpuModel{"L40S", std::size_t{48} << 30, 142, 0.864e12, 96 << 20, 99 << 10, 89},
    GpuModel{"L4", std::size_t{24} << 30, 58, 0.3e12, 48 << 20, 99 << 10, 89},
    GpuModel{"A10", std::size_t{24} << 30, 72, 0.6e12, 6 << 20, 99 << 10, 86},
    GpuModel{"RTX 4090", std::size_t{24} << 30, 128, 1.008e12, 72 << 20, 99 << 10, 89},
    GpuModel{"RTX 3090", std::size_t{24} << 30, 82, 0.936e12, 6 << 20, 99 << 10, 86}};

/// The GPU of that name, in letters of any case and with or without spaces. Throws Error
/// (Fault::usage) if it is none of `gpu_models`; the sentence lists them.
inline const GpuModel& gpu_model(std::string_view name) {
  const auto plain = [](std::string_view text) {
    std::string letters;
    for (const char c : text) {
      if (std::isalnum(static_cast<unsigned char>(c)) == 0) continue;
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return letters;
  };
  const auto found = std::find_if(gpu_models.begin(), gpu_models.end(), [&](const GpuModel& gpu) {
    return plain(gpu.name) == plain(name);
  });
  if (found != gpu_models.end()) return *found;
  std::string all;
  for (const GpuModel& gpu : gpu_models) all += (all.empty() ? "" : ", ") + std::string(gpu.name);
  throw Error(Fault::usage,
              "the GPU " + quote(std::string(name)) + " is unknown; known are " + all);
}

/// Bytes of a piece of device memory in which an engine stores decoded frames: as many whole frames
/// as fit, one at least.
inline constexpr std::size_t frame_piece_bytes = std::size_t{32} << 20;

/// Bytes of device memory for `frames` frames, of at most `budget` bytes together.
constexpr std::size_t frame_store_bytes(std::size_t frames, std::size_t frame_bytes,
                                        std::size_t budget) {
  const std::size_t piece = std::max<std::size_t>(1, frame_piece_bytes / frame_bytes);
  const std::size_t pieces = (frames + piece - 1) / piece;
  return std::min(pieces * piece, budget / frame_bytes) * frame_bytes;
}

/// What an engine on a GPU takes.
struct DevicePlan {
  std::string engine;    ///< as AnyEngine::description has it
  MemoryParts parts{};   ///< of the GPU's memory
  std::size_t free = 0;  ///< bytes of it that are free; of a GPU that is not there: most of it
};

}  // namespace pvm::inline v0
