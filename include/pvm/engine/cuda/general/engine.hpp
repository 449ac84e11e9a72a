// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The general engine on an NVIDIA GPU, with the kernels in engine/cuda/general. Include it from
/// files that nvcc compiles.

#ifndef __CUDACC__
#error "pvm/engine/cuda is compiled by nvcc: name the file .cu, or use the host engine"
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/compiled_for.hpp>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/facts.hpp>
#include <pvm/engine/cuda/general/arguments.hpp>
#include <pvm/engine/cuda/general/launch.hpp>
#include <pvm/engine/cuda/general/plan/planner.hpp>
#include <pvm/engine/cuda/general/plan/weight_map.hpp>
#include <pvm/engine/cuda/general/shape.hpp>
#include <pvm/engine/cuda/general/tuning.hpp>
#include <pvm/engine/cuda/numbers/network_constants.hpp>
#include <pvm/engine/cuda/run/launched.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/network.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0 {

/// An Engine on the current CUDA device, in fp32. `run` returns at once; frames are uploaded on a
/// stream of their own while steps on earlier frames run. `Net`: a Network, whose hidden size is a
/// constant in the kernels and whose activation may be a type of the program (RunsOnGpu), or
/// RuntimeNetwork.
template <int Batch = dynamic, class Net = RuntimeNetwork>
class CudaGeneralEngine : public detail::LaunchedEngine<CudaGeneralEngine<Batch, Net>> {
  using Base = detail::LaunchedEngine<CudaGeneralEngine>;
  friend Base;
  using Known = detail::ConstantsOf<Net>;
  using Launcher = detail::general::StepLauncher<Batch, Known>;

 public:
  /// `spec` must be valid; throws Error (usage, device, memory).
  explicit CudaGeneralEngine(const Spec& spec, int batch = Batch, const EngineOptions& options = {})
      : CudaGeneralEngine(check_spec(spec), detail::check_batch<Batch>(batch), options,
                          detail::describe_device()) {}

  ~CudaGeneralEngine() { this->stop(); }

  /// W(step) in reference order, `connectome().weights` floats.
  void read_weights(std::span<float> out) {
    materialise();
    map().export_weights(download(copy_), download(bias_copy_), out);
  }

  /// The prediction for two steps ahead, [batch][side][side][channels] in [0, 1].
  void read_prediction(std::span<float> out) {
    const std::vector<float> y = last_outputs();
    for (std::size_t b = 0; b < count(batch_); ++b) {
      for (std::size_t u = 0; u < patches(); ++u) {
        const float* from = y.data() + b * planner_.y_columns + planner_.output_start[u];
        for (std::size_t k = 0; k < patch_size(); ++k) {
          out[b * spec_.frame_size() + pixel(u, k)] = unsqueeze(from[k]);
        }
      }
    }
  }

  /// h of the last step, [batch][units][hidden].
  void read_hidden(std::span<float> out) {
    for (std::size_t b = 0; b < count(batch_); ++b) {
      download_part(past_, past_row(1, b) + shape_.raw(0),
                    out.subspan(b * shape_.values, shape_.values));
    }
  }

  /// y of the last step, [batch][outputs], unit by unit.
  void read_outputs(std::span<float> out) {
    const std::vector<float> y = last_outputs();
    visit_outputs([&](std::size_t tensor, std::size_t own, std::size_t n) {
      std::copy_n(y.data() + own, n, out.data() + tensor);
    });
  }

  /// The state, for a checkpoint. Does not change what the run computes afterwards.
  [[nodiscard]] EngineState save() {
    EngineState state = this->save_run();
    state.folded.resize(net_.weights);
    const std::vector<float> d1 = download(past_d1_);
    map().export_weights(download(arena_), d1, state.folded);
    save_past(state, d1);
    return state;
  }

