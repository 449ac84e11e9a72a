// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The part of the CUDA runtime that pvm uses, on an emulated device. With it a plain C++ compiler
/// builds a .cu file; it must be included before everything else, as nvcc does with the real one:
///     g++ -std=c++20 -O2 -Wno-unknown-pragmas -Itests/emulated_cuda -Iinclude -include
///         cuda_runtime.h -x c++ file.cu -pthread
/// Kernels are launched with pvm::detail::launch, not with <<< >>>.

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include "device.hpp"

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorECCUncorrectable = 214,
  cudaErrorUnsupportedPtxVersion = 222,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchTimeout = 702,
  cudaErrorAssert = 710,
  cudaErrorHardwareStackError = 714,
  cudaErrorIllegalInstruction = 715,
  cudaErrorPeerAccessAlreadyEnabled = 704,
  cudaErrorMisalignedAddress = 716,
  cudaErrorInvalidAddressSpace = 717,
  cudaErrorInvalidPc = 718,
  cudaErrorLaunchFailure = 719,
  cudaErrorCooperativeLaunchTooLarge = 720,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorUnknown = 999
};

namespace emulated_cuda {

inline thread_local cudaError_t last_error = cudaSuccess;
inline cudaError_t result(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace emulated_cuda

inline cudaError_t cudaGetLastError() {
  return std::exchange(emulated_cuda::last_error, cudaSuccess);
}
inline cudaError_t cudaPeekAtLastError() { return emulated_cuda::last_error; }
inline const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorCooperativeLaunchTooLarge:
      return "cudaErrorCooperativeLaunchTooLarge";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    default:
      return "cudaErrorInvalidValue";
  }
}
inline const char* cudaGetErrorString(cudaError_t) { return "refused by the emulated device"; }

// -------------------------------------------------------------- the device

struct cudaDeviceProp {
  char name[256];
  std::size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
  int major, minor, multiProcessorCount, l2CacheSize, persistingL2CacheMaxSize;
  int warpSize, maxThreadsPerBlock, maxThreadsPerMultiProcessor, regsPerBlock, cooperativeLaunch;
};
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = emulated_cuda::facts.devices;
  return emulated_cuda::result(static_cast<cudaError_t>(emulated_cuda::facts.found));
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = emulated_cuda::current;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= emulated_cuda::facts.devices) {
    return emulated_cuda::result(cudaErrorInvalidDevice);
  }
  emulated_cuda::current = device;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int other) {
  *can = emulated_cuda::facts.peers && device != other ? 1 : 0;
  return cudaSuccess;
}
enum cudaDeviceP2PAttr { cudaDevP2PAttrNativeAtomicSupported = 3 };
inline cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr, int device, int other) {
  return cudaDeviceCanAccessPeer(value, device, other);
}
inline cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned) {
  static std::map<std::pair<int, int>, bool> enabled;
  return emulated_cuda::result(std::exchange(enabled[{emulated_cuda::current, other}], true)
                                   ? cudaErrorPeerAccessAlreadyEnabled
                                   : cudaSuccess);
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  *p = {};
  std::strcpy(p->name, "emulated");
  p->totalGlobalMem = emulated_cuda::facts.memory;
  p->sharedMemPerBlock = emulated_cuda::SharedMemoryLimits::usual;
  p->sharedMemPerBlockOptin = emulated_cuda::facts.shared;
  p->sharedMemPerMultiprocessor = emulated_cuda::facts.shared + 1024;
  p->major = emulated_cuda::facts.major;
  p->multiProcessorCount = emulated_cuda::facts.multiprocessors;
  p->l2CacheSize = p->persistingL2CacheMaxSize = 1 << 20;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = 2048;
  p->regsPerBlock = 65536;
  p->cooperativeLaunch = 1;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (device < 0 || device >= emulated_cuda::facts.devices || length < 13) {
    return emulated_cuda::result(cudaErrorInvalidDevice);
  }
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0",
                static_cast<unsigned>(device));
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id) {
  *device = static_cast<int>(std::strtol(id + 5, nullptr, 16));
  return emulated_cuda::result(*device < emulated_cuda::facts.devices ? cudaSuccess
                                                                      : cudaErrorInvalidDevice);
}
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* all) {
  *all = emulated_cuda::facts.memory;
  *free = *all - std::min(*all, emulated_cuda::Memory::get().used());
  return cudaSuccess;
}

