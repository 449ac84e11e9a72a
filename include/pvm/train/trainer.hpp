// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The Trainer: a spec, an engine for it, and `fit`.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include <pvm/compiled.hpp>
#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/host/engine.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/model/network.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/train/trainer_base.hpp>
#include <pvm/unit/learning_rule.hpp>

#if defined(__CUDACC__)
#include <pvm/engine/cuda/batch/engine.hpp>
#include <pvm/engine/cuda/general/engine.hpp>
#include <pvm/engine/cuda/units/engine.hpp>
#endif

namespace pvm::inline v0 {

/// Backends as values, for programs that choose at run time. `automatic`: the GPU if one can be
/// used, else the CPU.
enum class BackendChoice { automatic, cuda, host };

/// The default backend of a Trainer: `automatic` in files that nvcc compiles, else `host`. Because
/// these are different types, a program may link files of both kinds without violating the one
/// definition rule; in such a program, name `automatic` and `cuda` only in files that nvcc
/// compiles.
#if defined(__CUDACC__)
using DefaultBackend = automatic;
#else
using DefaultBackend = host;
#endif

struct TrainerOptions {
  int batch = 1;           ///< number of sequences; used only if the Trainer's Batch is dynamic
  std::uint64_t seed = 0;  ///< of the initial weights
  Reduce reduce = Reduce::mean;  ///< how the updates of the sequences are combined
  Mode mode = Mode::learn;       ///< learn, or freeze: run forward only
  int threads = 0;               ///< host: number of threads; 0: one per core. Changes no result
  bool graph = true;             ///< CUDA: replay captured steps as a CUDA graph
  /// Chooses at run time among the backends that the Trainer's Backend allows.
  BackendChoice backend = BackendChoice::automatic;
  /// Bytes that decoded frames may take in the engine's store, so that later passes need no
  /// decoding. 0: no frames are kept. The default is a quarter of the host's free memory, or half
  /// of the GPU's.
  std::size_t cache_bytes = share_of_free_memory;
};

namespace detail {

#if defined(__CUDACC__)
/// Whether to use the GPU: it is wanted and there is one. If there is none, throws Fault::device if
/// it is `required`, else logs a warning.
inline bool choose_cuda(bool required, bool wanted) {
  if (!wanted) return false;
  std::string why;
  if (cuda_available(&why)) return true;
  if (required) throw Error(Fault::device, "no GPU can be used: " + why);
  log(Severity::warning, "no GPU can be used, so the run uses the CPU: " + why);
  return false;
}

/// The learning rule for which the GPU's kernels are compiled: that of the network's type if
/// kernels can run it, else momentum.
template <class Net>
using CudaRule =
    std::conditional_t<std::same_as<typename Net::rule, Sgd> ||
                           std::same_as<typename Net::rule, Adam> || RunsOnGpu<typename Net::rule>,
                       typename Net::rule, Momentum>;

/// What `spec` asks for but the kernels of `Net` cannot do, as part of a sentence; empty if
/// nothing.
template <class Net>
std::string lacks_on_gpu(const Spec& spec) {
  const std::string hint = std::same_as<Net, RuntimeNetwork>
                               ? ""
                               : " (they run a type of the program's own if its functions are "
                                 "PVM_HOST_DEVICE and it has "
                                 "static constexpr bool on_gpu = true)";
  if (!spec.own_activation.empty() && std::is_void_v<OwnOnGpu<Net>>) {
    return "activation " + quote(spec.own_activation) + hint;
  }
  if (spec.learning_rule != own_name<CudaRule<Net>>()) {
    return "learning rule " + quote(spec.learning_rule) + hint;
  }
  return {};
}

/// The number of hidden values for which the engines in `units/` are compiled: that of the
/// published models. They are not specialised for the types of networks: a network that is a type
/// runs on the same engine as its spec in a file, and so gives the same bits.
inline constexpr int hidden_on_chip = 49;

/// Whether an engine in `units/` is possible for these template arguments. Whether it fits the spec
/// and the GPU is known at run time only.
template <class Precision, int Batch, class Net>
consteval bool may_stay_on_chip() {
  constexpr bool one_sequence = Batch == 1 || Batch == dynamic;
  constexpr bool momentum = std::same_as<CudaRule<Net>, Momentum>;
  constexpr bool own_activation = !std::is_void_v<OwnOnGpu<Net>>;
  return !std::same_as<Precision, tf32> && one_sequence && momentum && !own_activation &&
         (Net::hidden == dynamic || Net::hidden == hidden_on_chip);
}

/// Whether CudaStreamEngine is the better choice. It is not for fp32 weights of at most twice the
/// size of the L2 cache: CudaGeneralEngine is faster then, because it keeps weights in that cache.
template <class Precision>
bool worth_streaming(const Spec& spec) {
  const std::size_t bytes = make_connectome(spec).weights * sizeof(float);
  return !std::same_as<Precision, fp32> || bytes > 2 * describe_device().cache_bytes;
}

/// Chooses the engine on the GPU. For one sequence with momentum, in this order: CudaChipEngine,
/// which keeps as many weights as possible on the chip, if the network fits it; CudaStreamEngine,
/// which streams the weights of whole units, if the network fits it and worth_streaming; in fp32,
/// CudaGeneralEngine for any other network. Everything else runs on CudaBatchEngine, on tensor
/// cores. Throws Fault::device for what a GPU cannot run.
template <class Precision, int Batch, class Net>
AnyEngine make_cuda_engine(const Spec& spec, int batch, const EngineOptions& options) {
  using Rule = CudaRule<Net>;
  const std::string lacks = lacks_on_gpu<Net>(spec);
  if (!lacks.empty()) {
    throw Error(Fault::device, "the CUDA engines have no " + lacks + "; use the host backend");
  }
  if constexpr (may_stay_on_chip<Precision, Batch, Net>()) {
    using Chip = CudaChipEngine<Precision, hidden_on_chip>;
    using Stream = CudaStreamEngine<Precision, hidden_on_chip>;
    std::string why;
    if (batch == 1 && Chip::fits(spec, why)) return AnyEngine::make<Chip>(spec, batch, options);
    if (batch == 1 && worth_streaming<Precision>(spec) && Stream::fits(spec, why)) {
      return AnyEngine::make<Stream>(spec, batch, options);
    }
  }
  constexpr bool plain = std::same_as<Precision, fp32> && std::same_as<Rule, Momentum>;
  if constexpr (plain && Batch == 1) {
    return AnyEngine::make<CudaGeneralEngine<1, Net>>(spec, batch, options);
  } else {
    if constexpr (plain && Batch == dynamic) {
      // A momentum too large for deferred updates needs a momentum array, which CudaBatchEngine
      // has.
      const bool short_lived = DeferralPlan::for_momentum(spec.momentum, 16).fits();
      if (batch == 1 && short_lived) {
        return AnyEngine::make<CudaGeneralEngine<1, Net>>(spec, batch, options);
      }
    }
    return AnyEngine::make<CudaBatchEngine<Precision, Batch, Rule, OwnOnGpu<Net>>>(spec, batch,
                                                                                   options);
  }
}
#endif

/// Whether the host engine for `Net` is compiled with optimisation. That for specs always is with
/// pvm::compiled, however the program itself is compiled.
#if defined(__OPTIMIZE__)
template <class Net>
inline constexpr bool optimised = true;
#elif defined(PVM_COMPILED)
template <class Net>
inline constexpr bool optimised = std::same_as<Net, RuntimeNetwork>;
#else
template <class Net>
inline constexpr bool optimised = false;
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

inline void refuse_cuda(bool required) {
  if (!required) return;
  throw Error(Fault::device,
              "this program was built without CUDA, so no GPU can be used; build it with nvcc "
              "(PVM_CUDA=ON) or choose the host backend");
}

/// Chooses the engine. For the backend `host` this function does the same in files that nvcc
/// compiles and in others, because a program may contain both. Throws Fault::device if a GPU is
/// required but cannot be used, Fault::usage for tf32 on the host, and what the engines throw.
template <class Precision, int Batch, class Net, class Backend>
AnyEngine make_engine(const Spec& spec, const TrainerOptions& options) {
  const int batch = Batch == dynamic ? options.batch : Batch;
  const EngineOptions engine{options.reduce, options.threads, options.graph};
  const bool required = std::same_as<Backend, cuda> || options.backend == BackendChoice::cuda;
#if defined(__CUDACC__)
  if constexpr (!std::same_as<Backend, host>) {
    const bool wanted = options.backend != BackendChoice::host;
    if (choose_cuda(required, wanted)) {
      try {
        return make_cuda_engine<Precision, Batch, Net>(spec, batch, engine);
      } catch (const Error& error) {  // no kernels for this GPU, or none for this network
        const bool host_can = !required && !std::same_as<Precision, tf32>;
        if (!host_can || error.fault() != Fault::device) throw;
        log(Severity::warning, std::string("the CPU is used: ") + error.what());
      }
    }
    return make_host_engine<Precision, Batch, Net>(spec, batch, engine);
  }
#endif
  refuse_cuda(required);
  return make_host_engine<Precision, Batch, Net>(spec, batch, engine);
}

}  // namespace detail

/// Trains a network online: each step takes one frame of every sequence and updates the weights.
///
/// Precision: `fp32`, `tf32` (GPU only), `bf16` or `fp16`. Batch: the number of independent
/// sequences that share the weights, or `dynamic` (`TrainerOptions::batch`). Net: a Network, or
/// RuntimeNetwork for a spec known at run time. Backend: `host`, `cuda` or `automatic`. If there
/// are several GPUs, the one that is current in the constructing thread is used; other threads that
/// use the trainer must make it current too (cudaSetDevice).
///
///     pvm::Trainer<> trainer{pvm::load_spec("model_zoo/tiny.json")};
///     trainer.fit(source, pvm::Steps{10'000}, pvm::Progress{});
///
///     using Net = pvm::Network<pvm::Input<60, 3, 5>, pvm::Layers<12, 8, 6, 4, 2, 1>>;
///     pvm::Trainer<pvm::bf16, 16, Net> compiled;
template <class Precision = fp32, int Batch = 1, class Net = RuntimeNetwork,
          class Backend = DefaultBackend>
class Trainer : public TrainerBase {
  static_assert(PrecisionTag<Precision>,
                "pvm: the precision is pvm::fp32, pvm::tf32, pvm::bf16 or pvm::fp16");
  static_assert(Batch == dynamic || Batch >= 1, "pvm: a batch is at least 1, or pvm::dynamic");
  static_assert(NetworkType<Net>, "pvm: the network is a pvm::Network<...> or pvm::RuntimeNetwork");
  static_assert(std::same_as<Backend, host> || std::same_as<Backend, cuda> ||
                    std::same_as<Backend, automatic>,
                "pvm: the backend is pvm::host, pvm::cuda or pvm::automatic");