  [[nodiscard]] std::string description() const {
    return "CUDA engine: " + device_.name + ", " + std::to_string(device_.multiprocessors) +
           " multiprocessors, " + std::to_string(memory_needed() >> 20) + " MiB, " +
           std::to_string(planner_.resident_f4 >> 16) + " MiB of weights on the chip, " +
           (Launcher::constant_hidden != 0
                ? "kernels for " + std::to_string(Launcher::constant_hidden) + " hidden values, "
                : "") +
           "updates folded every " + std::to_string(plans_.w0.period) + " steps, " +
           (options_.graph ? "captured" : "one launch a step");
  }
  /// Bytes of device memory the engine takes.
  [[nodiscard]] std::size_t memory_needed() const {
    const std::size_t b = count(batch_);
    const std::size_t floats = 2 * (planner_.arena_f4 * 4 + planner_.history_floats) +
                               ring() * b * shape_.row() + 2 * b * planner_.y_columns +
                               inner_size() + y_scratch_floats() * count(device_.multiprocessors) +
                               planner_.blobs.size() + planner_.blob_start.size() +
                               planner_.source_words.size() + score_size() * 2;
    return floats * sizeof(float) + this->staging_bytes();
  }

 private:
  using Base::count, Base::layers, Base::patches, Base::patch_size, Base::hidden_row, Base::pixel,
      Base::allocate_and_fill, Base::fill, Base::download, Base::clear, Base::spec_, Base::options_,
      Base::batch_, Base::device_, Base::net_, Base::plans_, Base::tables_, Base::compute_,
      Base::step_;
  template <class T>
  using Array = detail::DeviceArray<T>;

  CudaGeneralEngine(const Spec& spec, int batch, const EngineOptions& options,
                    const detail::DeviceFacts& device)
      : Base(spec, batch, options, device,
             DeferralPlan::for_momentum(spec.momentum,
                                        std::max(1, device.tuning.fold_period / batch))),
        shape_(spec_, net_, plans_.w0, batch_),
        planner_(spec_, net_, shape_, device_.multiprocessors, device_.shared_bytes,
                 device_.cache_bytes),
        launcher_(net_.hidden, shape_.rows_per_tile, batch_ == 1, device_.multiprocessors,
                  planner_.shared_bytes) {
    check_sizes();
    this->require_memory(memory_needed(), " with a batch of " + std::to_string(batch_));
    allocate();
    start_state(std::vector<float>(net_.weights), nullptr);
    this->capture();
  }

  static const Spec& check_spec(const Spec& spec) {
    detail::check_own_activation<typename Known::Own>(spec);
    detail::check_hidden<Known::hidden>(spec);
    return spec;
  }
  /// Slots of the rings: the listed gradients, the steps that their factors lag behind, and the
  /// frames that are converted ahead.
  [[nodiscard]] std::size_t ring() const { return count(plans_.w0.terms) + 10; }
  /// Ring slot of step `step_ - back`.
  [[nodiscard]] std::size_t ring_row(std::uint64_t back) const {
    return static_cast<std::size_t>((step_ + 2 * ring() - back) % ring());
  }
  /// Index in `past_` at which sequence b of step `step_ - back` starts.
  [[nodiscard]] std::size_t past_row(std::uint64_t back, std::size_t b) const {
    return (ring_row(back) * count(batch_) + b) * shape_.row();
  }
  [[nodiscard]] std::size_t inner_size() const {
    return 3 * count(batch_) * (net_.units.size() + patches() + 1) * count(shape_.list);
  }
  [[nodiscard]] std::size_t score_size() const {
    return count(device_.multiprocessors) * detail::step_threads * 3;
  }
  [[nodiscard]] std::size_t y_scratch_floats() const {  // for each SM
    return std::max<std::size_t>(4, planner_.y_floats);
  }
  [[nodiscard]] detail::general::WeightMap map() const { return {net_, shape_, planner_}; }
  [[nodiscard]] std::string layout_name() const {
    return "folds by panel on " + std::to_string(device_.multiprocessors) + " multiprocessors";
  }

  /// Throws Error (usage) where an offset would not fit into the kernel's 32 bits.
  void check_sizes() const {
    const std::size_t most =
        std::max({ring() * count(batch_) * shape_.row(), inner_size(), planner_.history_floats});
    if (most >> 31 != 0) {
      throw Error(Fault::usage,
                  "this batch and momentum are too large for the GPU engine; use a"
                  " smaller batch or the host backend");
    }
  }

