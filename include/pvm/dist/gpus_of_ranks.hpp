// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which rank computes on which GPU.

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/host_id.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/choose.hpp>
#include <pvm/engine/gpu_info.hpp>
#include <pvm/engine/other_ranks.hpp>
#include <pvm/model/network.hpp>

namespace pvm::inline v0::dist {

/// The GPU engines of a program in the precision of that name; null if it has none.
using GpusOf = const pvm::detail::GpuEngines* (*)(std::string_view precision);

namespace detail {

/// Those that the program is compiled with.
template <class Backend = DefaultBackend<RuntimeNetwork>>
const pvm::detail::GpuEngines* gpus_of_program(std::string_view precision) {
  using pvm::detail::gpu_engines;
  if (precision == bf16::name) return gpu_engines<bf16, dynamic, RuntimeNetwork, Backend>();
  if (precision == fp16::name) return gpu_engines<fp16, dynamic, RuntimeNetwork, Backend>();
  if (precision == tf32::name) return gpu_engines<tf32, dynamic, RuntimeNetwork, Backend>();
  return gpu_engines<fp32, dynamic, RuntimeNetwork, Backend>();
}

/// What a rank tells the others before it takes a GPU.
struct RankGpu {
  std::array<char, 64> host{};
  std::array<char, 128> name{};  ///< of the GPU
  int multiprocessors = 0;
};
template <std::size_t n>
void put_text(std::array<char, n>& to, const std::string& text) {
  std::copy_n(text.data(), std::min(text.size(), n - 1), to.data());
}

/// The number of this rank's GPU, if `before` ranks of its host have lower numbers and `together`
/// ranks are on it: the only one that is named, or the one of its place among those that are named
/// or, if none is, among all. Throws Error (usage) if there are too few.
inline int number_of_gpu(const std::vector<int>& named, std::size_t visible, std::size_t before,
                         std::size_t together) {
  if (named.size() == 1) return named.front();
  const std::size_t there = named.empty() ? visible : named.size();
  if (together > there) {
    throw Error(Fault::usage, "there are " + std::to_string(together) + " ranks on a host and " +
                                  std::to_string(there) +
                                  " GPUs that each of them sees (CUDA_VISIBLE_DEVICES); start "
                                  "fewer, or name one GPU for all of them, where they take turns");
  }
  return named.empty() ? static_cast<int>(before) : named[before];
}

}  // namespace detail

/// Gives this rank its GPU, of those of its host that `named` has, or of all: all ranks call it.
/// Throws Error on all ranks if one of them has none: device, usage.
inline void take_gpu(OtherRanks& ranks, const std::vector<int>& named,
                     const pvm::detail::GpuEngines* gpu) {
  using pvm::detail::of_all_ranks, pvm::detail::on_all_ranks;
  detail::RankGpu own;
  detail::put_text(own.host, host_id());
  std::size_t before = 0, together = 0;
  const std::vector<detail::RankGpu> hosts = of_all_ranks(ranks, own);
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    if (hosts[r].host != own.host) continue;
    if (r < static_cast<std::size_t>(ranks.rank())) ++before;
    ++together;
  }
  on_all_ranks(ranks, [&] {
    std::string why = pvm::detail::built_without_cuda;
    const std::vector<GpuInfo> all = gpu != nullptr ? gpu->list(&why) : std::vector<GpuInfo>();
    if (all.empty()) throw Error(Fault::device, why);
    const int number = detail::number_of_gpu(named, all.size(), before, together);
    gpu->choose(number);
    if (!gpu->available(&why)) throw Error(Fault::device, "no GPU can be used: " + why);
    detail::put_text(own.name, all[static_cast<std::size_t>(number)].name);
    own.multiprocessors = all[static_cast<std::size_t>(number)].multiprocessors;
  });
  const std::vector<detail::RankGpu> gpus = of_all_ranks(ranks, own);
  for (std::size_t r = 1; r < gpus.size(); ++r) {
    const detail::RankGpu &first = gpus.front(), &other = gpus[r];
    if (other.name == first.name && other.multiprocessors == first.multiprocessors) continue;
    throw Error(Fault::device, "rank " + std::to_string(r) + " has another GPU (" +
                                   other.name.data() + ") than rank 0 (" + first.name.data() +
                                   "); take GPUs of one kind");
  }
}

}  // namespace pvm::inline v0::dist
