// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// NCCL, loaded when it is first needed: a program starts where it is not. Only where PVM_NCCL is
/// defined.

#if defined(PVM_NCCL)

#include <dlfcn.h>

#include <string>

#include <nccl.h>

#include <pvm/core/error.hpp>

namespace pvm::inline v0::detail {

/// The functions of NCCL that are used.
struct NcclLibrary {
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRank) comm_init_rank = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;

  /// Throws Error (device) if the library cannot be loaded.
  static const NcclLibrary& get() {
    static const NcclLibrary library;
    return library;
  }

 private:
  NcclLibrary() {
    void* library = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
#if defined(PVM_NCCL_LIBRARY)  // where it was when the program was built
    if (library == nullptr) library = ::dlopen(PVM_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
#endif
    if (library == nullptr) {
      throw Error(
          Fault::device,
          "NCCL, which carries what GPUs exchange that cannot reach each other's memory, is "
          "not here: install libnccl.so.2, or name its directory in LD_LIBRARY_PATH");
    }
    find(library, get_unique_id, "ncclGetUniqueId");
    find(library, comm_init_rank, "ncclCommInitRank");
    find(library, comm_destroy, "ncclCommDestroy");
    find(library, all_gather, "ncclAllGather");
    find(library, error_string, "ncclGetErrorString");
  }
  template <class Function>
  static void find(void* library, Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    if (function == nullptr) {
      throw Error(Fault::device, std::string("the NCCL that is installed has no ") + name +
                                     "; install a newer one");
    }
  }
};

}  // namespace pvm::inline v0::detail

#endif