 public:
  /// Starts a new run at step 0. Throws Error: Fault::spec if the spec is not valid, Fault::usage
  /// if the options cannot work, Fault::memory, Fault::device.
  explicit Trainer(const Spec& spec,
                   const TrainerOptions& options = {}) requires(std::same_as<Net, RuntimeNetwork>)
      : Trainer(spec, options, options.seed) {
    start_new();
  }

  /// The same for a network that is a type.
  explicit Trainer(const TrainerOptions& options = {}) requires(!std::same_as<Net, RuntimeNetwork>)
      : Trainer(Net::spec(), options, options.seed) {
    start_new();
  }

  // The next two constructors exist for their error messages: a spec given for a network that is a
  // type, and no spec given for RuntimeNetwork.
  template <class N = Net>
  requires(!std::same_as<N, RuntimeNetwork>) explicit Trainer(const Spec& spec,
                                                              const TrainerOptions& options = {})
      : Trainer(spec, options, options.seed) {
    static_assert(std::same_as<N, RuntimeNetwork>,
                  "pvm: this Trainer's network is a type and says everything: give the Trainer no "
                  "spec, or take pvm::RuntimeNetwork");
  }
  template <class N = Net>
  requires(std::same_as<N, RuntimeNetwork>) explicit Trainer(const TrainerOptions& options = {})
      : Trainer(Spec(), options, options.seed) {
    static_assert(
        !std::same_as<N, RuntimeNetwork>,
        "pvm: a Trainer needs to know its network: give it a spec, as pvm::load_spec(file) "
        "returns, or a pvm::Network<...> as its third template argument");
  }

