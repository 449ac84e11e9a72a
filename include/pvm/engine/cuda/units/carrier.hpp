// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Records of ranks whose GPUs cannot write into each other's memory: each launch has one step, and
/// behind it the records of all units of the step are gathered. A launch reads no record of its own
/// last step: what it needs of step t - 1 is in its ring when it begins step t.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/launch.hpp>
#include <pvm/engine/cuda/device/nccl.hpp>
#include <pvm/engine/cuda/run/cursor.hpp>
#include <pvm/engine/cuda/units/sizes.hpp>
#include <pvm/engine/other_ranks.hpp>

namespace pvm::inline v0::detail::units {

/// A shard's ring of records, and whose it makes.
struct OwnRecords {
  const Cursor* cursor = nullptr;  ///< where the run stands
  std::uint32_t* past = nullptr;   ///< [ring][row_words]
  unsigned int row_words = 0;
  unsigned int record = 0;           ///< words of a record, a multiple of four
  std::vector<std::uint32_t> units;  ///< numbers of the shard's units
};

/// Brings the records of the step that was launched last on `stream` to all ranks.
class RecordCarrier {
 public:
  RecordCarrier() = default;
  virtual ~RecordCarrier() = default;
  RecordCarrier(const RecordCarrier&) = delete;
  RecordCarrier& operator=(const RecordCarrier&) = delete;
  virtual void carry(cudaStream_t stream) const = 0;
};

#if defined(PVM_NCCL)

/// Which records of the last step lie where in `packed`, an array of records: entry i is that of
/// unit units[i] - 1; 0: of none.
struct PackedRecords {
  const Cursor* cursor;
  std::uint32_t* past;
  const std::uint32_t* units;
  std::uint32_t* packed;
  unsigned int row_words, record;
};
/// A thread block a record, with a thread for every four words of it.
template <bool pack>
__global__ void copy_records(const PackedRecords a) {
  const std::uint32_t unit = a.units[blockIdx.x];
  if (unit == 0) return;
  const unsigned long long row = (a.cursor->step + ring - 1) % ring;
  auto* const in_ring = reinterpret_cast<uint4*>(a.past + row * a.row_words +
                                                 static_cast<std::size_t>(unit - 1) * a.record);
  auto* const in_pack =
      reinterpret_cast<uint4*>(a.packed + static_cast<std::size_t>(blockIdx.x) * a.record);
  if (pack) {
    in_pack[threadIdx.x] = __ldcg(in_ring + threadIdx.x);
  } else {
    in_ring[threadIdx.x] = in_pack[threadIdx.x];
  }
}

class NcclCarrier final : public RecordCarrier {
 public:
  /// All ranks construct one. Throws Error (device) on all of them.
  NcclCarrier(OtherRanks& ranks, const OwnRecords& own)
      : gather_(ranks), rank_(static_cast<std::size_t>(ranks.rank())) {
    for (const std::size_t theirs : of_all_ranks(ranks, own.units.size())) {
      most_ = std::max(most_, theirs);
    }
    std::vector<std::uint32_t> units(most_ * static_cast<std::size_t>(ranks.size()));
    for (std::size_t i = 0; i < own.units.size(); ++i) {
      units[rank_ * most_ + i] = own.units[i] + 1;
    }
    merge_ranks(ranks, std::span(units));
    ranks.broadcast(std::as_writable_bytes(std::span(units)));
    on_all_ranks(ranks, [&] {
      units_ = DeviceArray<std::uint32_t>(units.size());
      packed_ = DeviceArray<std::uint32_t>(units.size() * own.record);
      cuda_check(cudaMemcpy(units_.get(), units.data(), units.size() * sizeof(std::uint32_t),
                            cudaMemcpyHostToDevice),
                 "preparing the exchange of records");
      cuda_check(cudaMemset(packed_.get(), 0, packed_.size() * sizeof(std::uint32_t)),
                 "preparing the exchange of records");
    });
    all_ = {own.cursor, own.past, units_.get(), packed_.get(), own.row_words, own.record};
  }

  void carry(cudaStream_t stream) const override {
    PackedRecords own = all_;
    own.units += rank_ * most_;
    own.packed += rank_ * most_ * all_.record;
    copy<true>(own, most_, stream);
    gather_.launch(packed_.get(), most_ * all_.record, stream);
    copy<false>(all_, units_.size(), stream);
  }

 private:
  template <bool pack>
  static void copy(const PackedRecords& what, std::size_t records, cudaStream_t stream) {
    const LaunchShape shape{dim3(static_cast<unsigned>(records)), static_cast<int>(what.record / 4),
                            0, stream};
    cuda_check(launch(copy_records<pack>, shape, what), "exchanging records");
  }

  NcclGather gather_;
  std::size_t rank_, most_ = 0;  // most units of a rank
  DeviceArray<std::uint32_t> units_, packed_;
  PackedRecords all_{};
};

#endif

/// What carries records where `why` says why GPUs cannot do so by themselves. Throws Error (device)
/// on all ranks if there is nothing.
inline std::unique_ptr<RecordCarrier> make_carrier(OtherRanks& ranks, const OwnRecords& own,
                                                   const std::string& why) {
#if defined(PVM_NCCL)
  static_cast<void>(why);
  return std::make_unique<NcclCarrier>(ranks, own);
#else
  static_cast<void>(ranks);
  static_cast<void>(own);
  throw Error(Fault::device,
              why +
                  "; or build this program with NCCL (PVM_NCCL=ON), which then carries what GPUs "
                  "exchange");
#endif
}

}  // namespace pvm::inline v0::detail::units
