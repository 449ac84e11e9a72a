// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Replaces the library's device/nccl_library.hpp on the emulated device: NCCL between the threads
/// of a process.

#if defined(PVM_NCCL)

#include "nccl.h"

namespace pvm::inline v0::detail {

struct NcclLibrary {
  decltype(&ncclGetUniqueId) get_unique_id = ncclGetUniqueId;
  decltype(&ncclCommInitRank) comm_init_rank = ncclCommInitRank;
  decltype(&ncclCommDestroy) comm_destroy = ncclCommDestroy;
  decltype(&ncclAllGather) all_gather = ncclAllGather;
  decltype(&ncclGetErrorString) error_string = ncclGetErrorString;

  static const NcclLibrary& get() {
    static const NcclLibrary library;
    return library;
  }
};

}  // namespace pvm::inline v0::detail

#endif