  void download_part(const detail::DeviceArray<float>& from, std::size_t at, std::span<float> out) {
    detail::cuda_check(cudaMemcpyAsync(out.data(), from.get() + at, out.size() * sizeof(float),
                                       cudaMemcpyDeviceToHost, compute_.get()),
                       "reading results");
    this->synchronize();
  }
  [[nodiscard]] std::vector<float> last_outputs() {
    const std::size_t row = count(batch_) * planner_.y_columns;
    std::vector<float> y(row);
    download_part(y_, static_cast<std::size_t>((step_ + 1) % 2) * row, y);
    return y;
  }

  void allocate() {
    const std::size_t b = count(batch_);
    this->allocate_staging(score_size());
    allocate_and_fill(blobs_, planner_.blobs);
    allocate_and_fill(blob_start_, planner_.blob_start);
    allocate_and_fill(source_words_, planner_.source_words);
    using Floats = Array<float>;
    arena_ = Floats(planner_.arena_f4 * 4);
    copy_ = Floats(planner_.arena_f4 * 4);
    past_d1_ = Floats(planner_.history_floats);
    bias_copy_ = Floats(planner_.history_floats);
    clear(copy_);  // downloaded as a whole, with padding that no kernel writes
    clear(bias_copy_);
    past_ = Floats(ring() * b * shape_.row());
    y_ = Floats(2 * b * planner_.y_columns);
    inner_ = Floats(inner_size());
    y_scratch_ = Floats(y_scratch_floats() * count(device_.multiprocessors));
  }

  [[nodiscard]] detail::general::StepArguments arguments(int most_steps) const {
    using detail::general::Divider;
    detail::general::StepArguments a{};
    this->describe(a, most_steps);
    a.hidden = net_.hidden;
    a.padded = shape_.padded;
    a.groups = shape_.groups;
    a.parts = shape_.parts;
    a.passes = shape_.passes;
    a.terms = plans_.w0.terms;
    a.period = plans_.w0.period;
    a.batch = batch_;
    a.list = shape_.list;
    a.history = shape_.history;
    a.history_rows = shape_.history_rows();
    a.chunks = shape_.chunks;
    a.ring = static_cast<int>(ring());
    a.past_row = static_cast<unsigned>(shape_.row());
    a.first_raw = static_cast<unsigned>(shape_.raw(0));
    a.first_d0 = static_cast<unsigned>(shape_.d0(0));
    a.first_pixel = static_cast<unsigned>(shape_.pixel(0));
    a.y_columns = static_cast<int>(planner_.y_columns);
    a.by_list = Divider(shape_.list);
    a.by_hidden = Divider(net_.hidden);
    a.by_history_rows = Divider(shape_.history_rows());
    a.by_chunks = Divider(shape_.chunks);
    a.by_padded = Divider(shape_.padded);
    a.by_batch = Divider(batch_);
    a.by_parts = Divider(shape_.parts);
    a.by_row_factors = Divider(shape_.groups * 8);
    a.blobs = blobs_.get();
    a.blob_start = blob_start_.get();
    a.source_words = source_words_.get();
    a.arena = reinterpret_cast<float4*>(arena_.get());
    a.past_d1 = past_d1_.get();
    a.past = past_.get();
    a.y = y_.get();
    a.inner = inner_.get();
    a.y_scratch = y_scratch_.get();
    a.y_scratch_floats = y_scratch_floats();
    return a;
  }

  void launch_steps(int most, cudaStream_t stream) const {
    launcher_.steps(arguments(most), stream);
  }

  /// Writes W(step) to copy_ and bias_copy_.
  void materialise() {
    this->write_tables_now();
    launcher_.materialise(arguments(0), step_, this->now_index_.get(), this->now_tables_.get(),
                          reinterpret_cast<float4*>(copy_.get()), bias_copy_.get(), compute_.get());
  }

