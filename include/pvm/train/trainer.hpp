// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The Trainer: a spec, an engine for it, and `fit`.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/host/engine.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/train/trainer_base.hpp>

#if defined(__CUDACC__)
#include <pvm/engine/cuda/engine.hpp>
#endif

namespace pvm::inline v0 {

/// The network is a Spec known at run time.
struct RuntimeNetwork {};

/// Backends as values, for programs that choose at run time.
enum class BackendChoice { automatic, cuda, host };

/// What a Trainer's backend is unless named: decided at run time where nvcc compiles, else the CPU.
/// Two types, so that a program may link files of both kinds.
#if defined(__CUDACC__)
using DefaultBackend = automatic;
#else
using DefaultBackend = host;
#endif

struct TrainerOptions {
  int batch = 1;                 ///< number of sequences, where the Trainer's Batch is `dynamic`
  std::uint64_t seed = 0;        ///< of the first weights
  Reduce reduce = Reduce::mean;  ///< how the sequences' updates become one
  Mode mode = Mode::learn;
  int threads = 0;                                   ///< host: 0 = one per core
  bool graph = true;                                 ///< CUDA: replay captured steps
  BackendChoice backend = BackendChoice::automatic;  ///< among those of the Trainer's Backend
  /// Bytes that decoded frames may take in the engine's memory, so that later passes need no
  /// decoding; 0: none are kept.
  std::size_t cache_bytes = share_of_free_memory;
};

namespace detail {

/// Whether to use the GPU. Throws where it was asked for and is not there.
inline bool choose_cuda([[maybe_unused]] bool required, [[maybe_unused]] bool wanted) {
#if defined(__CUDACC__)
  if (!wanted) return false;
  std::string why;
  if (cuda_available(&why)) return true;
  if (required) throw Error(Fault::device, "no GPU can be used: " + why);
  log(Severity::warning, "no GPU can be used, so the CPU is: " + why);
#else
  if (required) {
    throw Error(Fault::device,
                "this program was built without CUDA, so no GPU can be used; build it with nvcc "
                "(PVM_CUDA=ON) or choose the host backend");
  }
#endif
  return false;
}

template <int Batch, class Backend>
AnyEngine make_engine(const Spec& spec, const TrainerOptions& options) {
  const int batch = Batch == dynamic ? options.batch : Batch;
  const EngineOptions engine{options.reduce, options.threads, options.graph};
  constexpr bool may_be_cuda = !std::same_as<Backend, host>;
  const bool required = std::same_as<Backend, cuda> || options.backend == BackendChoice::cuda;
  const bool wanted = may_be_cuda && options.backend != BackendChoice::host;
#if defined(__CUDACC__)
  if constexpr (may_be_cuda) {
    if (choose_cuda(required, wanted)) {
      return AnyEngine::make<CudaEngine<Batch>>(spec, batch, engine);
    }
  }
#else
  static_cast<void>(choose_cuda(required, wanted));
#endif
  return AnyEngine::make<HostEngine<Batch>>(spec, batch, engine);
}

}  // namespace detail

/// Trains a network online: a frame, a step, an update. Precision: `fp32`. Batch: how many
/// independent sequences share the weights, or `dynamic`. Backend: `host`, `cuda` or `automatic`.
///
///     pvm::Trainer<> trainer{pvm::load_spec("model_zoo/tiny.json")};
///     trainer.fit(source, pvm::Steps{10'000}, pvm::Progress{});
template <class Precision = fp32, int Batch = 1, class Network = RuntimeNetwork,
          class Backend = DefaultBackend>
class Trainer : public TrainerBase {
  static_assert(std::same_as<Precision, fp32>, "pvm: the precision there is is pvm::fp32");
  static_assert(Batch == dynamic || Batch >= 1, "pvm: a batch is at least 1, or pvm::dynamic");
  static_assert(std::same_as<Network, RuntimeNetwork>,
                "pvm: the network is a spec: leave the third parameter pvm::RuntimeNetwork");

 public:
  /// A new run at step 0. Throws Error (spec, usage, memory, device).
  explicit Trainer(const Spec& spec, const TrainerOptions& options = {})
      : Trainer(spec, options, options.seed) {
    start_new();
  }

  /// Continues a run, with its seed; or starts one from weights alone. Throws Error (also
  /// checkpoint).
  explicit Trainer(const io::Checkpoint& checkpoint, const TrainerOptions& options = {})
      : Trainer(checkpoint.spec, options,
                checkpoint.state.resumable() ? checkpoint.seed : options.seed) {
    restore(checkpoint);
  }

 private:
  Trainer(const Spec& spec, const TrainerOptions& options, std::uint64_t seed)
      : TrainerBase(spec, make_engine(spec, options), std::string(Precision::name), seed,
                    {options.reduce, options.mode, options.cache_bytes}) {}

  static AnyEngine make_engine(const Spec& spec, const TrainerOptions& options) {
    validate(spec, "spec " + quote(spec.name));
    return detail::make_engine<Batch, Backend>(spec, options);
  }
};

}  // namespace pvm::inline v0