// -------------------------------------------------------------- memory

enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
using cudaStream_t = emulated_cuda::Stream*;

template <class T>
cudaError_t cudaMalloc(T** at, std::size_t bytes) {
  *at = nullptr;
  if (bytes == 0) return cudaSuccess;
  *at = static_cast<T*>(emulated_cuda::Memory::get().take(bytes));
  return emulated_cuda::result(*at != nullptr ? cudaSuccess : cudaErrorMemoryAllocation);
}
inline cudaError_t cudaFree(void* at) {
  const bool known = at == nullptr || emulated_cuda::Memory::get().give_back(at);
  return emulated_cuda::result(known ? cudaSuccess : cudaErrorInvalidValue);
}

/// Memory of another process: of another thread, here. Handles name allocations, so what is lent
/// must be whole ones, and of whole pages, which no other allocation can share.
struct cudaIpcMemHandle_t {
  char reserved[64];
};
enum { cudaIpcMemLazyEnablePeerAccess = 1 };
inline cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* at) {
  const std::size_t bytes = emulated_cuda::Memory::get().size_of(at);
  if (bytes == 0) return emulated_cuda::result(cudaErrorInvalidValue);
  if (bytes % (std::size_t{2} << 20) != 0) {
    emulated_cuda::fail("memory is lent whose pages may have other allocations, too");
  }
  const auto owner = std::hash<std::thread::id>()(std::this_thread::get_id());
  std::memcpy(handle->reserved, &at, sizeof at);
  std::memcpy(handle->reserved + sizeof at, &owner, sizeof owner);
  return cudaSuccess;
}
inline cudaError_t cudaIpcOpenMemHandle(void** at, cudaIpcMemHandle_t handle, unsigned) {
  std::size_t owner = 0;
  std::memcpy(at, handle.reserved, sizeof *at);
  std::memcpy(&owner, handle.reserved + sizeof *at, sizeof owner);
  const bool own = owner == std::hash<std::thread::id>()(std::this_thread::get_id());
  const bool opened =
      emulated_cuda::facts.lends && !own && emulated_cuda::Memory::get().open(*at, 1);
  if (!opened) *at = nullptr;
  return emulated_cuda::result(opened ? cudaSuccess : cudaErrorInvalidValue);
}
inline cudaError_t cudaIpcCloseMemHandle(void* at) {
  const bool closed = emulated_cuda::Memory::get().open(at, -1);
  return emulated_cuda::result(closed ? cudaSuccess : cudaErrorInvalidValue);
}
template <class T>
cudaError_t cudaMallocHost(T** at, std::size_t bytes) {
  *at = static_cast<T*>(std::malloc(bytes));
  return emulated_cuda::result(*at != nullptr ? cudaSuccess : cudaErrorMemoryAllocation);
}
inline cudaError_t cudaFreeHost(void* at) {
  std::free(at);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes,
                                   cudaMemcpyKind kind, cudaStream_t stream = nullptr) {
  auto& memory = emulated_cuda::Memory::get();
  const bool up = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool down = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (bytes > 0 && ((up && !memory.has(to, bytes)) || (down && !memory.has(from, bytes)))) {
    return emulated_cuda::result(cudaErrorInvalidValue);
  }
  emulated_cuda::run_or_record(stream, [=] {
    if (bytes > 0) std::memmove(to, from, bytes);
  });
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind);
}
inline cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes,
                                   cudaStream_t stream = nullptr) {
  if (bytes > 0 && !emulated_cuda::Memory::get().has(at, bytes)) {
    return emulated_cuda::result(cudaErrorInvalidValue);
  }
  emulated_cuda::run_or_record(stream, [=] {
    if (bytes > 0) std::memset(at, value, bytes);
  });
  return cudaSuccess;
}
inline cudaError_t cudaMemset(void* at, int value, std::size_t bytes) {
  return cudaMemsetAsync(at, value, bytes);
}