  /// Sets Z to W(step).
  void fold_everything() {
    materialise();
    this->copy(arena_, copy_);
    std::vector<float> d1 = download(past_d1_);
    map().copy_bias(download(bias_copy_), d1);
    fill(past_d1_, d1);
  }

  /// Initialises device memory for a run that continues at step_, with Z (reference order) and the
  /// past of `state`; null: of a new run.
  void start_state(const std::vector<float>& folded, const EngineState* state) {
    std::vector<float> arena(arena_.size());
    std::vector<float> d1(past_d1_.size());
    map().import_weights(folded, arena, d1);
    fill(arena_, arena);
    std::vector<float> past(past_.size(), 1.0F), y(y_.size(), 1.0F);
    for (std::size_t row = 0; row < past.size(); row += shape_.row()) {
      past[row + shape_.zero()] = 0.0F;
      std::fill_n(past.data() + row + shape_.d0(0), shape_.values, 0.0F);
    }
    for (std::size_t b = 0; b < count(batch_); ++b) {  // x(0) contains c(h(-1))
      std::fill_n(past.data() + past_row(1, b), shape_.values, squeeze(1.0F));
    }
    if (state != nullptr) load_past(*state, past, y, d1);
    fill(past_, past);
    fill(y_, y);
    fill(past_d1_, d1);
    fill(inner_, std::vector<float>(inner_.size(), 1.0F));  // the row of the bias stays 1
    this->set_cursor();
    launcher_.restore_products(arguments(0), step_, compute_.get());
    this->synchronize();
  }

  // The visit functions map a checkpoint's tensors to the arrays of the engine.

  /// Calls visit(tensor offset, past_ offset, length) for the last `rows` steps of h, c(h) or d0;
  /// `first`: offset of these values in a row of past_.
  template <class Visit>
  void visit_hidden(std::size_t rows, std::size_t first, Visit visit) const {
    for (std::size_t back = 1; back <= rows; ++back) {
      for (std::size_t b = 0; b < count(batch_); ++b) {
        visit(((back - 1) * count(batch_) + b) * shape_.values, past_row(back, b) + first,
              shape_.values);
      }
    }
  }
  /// Calls visit(tensor offset, y_ offset, length) for y of one step, unit by unit.
  template <class Visit>
  void visit_outputs(Visit visit) const {
    std::size_t at = 0;
    for (std::size_t b = 0; b < count(batch_); ++b) {
      for (std::size_t u = 0; u < net_.units.size(); ++u) {
        const auto n = count(net_.units[u].outputs);
        visit(at, b * planner_.y_columns + planner_.output_start[u], n);
        at += n;
      }
    }
  }
  /// Calls visit(tensor offset, past_d1_ offset, length) for the listed d1 of `terms` steps.
  template <class Visit>
  void visit_d1(std::size_t terms, Visit visit) const {
    const auto rows = count(shape_.history);
    std::size_t at = 0;
    for (std::size_t age = 0; age < terms; ++age) {
      const auto m = static_cast<std::size_t>((step_ + 2 * rows - 1 - age) % rows);
      for (std::size_t b = 0; b < count(batch_); ++b) {
        for (std::size_t u = 0; u < net_.units.size(); ++u) {
          const auto n = count(net_.units[u].outputs);
          visit(at,
                planner_.history_start[u] + (m * count(batch_) + b) * planner_.history_stride[u],
                n);
          at += n;
        }
      }
    }
  }
  /// Calls visit(tensor offset, past_ offset) for each pixel of the last `rows` frames.
  template <class Visit>
  void visit_frames(std::size_t rows, Visit visit) const {
    const std::size_t frame = spec_.frame_size();
    for (std::size_t back = 1; back <= rows; ++back) {
      for (std::size_t b = 0; b < count(batch_); ++b) {
        const std::size_t tensor = ((back - 1) * count(batch_) + b) * frame;
        const std::size_t own = past_row(back, b) + shape_.pixel(0);
        for (std::size_t u = 0; u < patches(); ++u) {
          for (std::size_t k = 0; k < patch_size(); ++k) {
            visit(tensor + pixel(u, k), own + u * patch_size() + k);
          }
        }
      }
    }
  }

