// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// An all-gather between the GPUs of several ranks, on one host or on many, by NCCL. Only where
/// PVM_NCCL is defined: where nccl.h can be included, and NCCL is linked.

#if defined(PVM_NCCL)

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <nccl.h>

#include <pvm/core/error.hpp>
#include <pvm/engine/other_ranks.hpp>

namespace pvm::inline v0::detail {

/// Throws Error (device) unless `result` is ncclSuccess.
inline void nccl_check(ncclResult_t result, const char* doing) {
  if (result == ncclSuccess) return;
  throw Error(Fault::device, std::string("NCCL, ") + doing + ": " + ncclGetErrorString(result) +
                                 "; NCCL_DEBUG=WARN in the environment makes it say more");
}

/// All ranks construct one, each with a GPU of its own current. Throws Error (device) on all of
/// them.
class NcclGather {
 public:
  explicit NcclGather(OtherRanks& ranks) : rank_(static_cast<std::size_t>(ranks.rank())) {
    ncclUniqueId id{};
    on_all_ranks(ranks, [&] {
      if (ranks.rank() == 0) nccl_check(ncclGetUniqueId(&id), "connecting GPUs");
    });
    ranks.broadcast(std::as_writable_bytes(std::span(&id, 1)));
    on_all_ranks(ranks, [&] {
      nccl_check(ncclCommInitRank(&all_, ranks.size(), id, ranks.rank()), "connecting GPUs");
    });
  }
  ~NcclGather() {
    if (all_ != nullptr) (void)ncclCommDestroy(all_);
  }
  NcclGather(const NcclGather&) = delete;
  NcclGather& operator=(const NcclGather&) = delete;

  /// Gathers `words`, [rank][each] in device memory, of which each rank has its own part before and
  /// all parts behind this on `stream`.
  void launch(std::uint32_t* words, std::size_t each, cudaStream_t stream) const {
    nccl_check(ncclAllGather(words + rank_ * each, words, each, ncclUint32, all_, stream),
               "exchanging records");
  }

 private:
  std::size_t rank_;
  ncclComm_t all_ = nullptr;
};

}  // namespace pvm::inline v0::detail

#endif
