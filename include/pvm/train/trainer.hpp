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
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/choose.hpp>
#include <pvm/engine/engine_maker.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/model/network.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/train/trainer_base.hpp>
#include <pvm/unit/learning_rule.hpp>

namespace pvm::inline v0 {

struct TrainerOptions {
  int batch = 1;           ///< number of sequences; used only if the Trainer's Batch is dynamic
  std::uint64_t seed = 0;  ///< of the initial weights
  Reduce reduce = Reduce::mean;  ///< how the updates of the sequences are combined
  Mode mode = Mode::learn;       ///< learn, or freeze: run forward only
  int threads = 0;               ///< host: number of threads; 0: one per core. Changes no result
  bool graph = true;             ///< CUDA: replay captured steps as a CUDA graph
  /// CUDA: numbers of the GPUs that share the network, as far as its engine can be divided. None:
  /// the current one. A single one becomes the current one.
  std::vector<int> devices = {};
  int shards = 0;  ///< CUDA: parts that the network is divided into on these GPUs; 0: one on each
  /// Chooses at run time among the backends that the Trainer's Backend allows.
  BackendChoice backend = BackendChoice::automatic;
  /// CUDA: which of `gpus()`; -1: the one that is current in this thread.
  int device = -1;
  /// Bytes that decoded frames may take in the engine's store, so that later passes need no
  /// decoding. 0: no frames are kept. The default is a quarter of the host's free memory, or half
  /// of the GPU's.
  std::size_t cache_bytes = share_of_free_memory;
  /// Makes the engine instead of the Trainer: a dist::Group, whose processes share the network. On
  /// GPUs each has one: all have `device`, or rank r of a host has the r-th of `devices`, or of
  /// all.
  EngineMaker* ranks = nullptr;
};

/// Trains a network online: each step takes one frame of every sequence and updates the weights.
///
/// Precision: `fp32`, `tf32` (GPU only), `bf16` or `fp16`. Batch: the number of independent
/// sequences that share the weights, or `dynamic` (`TrainerOptions::batch`). Net: a Network, or
/// RuntimeNetwork for a spec known at run time. Backend: `host`, `cuda` or `automatic`. If there
/// are several GPUs, `TrainerOptions::device` is used, or the one that is current in the
/// constructing thread; other threads that use the trainer must make it current too (`use_gpu`),
/// unless `TrainerOptions::devices` names several.
///
///     pvm::Trainer<> trainer{pvm::load_spec("model_zoo/tiny.json")};
///     trainer.fit(source, pvm::Steps{10'000}, pvm::Progress{});
///
///     using Net = pvm::Network<pvm::Input<60, 3, 5>, pvm::Layers<12, 8, 6, 4, 2, 1>>;
///     pvm::Trainer<pvm::bf16, 16, Net> compiled;
template <class Precision = fp32, int Batch = 1, class Net = RuntimeNetwork,
          class Backend = DefaultBackend<Net>>
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
    EngineOptions engine{options.reduce, options.threads, options.graph, true};
    engine.devices = options.devices;
    engine.shards = options.shards;
    const int batch = Batch == dynamic ? options.batch : Batch;
    if (options.device >= 0 && !options.devices.empty()) {
      throw Error(
          Fault::usage,
          "device names the GPU of the run and devices those that share it; give one of them");
    }
    if (options.ranks != nullptr) {
      if (options.device >= 0) engine.devices = {options.device};
      constexpr bool on_host = std::same_as<Backend, host>, on_gpu = std::same_as<Backend, cuda>;
      const BackendChoice wanted = on_host  ? BackendChoice::host
                                   : on_gpu ? BackendChoice::cuda
                                            : options.backend;
      return options.ranks->make(spec, batch, Precision::name, engine, wanted);
    }
    if (options.device >= 0) use_gpu<Backend>(options.device);
    return detail::make_engine<Precision, Batch, Net, Backend>(spec, options.batch, engine,
                                                               options.backend);
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