  /// Continues a run from its checkpoint, with its seed; or starts a new run from a checkpoint that
  /// holds only weights. A run of another precision continues from its fp32 weights. Throws Error
  /// as the constructors above, and Fault::checkpoint if the checkpoint is of another network or
  /// batch.
  explicit Trainer(const io::Checkpoint& checkpoint, const TrainerOptions& options = {})
      : Trainer(spec_of(checkpoint), options,
                checkpoint.state.resumable() ? checkpoint.seed : options.seed) {
    if (checkpoint.state.resumable() && checkpoint.precision != Precision::name) {
      log(Severity::info, "the checkpoint was made in " + quote(checkpoint.precision) +
                              " and this run computes in " + std::string(Precision::name) +
                              ": it goes on from the fp32 weights, not bit by bit");
    }
    if (checkpoint.state.resumable() && checkpoint.state.batch > 1 &&
        checkpoint.reduce != options.reduce) {
      const bool sums = options.reduce == Reduce::sum;
      log(Severity::info, "the checkpoint's run took the " + std::string(sums ? "mean" : "sum") +
                              " of its sequences' updates and this one takes the " +
                              (sums ? "sum" : "mean") + ": each is " +
                              std::to_string(checkpoint.state.batch) + " times as " +
                              (sums ? "large" : "small"));
    }
    restore(checkpoint);
  }

