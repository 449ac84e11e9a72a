// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The two sides of the L2 cache. On large GPUs (A100, H100, H200) the L2 cache has two halves,
/// each next to half of the SMs and half of the memory. An SM reaches memory of the other side by
/// the link between the halves, which delivers less than the memory does. So what only one SM reads
/// should lie on its side.
///
/// No interface says which address and which SM are on which side, so it is measured: an atomic
/// operation is done on the side that the address belongs to, and takes 1.6 times as long from the
/// other side (270 and 440 cycles or more on an H200). Sides alternate in chunks of 4 KB: of two
/// adjacent chunks that begin at a multiple of 8 KB, a pair, one is on each side. Where that is not
/// so, or where there is one side only, the measurement finds no clear difference. Then sides are
/// unknown, which costs nothing but speed.

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/launch.hpp>
#include <pvm/engine/cuda/instructions/all.cuh>

namespace pvm::inline v0::detail {

inline constexpr std::size_t pair_words = 2048;  ///< 32-bit words of a pair of chunks

/// Lines of each chunk that are compared, and the difference in cycles, summed over them, from
/// which on a pair's chunks are clearly on different sides.
inline constexpr int compared_lines = 4;
inline constexpr int clear_difference = 64 * compared_lines;

/// One thread's work: how many cycles longer than those on the second chunk of a pair atomic
/// operations on the first one take. They leave the memory as it is.
__device__ __forceinline__ int compare_chunks(std::uint32_t* pair, std::uint32_t* sink) {
  const auto least = [&](std::uint32_t* p) {
    int cycles = time_atomic(p, sink);  // this one may load the line from memory
#pragma unroll 1
    for (int i = 0; i < 3; ++i) cycles = min(cycles, time_atomic(p, sink));
    return cycles;
  };
  int difference = 0;
#pragma unroll 1
  for (int i = 0; i < compared_lines; ++i) {
    std::uint32_t* line = pair + i * (pair_words / 2 / compared_lines);
    difference += least(line) - least(line + pair_words / 2);
  }
  return difference;
}

/// Compares the chunks of pairs: all thread blocks those of the first `count` pairs, to
/// differences[thread block][count] (`Each`), or each thread block its portion of them, to
/// differences[count]. Writes the SM of each thread block. Launched with one thread a block.
template <bool Each>
__global__ void compare_pairs(std::uint32_t* memory, unsigned int count, int* differences,
                              unsigned int* sms) {
  auto* sink = dynamic_shared<std::uint32_t>();
  sms[blockIdx.x] = sm_number();
  if (Each) differences += blockIdx.x * count;
#pragma unroll 1
  for (unsigned int k = Each ? 0 : blockIdx.x; k < count; k += Each ? 1 : gridDim.x) {
    differences[k] = compare_chunks(memory + k * pair_words, sink);
  }
}

/// Which side each SM, and each chunk of an array, is on. Sides have the numbers 0 and 1.
class CacheSides {
 public:
  /// Measures the SMs of the current device, which has `multiprocessors` of them and lets a thread
  /// block have `shared_bytes` of shared memory. Throws Error if CUDA reports a failure.
  CacheSides(int multiprocessors, std::size_t shared_bytes, cudaStream_t stream)
      : blocks_(static_cast<unsigned>(multiprocessors)), stream_(stream) {
    // A thread block that takes all of an SM's shared memory has the SM for itself. While something
    // else runs on the GPU, two of them may still run on the same SM one after the other.
    for (int attempt = 0; attempt < 3 && !known(); ++attempt) measure_sms(shared_bytes);
  }

  [[nodiscard]] bool known() const noexcept { return !of_sm_.empty(); }
  /// The sides of SMs, by their number; empty if unknown.
  [[nodiscard]] const std::vector<std::uint8_t>& of_sms() const noexcept { return of_sm_; }
  /// How many SMs side 0 has.
  [[nodiscard]] std::size_t first_sms() const noexcept { return first_sms_; }