  void save_past(EngineState& state, const std::vector<float>& d1) {
    const auto terms = count(plans_.w0.terms);
    const std::vector<float> past = download(past_);
    const auto copy = [](const std::vector<float>& own, std::vector<float>& tensor) {
      return [&](std::size_t to, std::size_t from, std::size_t n) {
        std::copy_n(own.data() + from, n, tensor.data() + to);
      };
    };
    state.hidden.resize((terms + 4) * hidden_row());
    state.squeezed.resize((terms + 4) * hidden_row());
    visit_hidden(terms + 4, shape_.raw(0), copy(past, state.hidden));
    visit_hidden(terms + 4, shape_.squeezed(0), copy(past, state.squeezed));
    state.frames.resize((terms + 4) * count(batch_) * spec_.frame_size());
    visit_frames(terms + 4,
                 [&](std::size_t to, std::size_t from) { state.frames[to] = past[from]; });
    state.hidden_gradients.resize(terms * hidden_row());
    visit_hidden(terms, shape_.d0(0), copy(past, state.hidden_gradients));
    const std::vector<float> y = download(y_);
    const std::size_t row = count(batch_) * net_.outputs;
    state.outputs.resize(2 * row);
    for (std::uint64_t back = 1; back <= 2; ++back) {
      const std::size_t own = y_row(back);
      visit_outputs([&](std::size_t to, std::size_t from, std::size_t n) {
        std::copy_n(y.data() + own + from, n, state.outputs.data() + (back - 1) * row + to);
      });
    }
    state.output_gradients.resize(terms * row);
    visit_d1(terms, [&](std::size_t to, std::size_t from, std::size_t n) {
      std::copy_n(d1.data() + from, n, state.output_gradients.data() + to);
    });
  }

  /// Index in y_ at which y of step `step_ - back` starts.
  [[nodiscard]] std::size_t y_row(std::uint64_t back) const {
    return static_cast<std::size_t>((step_ + 4 - back) % 2) * count(batch_) * planner_.y_columns;
  }

  void load_past(const EngineState& state, std::vector<float>& past, std::vector<float>& y,
                 std::vector<float>& d1) const {
    const auto terms = std::min(count(plans_.w0.terms), count(state.plan.terms));
    const auto copy = [](const std::vector<float>& tensor, std::vector<float>& own) {
      return [&](std::size_t from, std::size_t to, std::size_t n) {
        std::copy_n(tensor.data() + from, n, own.data() + to);
      };
    };
    visit_hidden(terms + 4, shape_.raw(0), copy(state.hidden, past));
    visit_hidden(terms + 4, shape_.squeezed(0), copy(state.squeezed, past));
    visit_frames(terms + 4,
                 [&](std::size_t from, std::size_t to) { past[to] = state.frames[from]; });
    visit_hidden(terms, shape_.d0(0), copy(state.hidden_gradients, past));
    const std::size_t row = count(batch_) * net_.outputs;
    for (std::uint64_t back = 1; back <= 2; ++back) {
      const std::size_t own = y_row(back);
      visit_outputs([&](std::size_t from, std::size_t to, std::size_t n) {
        std::copy_n(state.outputs.data() + (back - 1) * row + from, n, y.data() + own + to);
      });
    }
    visit_d1(terms, [&](std::size_t from, std::size_t to, std::size_t n) {
      std::copy_n(state.output_gradients.data() + from, n, d1.data() + to);
    });
  }

  detail::general::StepShape shape_;
  detail::general::Planner planner_;
  Launcher launcher_;
  Array<std::uint32_t> blobs_, blob_start_, source_words_;
  Array<float> arena_, copy_;         // Z; W after `materialise`
  Array<float> past_d1_, bias_copy_;  // listed d1 and biases of Z; biases of W
  Array<float> past_, y_, inner_, y_scratch_;
};

}  // namespace pvm::inline v0
