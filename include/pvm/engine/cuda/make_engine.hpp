// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Chooses among the engines on an NVIDIA GPU. Include it from files that nvcc compiles.

#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <pvm/core/error.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/cuda/batch/engine.hpp>
#include <pvm/engine/cuda/batch/shards.hpp>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/devices.hpp>
#include <pvm/engine/cuda/device/facts.hpp>
#include <pvm/engine/cuda/device/imagined.hpp>
#include <pvm/engine/cuda/general/engine.hpp>
#include <pvm/engine/cuda/make_one.hpp>
#include <pvm/engine/cuda/numbers/network_constants.hpp>
#include <pvm/engine/cuda/units/make_planned.hpp>
#include <pvm/engine/cuda/units/own_activation.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/network.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/learning_rule.hpp>

namespace pvm::inline v0::detail {

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

/// Whether an engine in `units/` is possible for these template arguments. Whether it fits the spec
/// and the GPU is known at run time only.
template <class Precision, int Batch, class Net>
consteval bool may_be_whole_units() {
  constexpr bool one_sequence = Batch == 1 || Batch == dynamic;
  constexpr bool momentum = std::same_as<CudaRule<Net>, Momentum>;
  return !std::same_as<Precision, tf32> && one_sequence && momentum &&
         (Net::hidden == dynamic || padded_hidden<Precision>(Net::hidden) > 0);
}

/// Whether CudaGeneralEngine is possible for these template arguments.
template <class Precision, int Batch, class Net>
consteval bool may_be_general() {
  return !std::same_as<Precision, tf32> && (Batch == 1 || Batch == dynamic) &&
         std::same_as<CudaRule<Net>, Momentum>;
}

/// Whether CudaGeneralEngine is the better choice for one sequence. It is not where its list of
/// gradients would be too long, nor, in 16 bits, for the smallest networks: CudaBatchEngine has
/// fewer barriers in a step.
template <class Precision>
bool worth_general(const Spec& spec) {
  constexpr std::size_t small = 1'000'000;
  if (!CudaGeneralEngine<Precision>::can_list(spec)) return false;
  return std::same_as<Precision, fp32> || make_connectome(spec).weights >= small;
}

#if defined(PVM_COMPILED)
// The engines for specs are in the library.
#define PVM_IN_LIBRARY(...) \
  extern template AnyEngine make_of<__VA_ARGS__>(const Spec&, int, const EngineOptions&);
#define PVM_PLANNED_IN_LIBRARY(...)                                                  \
  extern template std::optional<AnyEngine> make_if_planned<__VA_ARGS__>(const Spec&, \
                                                                        const EngineOptions&);
#define PVM_ENGINES_IN_LIBRARY(Precision)                                   \
  PVM_PLANNED_IN_LIBRARY(CudaResidentEngine<Precision, units_hidden>)       \
  PVM_PLANNED_IN_LIBRARY(CudaResidentEngine<Precision, small_units_hidden>) \
  PVM_PLANNED_IN_LIBRARY(CudaStreamedEngine<Precision, units_hidden>)       \
  PVM_IN_LIBRARY(CudaGeneralEngine<Precision>)                              \
  PVM_IN_LIBRARY(CudaBatchEngine<Precision, dynamic, Momentum, void>)       \
  PVM_IN_LIBRARY(CudaBatchShardsEngine<Precision, dynamic, Momentum, void>)
PVM_PLANNED_IN_LIBRARY(CudaStreamedEngine<bf16, large_units_hidden>)
PVM_PLANNED_IN_LIBRARY(CudaStreamedEngine<bf16, largest_units_hidden>)
PVM_PLANNED_IN_LIBRARY(CudaContextEngine<bf16, units_hidden>)
PVM_PLANNED_IN_LIBRARY(CudaLongListEngine<fp32, units_hidden>)
PVM_ENGINES_IN_LIBRARY(fp32)
PVM_ENGINES_IN_LIBRARY(bf16)
PVM_ENGINES_IN_LIBRARY(fp16)
PVM_IN_LIBRARY(CudaBatchEngine<tf32, dynamic, Momentum, void>)
PVM_IN_LIBRARY(CudaBatchShardsEngine<tf32, dynamic, Momentum, void>)
#undef PVM_ENGINES_IN_LIBRARY
#undef PVM_PLANNED_IN_LIBRARY
#undef PVM_IN_LIBRARY
#endif

/// The engine in `units/` that is compiled for `Hidden` values of a unit, for one sequence of
/// `spec`, if there is one and it is the better choice.
template <class Precision, int Hidden>
std::optional<AnyEngine> make_units_of(const Spec& spec, const EngineOptions& options) {
  if constexpr (Hidden > units_hidden) {
    return make_if_planned<CudaStreamedEngine<Precision, Hidden>>(spec, options);
  } else {
    if constexpr (Hidden == units_hidden && std::same_as<Precision, bf16>) {
      if (spec.feed_context_in_complex_layer) {
        return make_if_planned<CudaContextEngine<Precision, Hidden>>(spec, options);
      }
    }
    auto engine = make_if_planned<CudaResidentEngine<Precision, Hidden>>(spec, options);
    if constexpr (Hidden == units_hidden) {
      if (!engine && (options.divided() || worth_streaming<Precision>(spec))) {
        engine = make_if_planned<CudaStreamedEngine<Precision, Hidden>>(spec, options);
      }
      if constexpr (std::same_as<Precision, fp32>) {
        if (!engine && !options.divided()) {
          return make_if_planned<CudaLongListEngine<fp32, Hidden>>(spec, options);
        }
      }
    }
    return engine;
  }
}

/// The engine in `units/` for one sequence of `spec`, if there is one and it is the better choice.
template <class Precision, class Net>
std::optional<AnyEngine> make_whole_units(const Spec& spec, const EngineOptions& options) {
  if constexpr (!std::is_void_v<OwnOnGpu<Net>>) {
    return make_own_units<Precision, Net>(spec, options);
  } else if constexpr (Net::hidden != dynamic) {
    return make_units_of<Precision, padded_hidden<Precision>(Net::hidden)>(spec, options);
  } else {
    const int hidden = padded_hidden<Precision>(spec.hidden());
    if (hidden == units_hidden) return make_units_of<Precision, units_hidden>(spec, options);
    if (hidden == small_units_hidden) {
      return make_units_of<Precision, small_units_hidden>(spec, options);
    }
    if constexpr (std::same_as<Precision, bf16>) {
      if (hidden == large_units_hidden) {
        return make_units_of<Precision, large_units_hidden>(spec, options);
      }
      if (hidden == largest_units_hidden) {
        return make_units_of<Precision, largest_units_hidden>(spec, options);
      }
    }
    return std::nullopt;
  }
}

/// The engine for a network that is to be divided, but not by the engines in `units/`: for several
/// sequences CudaBatchShardsEngine. Throws Error (usage) where there is none.
template <class Precision, int Batch, class Net>
AnyEngine make_batch_shards(const Spec& spec, int batch, const EngineOptions& options) {
  if constexpr (Batch != 1) {
    if (batch > 1 && options.ranks == nullptr) {
      return make_of<CudaBatchShardsEngine<Precision, Batch, CudaRule<Net>, OwnOnGpu<Net>>>(
          spec, batch, options);
    }
  }
  if (batch > 1) {
    throw Error(Fault::usage,
                "a batch cannot be divided among GPUs of several ranks; start one process with "
                "several devices, or let all ranks compute on the host");
  }
  throw Error(
      Fault::usage,
      "one sequence of this network cannot be divided among GPUs or into shards: that takes "
      "fp32 or bf16, units of " +
          std::to_string(units_hidden) +
          " hidden values, and what the engines for whole units can do (docs/engines.md); " +
          (options.ranks != nullptr ? "start one rank, or let all compute on the host"
                                    : "leave devices and shards out, or train several sequences"));
}

/// Chooses the engine on the GPU. For one sequence with momentum, in this order:
/// CudaResidentEngine, which keeps as many weights as possible on the chip, if the network fits it;
/// CudaStreamedEngine, which streams the weights of whole units, if the network fits it and
/// worth_streaming; CudaGeneralEngine, for networks of any units, if worth_general and the GPU has
/// room for it. Everything else runs on CudaBatchEngine, on tensor cores. The first two can be
/// divided (CudaShardsEngine), and so can several sequences (CudaBatchShardsEngine). A single GPU
/// that `options` name becomes the current one. Throws Fault::device for what a GPU cannot run.
template <class Precision, int Batch, class Net>
AnyEngine make_cuda_engine(const Spec& spec, int batch, const EngineOptions& options) {
  using Rule = CudaRule<Net>;
  if (options.devices.size() == 1) {
    require_devices(options.devices);
    if (imagined_gpu() == nullptr) {
      cuda_check(cudaSetDevice(options.devices[0]), "choosing a GPU");
    }
  }
  const std::string lacks = lacks_on_gpu<Net>(spec);
  if (!lacks.empty()) {
    throw Error(Fault::device, "the CUDA engines have no " + lacks + "; use the host backend");
  }
  if constexpr (may_be_whole_units<Precision, Batch, Net>()) {
    if (batch == 1) {
      if (auto engine = make_whole_units<Precision, Net>(spec, options)) return std::move(*engine);
    }
  }
  if (options.divided()) return make_batch_shards<Precision, Batch, Net>(spec, batch, options);
  constexpr bool general = may_be_general<Precision, Batch, Net>();
  if constexpr (general && Batch == 1 && std::same_as<Precision, fp32>) {
    // The only other engine, so that types for one sequence in fp32 compile in half a minute.
    return make_of<CudaGeneralEngine<Precision, Net>>(spec, batch, options);
  } else {
    if constexpr (general) {
      if (batch == 1 && worth_general<Precision>(spec)) {
        try {
          return make_of<CudaGeneralEngine<Precision, Net>>(spec, batch, options);
        } catch (const Error& error) {
          // CudaBatchEngine keeps less on a multiprocessor, so it runs what has no room there.
          if (error.fault() != Fault::memory) throw;
        }
      }
    }
    return make_of<CudaBatchEngine<Precision, Batch, Rule, OwnOnGpu<Net>>>(spec, batch, options);
  }
}

}  // namespace pvm::inline v0::detail