  /// Trains on a source, or on a range of sources, one for every sequence of the batch, and calls
  /// the callbacks: see TrainerBase::fit. Arguments of wrong types give one readable compile error.
  template <class Frames, class... Callbacks>
  FitResult fit(Frames&& frames, Callbacks&&... callbacks) {
    constexpr bool are_frames = detail::Source<Frames> || detail::StreamRange<Frames>;
    constexpr bool are_callbacks = (detail::CallbackArgument<Callbacks> && ...);
    static_assert(
        are_frames,
        "pvm: the frames given to fit are no source (pvm::io::FrameSource: next, position, "
        "seek, length, skipped, name), and no range of sources");
    static_assert(
        !are_frames || are_callbacks,
        "pvm: an argument of fit behind the frames is no callback: it needs std::uint64_t "
        "next(std::uint64_t step) and at(const pvm::Moment&); a number of steps is given as "
        "pvm::Steps{n}");
    if constexpr (are_frames && are_callbacks) {
      return TrainerBase::fit(std::forward<Frames>(frames), std::forward<Callbacks>(callbacks)...);
    } else {
      return {};
    }
  }

 private:
  Trainer(const Spec& spec, const TrainerOptions& options, std::uint64_t seed)
      : TrainerBase(spec, make_engine(spec, options), std::string(Precision::name), seed,
                    {options.reduce, options.mode, options.cache_bytes}) {}

  static AnyEngine make_engine(const Spec& spec, const TrainerOptions& options) {
    validate(spec, "spec " + quote(spec.name));
    return detail::make_engine<Precision, Batch, Net, Backend>(spec, options);
  }

  /// The spec to continue with: the checkpoint's, or that of the type `Net`. Throws
  /// Fault::checkpoint if these are different networks.
  static Spec spec_of(const io::Checkpoint& checkpoint) {
    if constexpr (std::same_as<Net, RuntimeNetwork>) {
      return checkpoint.spec;
    } else {
      Spec spec = Net::spec();
      spec.name = checkpoint.spec.name;
      return io::detail::agreed_spec("the checkpoint", &spec, checkpoint.spec);
    }
  }
};

}  // namespace pvm::inline v0
