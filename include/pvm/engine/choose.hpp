// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Chooses the engine of a run: the only file that knows all engines.
///
/// The library pvm::compiled holds the engines for specs, on the host and (if nvcc was there) on
/// the GPU, the loop of `fit`, specs and checkpoints as files, and metrics. A program that links it
/// compiles in seconds, and trains on the GPU even if no file of it is compiled by nvcc. Networks
/// as types are compiled with the program as ever. What links pvm::compiled is set up by CMake
/// (PVM_COMPILED is defined); nothing else changes.

#include <concepts>
#include <string>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/backend_choice.hpp>
#include <pvm/engine/device_plan.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/gpu_info.hpp>
#include <pvm/engine/host/engine.hpp>
#include <pvm/model/network.hpp>
#include <pvm/model/spec.hpp>

#if defined(__CUDACC__)
#include <pvm/engine/cuda/device/gpus.hpp>
#include <pvm/engine/cuda/make_engine.hpp>
#include <pvm/engine/cuda/plan_engine.hpp>
#endif

namespace pvm::inline v0 {

#if defined(PVM_COMPILED)
extern template class HostEngine<1, fp32, RuntimeNetwork>;
extern template class HostEngine<1, bf16, RuntimeNetwork>;
extern template class HostEngine<1, fp16, RuntimeNetwork>;
extern template class HostEngine<dynamic, fp32, RuntimeNetwork>;
extern template class HostEngine<dynamic, bf16, RuntimeNetwork>;
extern template class HostEngine<dynamic, fp16, RuntimeNetwork>;
#endif

namespace detail {

/// Whether the engines for the network `Net` are in the library pvm::compiled.
#if defined(PVM_COMPILED)
template <class Net>
inline constexpr bool in_library = std::same_as<Net, RuntimeNetwork>;
#else
template <class Net>
inline constexpr bool in_library = false;
#endif

/// Whether this file can use the GPU for the network `Net`: nvcc compiles it, or the engines are in
/// pvm::compiled.
#if defined(__CUDACC__)
template <class Net>
inline constexpr bool may_use_gpu = true;
#else
template <class Net>
inline constexpr bool may_use_gpu = in_library<Net>;
#endif

}  // namespace detail

/// The default backend of a Trainer: `automatic` in files that nvcc compiles, and with
/// pvm::compiled for specs in all files; else `host`. Because these are different types, a program
/// may link files of both kinds without violating the one definition rule; in such a program, name
/// `automatic` and `cuda` only in files where they are the default.
template <class Net>
using DefaultBackend = std::conditional_t<detail::may_use_gpu<Net>, automatic, host>;

namespace detail {

/// The sentence of a program without GPU engines.
inline constexpr const char* built_without_cuda =
    "this program was built without CUDA, so no GPU can be used; build it with nvcc "
    "(PVM_CUDA=ON) or choose the host backend";

using MakeEngine = AnyEngine (*)(const Spec& spec, int batch, const EngineOptions& options);

/// The engines of a GPU: whether there is one (if not, the text says why not), how to make an
/// engine on it, which GPUs there are, how to choose one (device/gpus.hpp), and what an engine
/// takes (plan_engine.hpp).
struct GpuEngines {
  bool (*available)(std::string* why);
  MakeEngine make;
  std::vector<GpuInfo> (*list)(std::string* why);
  void (*choose)(int index);
  DevicePlan (*plan)(const Spec& spec, int batch, const EngineOptions& options,
                     const GpuModel* model);
};

#if defined(__CUDACC__)
/// Those that this file can compile.
template <class Precision, int Batch, class Net>
inline constexpr GpuEngines compiled_gpu_engines{
    cuda_available, make_cuda_engine<Precision, Batch, Net>, list_gpus, choose_gpu,
    plan_cuda_engine<Precision, Batch, Net>};
#endif

/// Makes the engine of a run: by `gpu`, which is null in a program without GPU engines, or by
/// `host`. Throws Fault::device if a GPU is `required` but cannot be used, and what the engines
/// throw; naming devices or shards in `options` requires a GPU, too. `host_can`: whether the host
/// has an engine for this at all.
PVM_INLINE AnyEngine choose_engine(const Spec& spec, int batch, const EngineOptions& options,
                                   BackendChoice wanted, bool required, bool host_can,
                                   MakeEngine host, const GpuEngines* gpu);

/// Whether the host engine for `Net` is compiled with optimisation. That for specs always is with
/// pvm::compiled, however the program itself is compiled.
#if defined(__OPTIMIZE__)
template <class Net>
inline constexpr bool optimised = true;
#else
template <class Net>
inline constexpr bool optimised = in_library<Net>;
#endif

template <class Precision, int Batch, class Net>
AnyEngine make_host_engine(const Spec& spec, int batch, const EngineOptions& options) {
  if constexpr (std::same_as<Precision, tf32>) {
    throw Error(Fault::usage, "tf32 exists on GPUs only; on the host take fp32, bf16 or fp16");
  } else {
    if (!optimised<Net>) {
      log(Severity::warning,
          "this program was compiled without optimisation, and trains tens of times slower "
          "than it could: compile with -O3, by CMake with -DCMAKE_BUILD_TYPE=Release");
    }
    return AnyEngine::make<HostEngine<Batch, Precision, Net>>(spec, batch, options);
  }
}

/// The GPU engines in pvm::compiled; null if it was built without nvcc.
template <class Precision>
const GpuEngines* gpu_engines_in_library();
#if defined(PVM_COMPILED)
extern template AnyEngine make_host_engine<fp32, 1, RuntimeNetwork>(const Spec&, int,
                                                                    const EngineOptions&);
extern template AnyEngine make_host_engine<bf16, 1, RuntimeNetwork>(const Spec&, int,
                                                                    const EngineOptions&);
extern template AnyEngine make_host_engine<fp16, 1, RuntimeNetwork>(const Spec&, int,
                                                                    const EngineOptions&);
extern template AnyEngine make_host_engine<fp32, dynamic, RuntimeNetwork>(const Spec&, int,
                                                                          const EngineOptions&);
extern template AnyEngine make_host_engine<bf16, dynamic, RuntimeNetwork>(const Spec&, int,
                                                                          const EngineOptions&);
extern template AnyEngine make_host_engine<fp16, dynamic, RuntimeNetwork>(const Spec&, int,
                                                                          const EngineOptions&);

template <>
const GpuEngines* gpu_engines_in_library<fp32>();
template <>
const GpuEngines* gpu_engines_in_library<tf32>();
template <>
const GpuEngines* gpu_engines_in_library<bf16>();
template <>
const GpuEngines* gpu_engines_in_library<fp16>();
#endif

/// The GPU engines that this file can use; null if there are none.
template <class Precision, int Batch, class Net, class Backend>
const GpuEngines* gpu_engines() {
  if constexpr (std::same_as<Backend, host>) {
    return nullptr;
  } else if constexpr (in_library<Net>) {
    return gpu_engines_in_library<Precision>();
  } else {
#if defined(__CUDACC__)
    return &compiled_gpu_engines<Precision, Batch, Net>;
#else
    return nullptr;
#endif
  }
}

/// Chooses the engine among those that this file was compiled with. `batch` counts if `Batch` is
/// dynamic. Throws what choose_engine throws.
template <class Precision, int Batch, class Net, class Backend>
AnyEngine make_engine(const Spec& spec, int batch, const EngineOptions& options,
                      BackendChoice wanted) {
  constexpr int compiled = in_library<Net> && Batch != 1 ? dynamic : Batch;
  const bool required = std::same_as<Backend, cuda> || wanted == BackendChoice::cuda;
  return choose_engine(spec, Batch == dynamic ? batch : Batch, options, wanted, required,
                       !std::same_as<Precision, tf32>, make_host_engine<Precision, compiled, Net>,
                       gpu_engines<Precision, Batch, Net, Backend>());
}

/// Whether a run of a spec in this precision would be on the host.
template <class Precision, class Backend = DefaultBackend<RuntimeNetwork>>
bool runs_on_host(BackendChoice wanted) {
  if (std::same_as<Precision, tf32> || wanted == BackendChoice::cuda) return false;
  const GpuEngines* const gpu = gpu_engines<Precision, dynamic, RuntimeNetwork, Backend>();
  std::string why;
  return wanted == BackendChoice::host || gpu == nullptr || !gpu->available(&why);
}

}  // namespace detail

/// The GPUs that this process sees; none, and why, if there are none. In a program built without
/// CUDA there are none.
template <class Backend = DefaultBackend<RuntimeNetwork>>
std::vector<GpuInfo> gpus(std::string* why = nullptr) {
  const auto* const gpu = detail::gpu_engines<fp32, dynamic, RuntimeNetwork, Backend>();
  if (gpu != nullptr) return gpu->list(why);
  if (why != nullptr) *why = detail::built_without_cuda;
  return {};
}

/// Makes GPU `index` of `gpus()` the one that this thread and the library's own threads use. Other
/// threads of the program make it current by themselves (cudaSetDevice, or this). Throws Error
/// (Fault::device) if there is no such GPU; the sentence lists those there are.
template <class Backend = DefaultBackend<RuntimeNetwork>>
void use_gpu(int index) {
  const auto* const gpu = detail::gpu_engines<fp32, dynamic, RuntimeNetwork, Backend>();
  if (gpu == nullptr) throw Error(Fault::device, detail::built_without_cuda);
  gpu->choose(index);
}

/// What a run of `spec`, which must be valid, takes on a GPU of the kind `model` (see `gpu_model`),
/// which need not be there; null: on this thread's current GPU. Throws Error: Fault::device if the
/// program was built without CUDA, there is no GPU to ask, or no engine can run this; Fault::usage.
template <class Precision, class Backend = DefaultBackend<RuntimeNetwork>>
DevicePlan plan_on_gpu(const Spec& spec, int batch, const GpuModel* model = nullptr,
                       const EngineOptions& options = {}) {
  const auto* const gpu = detail::gpu_engines<Precision, dynamic, RuntimeNetwork, Backend>();
  if (gpu == nullptr) throw Error(Fault::device, detail::built_without_cuda);
  return gpu->plan(spec, batch, options, model);
}

}  // namespace pvm::inline v0

#if !defined(PVM_COMPILED)
#include <pvm/engine/choose-inl.hpp>
#endif