// -------------------------------------------------------------- streams, events, graphs

using cudaEvent_t = emulated_cuda::Event*;
using cudaGraph_t = emulated_cuda::Graph*;
using cudaGraphExec_t = emulated_cuda::Graph*;
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventDisableTiming = 2 };
enum { cudaEventRecordDefault = 0, cudaEventRecordExternal = 1 };
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new emulated_cuda::Stream;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const bool captured = stream != nullptr && stream->capture != nullptr;
  if (stream != nullptr && !captured) stream->wait();
  return emulated_cuda::result(captured ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
}
inline cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream != nullptr && stream->capture == nullptr && !stream->idle()) {
    return emulated_cuda::result(cudaErrorNotReady);
  }
  return cudaStreamSynchronize(stream);
}

inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new emulated_cuda::Event;
  return cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr) {
  event->when = std::chrono::steady_clock::now();
  event->capture = stream != nullptr ? stream->capture : nullptr;
  event->stream = stream;
  return cudaSuccess;
}
/// An external event of a capture is recorded by the graph, each time that it runs.
inline cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                            unsigned flags) {
  if (stream == nullptr || stream->capture == nullptr || flags != cudaEventRecordExternal) {
    return cudaEventRecord(event, stream);
  }
  event->stream = stream;
  return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const bool captured = event->capture != nullptr;
  if (event->stream != nullptr && !captured) event->stream->wait();
  return emulated_cuda::result(captured ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
}
/// Not ready also while launches behind the event run.
inline cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->stream != nullptr && event->capture == nullptr && !event->stream->idle()) {
    return emulated_cuda::result(cudaErrorNotReady);
  }
  return cudaEventSynchronize(event);
}
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  *milliseconds = std::chrono::duration<float, std::milli>(to->when - from->when).count();
  return cudaSuccess;
}
/// A stream that waits for an event of a capture joins that capture.
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned = 0) {
  if (event->capture != nullptr && stream->capture == nullptr) {
    stream->capture = event->capture;
    stream->capture->streams.push_back(stream);
  }
  if (event->capture == nullptr && event->stream != nullptr) event->stream->wait();
  return cudaSuccess;
}

inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr || stream->capture != nullptr) {
    return emulated_cuda::result(cudaErrorStreamCaptureUnsupported);
  }
  stream->capture = std::make_shared<emulated_cuda::Capture>();
  stream->capture->streams.push_back(stream);
  return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const auto capture = stream->capture;
  if (capture == nullptr) return emulated_cuda::result(cudaErrorInvalidValue);
  for (emulated_cuda::Stream* s : capture->streams) s->capture = nullptr;
  *graph = new emulated_cuda::Graph{std::move(capture->work)};
  return cudaSuccess;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                        unsigned long long = 0) {
  *made = new emulated_cuda::Graph(*graph);
  return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return cudaGraphDestroy(graph); }
inline cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  if (stream != nullptr && stream->capture != nullptr) {
    return emulated_cuda::result(cudaErrorStreamCaptureUnsupported);
  }
  for (const emulated_cuda::Piece& piece : graph->work) stream->run(piece);
  return cudaSuccess;
}

// -------------------------------------------------------------- kernels

enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
struct cudaFuncAttributes {
  int maxDynamicSharedSizeBytes;
  int ptxVersion;
};
template <class... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Parameters...)) {
  if (emulated_cuda::facts.kernels != 0) {
    return emulated_cuda::result(static_cast<cudaError_t>(emulated_cuda::facts.kernels));
  }
  const auto bytes =
      emulated_cuda::SharedMemoryLimits::get()(reinterpret_cast<const void*>(kernel));
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(bytes);
  attributes->ptxVersion = emulated_cuda::facts.compiled;
  return cudaSuccess;
}
template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute what, int value) {
  if (emulated_cuda::facts.kernels != 0) {
    return emulated_cuda::result(static_cast<cudaError_t>(emulated_cuda::facts.kernels));
  }
  if (what != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || static_cast<std::size_t>(value) > emulated_cuda::facts.shared) {
    return emulated_cuda::result(cudaErrorInvalidValue);
  }
  emulated_cuda::SharedMemoryLimits::get().set(reinterpret_cast<const void*>(kernel),
                                               static_cast<std::size_t>(value));
  return cudaSuccess;
}
template <class... Parameters>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void (*)(Parameters...),
                                                          int threads, std::size_t shared) {
  const std::size_t by_memory = (emulated_cuda::facts.shared + 1024) / (shared + 1024);
  *blocks = std::min(2048 / threads, static_cast<int>(by_memory));
  return cudaSuccess;
}

enum cudaLaunchAttributeID {
  cudaLaunchAttributeIgnore,
  cudaLaunchAttributeCooperative = 2,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6
};
union cudaLaunchAttributeValue {
  char pad[64];
  int cooperative;
  int programmaticStreamSerializationAllowed;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

namespace emulated_cuda {

template <class... Parameters>
cudaError_t launch(const Call<Parameters...>& call, dim3 grid, dim3 block, std::size_t shared,
                   cudaStream_t stream, bool cooperative) {
  const Index blocks{grid.x, grid.y, grid.z};
  const Index threads{block.x, block.y, block.z};
  const std::size_t count = std::size_t{block.x} * block.y * block.z;
  if (count == 0 || count > 1024 || grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 ||
      grid.z > 65535) {
    return result(cudaErrorInvalidConfiguration);
  }
  if (shared > facts.shared ||
      shared > SharedMemoryLimits::get()(reinterpret_cast<const void*>(call.kernel))) {
    return result(cudaErrorInvalidValue);
  }
  int together = 0;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&together, call.kernel, static_cast<int>(count),
                                                shared);
  if (cooperative && std::size_t{grid.x} * grid.y * grid.z >
                         static_cast<std::size_t>(together * facts.multiprocessors)) {
    return result(cudaErrorCooperativeLaunchTooLarge);
  }
  if (stream != nullptr && stream->device != current) return result(cudaErrorInvalidValue);
  run_or_record(
      stream, [=] { run_kernel(call, blocks, threads, shared, cooperative); }, facts.overlap);
  return cudaSuccess;
}

}  // namespace emulated_cuda

template <class... Parameters, class... Values>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Values&&... values) {
  bool cooperative = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& a = config->attrs[i];
    if (a.id == cudaLaunchAttributeCooperative) cooperative = a.val.cooperative != 0;
  }
  const emulated_cuda::Call<Parameters...> call{
      kernel, std::tuple<Parameters...>(static_cast<Parameters>(values)...)};
  return emulated_cuda::launch(call, config->gridDim, config->blockDim, config->dynamicSmemBytes,
                               config->stream, cooperative);
}
template <class... Parameters>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block,
                                        void** arguments, std::size_t shared = 0,
                                        cudaStream_t stream = nullptr) {
  const auto call = [&]<std::size_t... I>(std::index_sequence<I...>) {
    return emulated_cuda::Call<Parameters...>{
        kernel, std::tuple<Parameters...>(
                    *static_cast<std::remove_reference_t<Parameters>*>(arguments[I])...)};
  };
  return emulated_cuda::launch(call(std::index_sequence_for<Parameters...>{}), grid, block, shared,
                               stream, true);
}
