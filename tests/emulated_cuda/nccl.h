// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The part of NCCL that pvm uses, between the threads of a process.

#include <cuda_runtime.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

enum ncclResult_t { ncclSuccess = 0, ncclInvalidArgument = 4 };
enum ncclDataType_t { ncclUint32 = 3 };
struct ncclUniqueId {
  char internal[128];
};
inline const char* ncclGetErrorString(ncclResult_t) { return "refused by the emulated NCCL"; }

namespace emulated_cuda {

/// Those who gather: each brings the address of its array, copies the parts of the others, and
/// leaves when all have done so.
class Gatherers {
 public:
  explicit Gatherers(int size) : arrays_(static_cast<std::size_t>(size)) {}

  void gather(std::size_t rank, unsigned char* all, std::size_t each) {
    arrays_[rank] = all;
    meet();
    for (std::size_t r = 0; r < arrays_.size(); ++r) {
      if (r != rank) std::memcpy(all + r * each, arrays_[r] + r * each, each);
    }
    meet();
  }
  void meet() {
    std::unique_lock lock(mutex_);
    const unsigned round = round_;
    if (++here_ == arrays_.size()) {
      here_ = 0;
      ++round_;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&] { return round_ != round; });
    }
  }

  static std::shared_ptr<Gatherers> of(std::uint64_t id, int size) {
    static std::mutex mutex;
    static std::map<std::uint64_t, std::weak_ptr<Gatherers>> all;
    const std::lock_guard lock(mutex);
    auto found = all[id].lock();
    if (found == nullptr) all[id] = found = std::make_shared<Gatherers>(size);
    return found;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t here_ = 0;
  unsigned round_ = 0;
  std::vector<unsigned char*> arrays_;
};

}  // namespace emulated_cuda

struct EmulatedComm {
  std::shared_ptr<emulated_cuda::Gatherers> all;
  std::size_t rank;
};
using ncclComm_t = EmulatedComm*;

inline ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<std::uint64_t> number = 0;
  const std::uint64_t next = ++number;
  std::memcpy(id->internal, &next, sizeof next);
  return ncclSuccess;
}
inline ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof number);
  *comm =
      new EmulatedComm{emulated_cuda::Gatherers::of(number, size), static_cast<std::size_t>(rank)};
  (*comm)->all->meet();
  return ncclSuccess;
}
inline ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
/// In place only.
inline ncclResult_t ncclAllGather(const void* own, void* all, std::size_t count, ncclDataType_t,
                                  ncclComm_t comm, cudaStream_t stream) {
  const std::size_t each = 4 * count;
  auto* const bytes = static_cast<unsigned char*>(all);
  if (own != bytes + comm->rank * each) return ncclInvalidArgument;
  emulated_cuda::run_or_record(stream, [=] { comm->all->gather(comm->rank, bytes, each); });
  return ncclSuccess;
}
