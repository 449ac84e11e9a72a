// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// An all-gather between the GPUs of several ranks, on one host or on many, by NCCL. Only where
/// PVM_NCCL is defined: where nccl.h can be included.

#if defined(PVM_NCCL)

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/device/nccl_library.hpp>
#include <pvm/engine/other_ranks.hpp>

namespace pvm::inline v0::detail {

/// Throws Error (device) unless `result` is ncclSuccess.
inline void nccl_check(ncclResult_t result, const char* doing) {
  if (result == ncclSuccess) return;
  throw Error(Fault::device, std::string("NCCL, ") + doing + ": " +
                                 NcclLibrary::get().error_string(result) +
                                 "; NCCL_DEBUG=WARN in the environment makes it say more");
}

/// All ranks construct one, each with a GPU of its own current. Throws Error (device) on all of
/// them.
class NcclGather {
 public:
  explicit NcclGather(OtherRanks& ranks) : rank_(static_cast<std::size_t>(ranks.rank())) {
    ncclUniqueId id{};
    on_all_ranks(ranks, [&] {
      const NcclLibrary& nccl = NcclLibrary::get();
      if (ranks.rank() == 0) nccl_check(nccl.get_unique_id(&id), "connecting GPUs");
    });
    ranks.broadcast(std::as_writable_bytes(std::span(&id, 1)));
    on_all_ranks(ranks, [&] {
      nccl_check(NcclLibrary::get().comm_init_rank(&all_, ranks.size(), id, ranks.rank()),
                 "connecting GPUs");
    });
  }
  ~NcclGather() {
    if (all_ != nullptr) (void)NcclLibrary::get().comm_destroy(all_);
  }
  NcclGather(const NcclGather&) = delete;
  NcclGather& operator=(const NcclGather&) = delete;

  /// Gathers `words`, [rank][each] in device memory, of which each rank has its own part before and
  /// all parts behind this on `stream`.
  void launch(std::uint32_t* words, std::size_t each, cudaStream_t stream) const {
    nccl_check(
        NcclLibrary::get().all_gather(words + rank_ * each, words, each, ncclUint32, all_, stream),
        "exchanging records");
  }

 private:
  std::size_t rank_;
  ncclComm_t all_ = nullptr;
};

}  // namespace pvm::inline v0::detail

#endif
