// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Checkpoints: everything a run needs to continue with bit-identical results, saved in a
/// safetensors file. docs/checkpoints.md describes the format.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/core/parallel.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/io/extras.hpp>
#include <pvm/io/source.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::io {

/// How far training has got in the source of one sequence of the batch.
struct StreamState {
  Position position;                     ///< of the next frame to be used
  std::uint64_t frames_since_start = 0;  ///< frames used since the current sequence began
  std::string source;                    ///< the source's name without directories
  std::string mark{};                    ///< of the source's files (see `join_marks`), if known
  bool operator==(const StreamState&) const = default;
};

/// A run between two steps. A checkpoint that holds only weights has no streams, and its state is
/// not resumable().
struct Checkpoint {
  Spec spec;
  EngineState state;
  std::vector<StreamState> streams;  ///< one for each sequence of the batch
  std::string precision = "fp32";    ///< fp32, tf32, bf16 or fp16
  Reduce reduce = Reduce::mean;      ///< how the updates of the sequences are combined
  std::uint64_t seed = 0;            ///< of the initial weights
  Extras extras{};                   ///< of a readout, if there is one
  std::string modes{};               ///< `Modes::text()`; empty: none
  std::string chosen{};              ///< what the run had chosen by trials; empty: nothing
};

namespace detail {

template <class T>
bool all_finite(const std::vector<T>& values) {
  std::atomic<bool> finite = true;
  pvm::detail::in_parallel_ranges(values.size(), 1, [&](std::size_t begin, std::size_t end) {
    const auto part = std::span(values).subspan(begin, end - begin);
    if (!std::all_of(part.begin(), part.end(), [](T v) { return std::isfinite(v); })) {
      finite.store(false);
    }
  });
  return finite.load();
}

enum class CheckpointKind { safetensors, native, zip };

/// Throws Fault::checkpoint unless `spec` has `weights` weights. `where` begins the message;
/// `theirs` is the name of the file's own spec, if it says.
void check_weight_count(const std::string& where, std::size_t weights, const Spec& spec,
                        std::string_view theirs = {});

/// `spec` with defaults for everything that may change when a run is continued: name, number of
/// steps, learning rule and rates.
Spec network_of(Spec spec);

/// The first key in which the networks of two specs differ, for error messages.
std::string differing_key(const Spec& a, const Spec& b);

/// The spec to continue with: the caller's `named` if there is one, else the file's `stored`.
/// Throws Fault::usage if there is neither, Fault::checkpoint if they describe different networks.
/// Logs a warning if they differ in their learning rule or rates.
Spec agreed_spec(const std::string& where, const Spec* named, std::optional<Spec> stored);

CheckpointKind kind_of(const std::filesystem::path& path);

/// The name of a source as it will be read back from a checkpoint: what cannot be printed is
/// replaced.
std::string as_saved(const std::string& name);

/// The name of the published spec that has `weights` weights, or empty: to guess in an error
/// message which spec a file belongs to.
std::string_view published_spec_with(std::size_t weights);

/// As save_checkpoint, for values that are known to be finite.
void write_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint);

/// Throws Fault::checkpoint: `what` of the file have values that are not finite.
[[noreturn]] void refuse_not_finite(const std::string& where, const std::string& what);

}  // namespace detail

/// Writes a checkpoint atomically: an existing file of that name is replaced only once the new one
/// is on the disk. The same run at the same step gives the same bytes. Throws Error
/// (Fault::checkpoint) if the file cannot be written, or if a value is not finite.
void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint);

/// Reads a checkpoint: a safetensors file, or a .bin file of the native backend. `spec` may be null
/// if the file holds a spec. If it is not null it must describe the file's network, and the rates,
/// learning rule and number of steps of `spec` apply from here on. A safetensors file with only
/// `weights` is a start at step 0; a .bin file is one at its own step, with the past of a new run.
/// Throws Error with Fault::checkpoint if the file cannot be read, is damaged, or belongs to
/// another spec, Fault::usage if a spec is needed and none was given.
Checkpoint load_checkpoint(const std::filesystem::path& path, const Spec* spec = nullptr);

/// The same without what only learning needs: of a safetensors file, the spec, the weights and the
/// readout are read, and nothing else.
Checkpoint load_network(const std::filesystem::path& path, const Spec* spec = nullptr);

/// Throws Error (Fault::checkpoint) if a value is not finite: the run has diverged.
void require_finite(const Checkpoint& checkpoint);

/// Whether the file is a checkpoint that pvm has saved, whole as far as its header tells.
bool is_checkpoint(const std::filesystem::path& path);

}  // namespace pvm::inline v0::io

#if !defined(PVM_COMPILED)
#include <pvm/io/checkpoint-inl.hpp>
#endif