  /// The side of the first chunk of each pair in `memory`, which has `pairs` of them; the second
  /// chunk is on the other side. Empty if sides are unknown.
  [[nodiscard]] std::vector<std::uint8_t> of_pairs(std::uint32_t* memory, std::size_t pairs) const {
    std::vector<std::uint8_t> sides;
    if (!known() || reinterpret_cast<std::uintptr_t>(memory) % (pair_words * 4) != 0) return sides;
    const auto [differences, sms] = compare<false>(memory, pairs, pairs, 4);
    std::size_t clear = 0;
    for (std::size_t k = 0; k < pairs; ++k) {
      if (is_clear(differences[k])) ++clear;
      sides.push_back(first_side(differences[k], of_sm_[sms[k % blocks_]]));
    }
    if (clear * 100 < pairs * 99) sides.clear();
    return sides;
  }

 private:
  static bool is_clear(int difference) { return std::abs(difference) >= clear_difference; }
  /// The side of a pair's first chunk, as an SM of side `mine` has measured it.
  static std::uint8_t first_side(int difference, std::uint8_t mine) {
    return static_cast<std::uint8_t>(mine ^ (difference > 0 ? 1U : 0U));
  }

  /// Runs compare_pairs. Returns `results` differences, and the SM of each thread block.
  template <bool Each>
  [[nodiscard]] std::pair<std::vector<int>, std::vector<unsigned int>> compare(
      std::uint32_t* memory, std::size_t pairs, std::size_t results, std::size_t shared) const {
    const DeviceArray<int> differences(results);
    const DeviceArray<unsigned int> sms(blocks_);
    std::pair<std::vector<int>, std::vector<unsigned int>> out{std::vector<int>(results),
                                                               std::vector<unsigned int>(blocks_)};
    constexpr const char* what = "measuring the L2 cache";
    cuda_check(launch(compare_pairs<Each>, {dim3(blocks_), 1, shared, stream_}, memory,
                      static_cast<unsigned int>(pairs), differences.get(), sms.get()),
               what);
    const auto fetch = [&](auto& to, const auto& from) {
      cuda_check(cudaMemcpyAsync(to.data(), from.get(), to.size() * sizeof(to[0]),
                                 cudaMemcpyDeviceToHost, stream_),
                 what);
    };
    fetch(out.first, differences);
    fetch(out.second, sms);
    cuda_check(cudaStreamSynchronize(stream_), what);
    return out;
  }

  /// Sets of_sm_ if all SMs have been seen and all of them tell the sides of a few pairs apart. An
  /// SM is on side 0 if it agrees with the first one.
  void measure_sms(std::size_t shared) {
    constexpr std::size_t pairs = 32;
    const DeviceArray<std::uint32_t> memory(std::size_t{1} << 20);  // large arrays are aligned
    cuda_check(cudaMemsetAsync(memory.get(), 0, memory.size() * 4, stream_), "clearing memory");
    const auto [differences, sms] = compare<true>(memory.get(), pairs, blocks_ * pairs, shared);
    std::vector<std::uint8_t> of_sm(*std::max_element(sms.begin(), sms.end()) + 1, unseen);
    std::size_t first = 0;
    for (std::size_t b = 0; b < blocks_; ++b) {
      std::size_t same = 0, other = 0;
      for (std::size_t k = 0; k < pairs; ++k) {
        const int mine = differences[b * pairs + k], first_ones = differences[k];
        if (!is_clear(mine) || !is_clear(first_ones)) continue;
        ++((mine > 0) == (first_ones > 0) ? same : other);
      }
      if (std::max(same, other) * 10 < pairs * 9 || of_sm[sms[b]] != unseen) return;
      of_sm[sms[b]] = same > other ? 0 : 1;
      if (same > other) ++first;
    }
    if (first == blocks_ || std::count(of_sm.begin(), of_sm.end(), unseen) != 0) return;
    of_sm_ = std::move(of_sm);
    first_sms_ = first;
  }

  static constexpr std::uint8_t unseen = 2;
  unsigned int blocks_;
  cudaStream_t stream_;
  std::vector<std::uint8_t> of_sm_;
  std::size_t first_sms_ = 0;
};

}  // namespace pvm::inline v0::detail
