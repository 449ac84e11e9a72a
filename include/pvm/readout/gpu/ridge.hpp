// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The ridge readout that learns on an NVIDIA GPU. Include it from files that nvcc compiles.

#ifndef __CUDACC__
#error "pvm/readout/gpu is compiled by nvcc: name the file .cu, or use the readouts of the host"
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/follower.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/source.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/readout/gpu/followed.cuh>
#include <pvm/readout/gpu/gram_kernel.cuh>
#include <pvm/readout/readout.hpp>
#include <pvm/readout/ridge.hpp>
#include <pvm/readout/target.hpp>

namespace pvm::inline v0::readout {

/// RidgeReadout with weights for each position, whose Gram matrices are on the current CUDA device.
/// Beside an engine for one sequence on the GPU it follows whole blocks of steps; beside any other
/// it is given one step at a time. It is solved on the host when a heatmap is asked for.
class CudaRidgeReadout final : public Readout, private StepFollower {
 public:
  /// Throws Error (usage) if the options make no sense or the weights are shared, and Error
  /// (device, memory).
  CudaRidgeReadout(const Spec& spec, const Connectome& net, const RidgeOptions& options = {})
      : host_(spec, net, check(options)),
        hidden_values_(net.units.size() * static_cast<std::size_t>(net.hidden)),
        frame_bytes_(spec.frame_size()) {
    describe_columns(net);
    sums_ = gpu::DeviceArray<double>(sum_count_);
    const auto rows = static_cast<std::size_t>(gpu::kept_rows);
    kept_hidden_ = gpu::DeviceArray<float>(rows * hidden_values_);
    kept_targets_ = gpu::DeviceArray<float>(rows * host_.inputs().positions());
    kept_frames_ = gpu::DeviceArray<std::uint8_t>(rows * frame_bytes_);
    own_.prepare(hidden_values_, frame_bytes_);
    own_steps_.prepare(own_.steps(), record_size());
    send();
  }
  CudaRidgeReadout(const CudaRidgeReadout&) = delete;
  CudaRidgeReadout& operator=(const CudaRidgeReadout&) = delete;
  ~CudaRidgeReadout() override { (void)cudaDeviceSynchronize(); }

  [[nodiscard]] const RidgeOptions& options() const noexcept { return host_.options(); }
  [[nodiscard]] int heat_side() const noexcept override { return host_.heat_side(); }
  [[nodiscard]] bool reads_hidden() const noexcept override { return host_.reads_hidden(); }
  /// The number of labelled frames that it has learned from.
  [[nodiscard]] std::uint64_t frames() const noexcept { return frames_; }

  bool follow(AnyEngine& engine) override { return engine.follow(this); }
  void expect(std::uint64_t /*step*/, std::span<const io::Label> labels) override {
    for (const io::Label& label : labels) check_label(label, host_.inputs().frame_side());
    const auto records = steps_.expect(labels.size());
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (labels[i].state == io::LabelState::unlabelled) continue;
      write_record(labels[i], records.subspan(i * record_size(), record_size()));
    }
  }
  void observe(std::span<const float> hidden, std::span<const std::uint8_t> frame,
               const io::Label& label) override {
    host_.inputs().check(hidden.size(), frame.size(), hidden_values_);
    if (label.state == io::LabelState::unlabelled) return;
    check_label(label, host_.inputs().frame_side());
    gpu::wait_for_device();
    own_.write(1, host_.reads_hidden() ? hidden : std::span<const float>{}, frame);
    write_record(label, own_steps_.expect(1));
    own_steps_.upload(0, 1, nullptr);
    gpu::GramArguments a = arguments();
    a.steps = own_steps_.device();
    gpu::launch_keep(a, own_.steps(), nullptr);
    end_block(nullptr);
    gpu::wait_for_device();
  }
  void heat(std::span<const float> hidden, std::span<const std::uint8_t> frame,
            std::span<float> out) override {
    solved().heat(hidden, frame, out);
  }
  /// What it has learned.
  [[nodiscard]] RidgeReadout::Sums sums() {
    fetch();
    return host_.sums();
  }
  /// The same readout on the host, as it is now.
  RidgeReadout& solved() {
    fetch();
    host_.solve();
    return host_;
  }

  void save(io::Extras& extras) override {
    fetch();
    host_.save(extras);
  }
  void restore(const io::Extras& extras) override {
    host_.restore(extras);
    send();
  }

 private:
  static const RidgeOptions& check(const RidgeOptions& options) {
    if (!options.shared) return options;
    throw Error(Fault::usage,
                "a readout with shared weights learns on the host: it has a single small matrix");
  }

  // Following an engine.
  void prepare(const FollowedSteps& steps) override {
    if (steps.block_steps > gpu::gram_rows) {
      throw Error(Fault::usage, "a readout follows blocks of at most 256 steps");
    }
    steps_.prepare(steps, record_size());
  }
  void upload(std::size_t slot, int steps, void* stream) override {
    steps_.upload(slot, steps, static_cast<cudaStream_t>(stream));
  }
  void launch(const FollowedSteps& steps, void* stream) override {
    gpu::GramArguments a = arguments();
    a.steps = steps_.device();
    gpu::launch_keep(a, steps, static_cast<cudaStream_t>(stream));
  }
  /// Adds the blocks of rows that are complete.
  void end_block(void* stream) override {
    for (; added_ + gpu::gram_rows <= kept_; added_ += gpu::gram_rows) {
      gpu::launch_grams(arguments(), static_cast<int>(added_ % gpu::kept_rows),
                        static_cast<int>(most_columns_), static_cast<cudaStream_t>(stream));
    }
  }

  [[nodiscard]] std::size_t record_size() const {
    return 1 + 2 * static_cast<std::size_t>(host_.cells());
  }
  void write_record(const io::Label& label, std::span<float> record) {
    const auto cells = static_cast<std::size_t>(host_.cells());
    record[0] = static_cast<float>(kept_++ % gpu::kept_rows + 1);
    cover_lines(label, host_.inputs().frame_side(), record.subspan(1, cells),
                record.subspan(1 + cells, cells));
    ++frames_;
    changed_ = true;
  }

  /// Lists what the columns of each position's rows are: its inputs, 1, and the target.
  void describe_columns(const Connectome& net) {
    std::vector<std::uint32_t> columns, start{0};
    std::vector<std::size_t> sums{0};
    const Inputs& inputs = host_.inputs();
    const auto hidden = static_cast<std::uint32_t>(net.hidden);
    for (std::size_t p = 0; p < inputs.positions(); ++p) {
      if (inputs.kinds().hidden) {
        for (const std::uint32_t unit : inputs.units()[p]) {
          for (std::uint32_t k = 0; k < hidden; ++k) {
            columns.push_back(gpu::hidden_column | (unit * hidden + k));
          }
        }
      }
      if (inputs.kinds().pixels) {
        const std::vector<std::size_t> bytes = inputs.patch_bytes(p);
        for (const std::size_t at : bytes) {
          columns.push_back(gpu::pixel_column | static_cast<std::uint32_t>(at));
        }
      }
      columns.push_back(gpu::one_column);
      columns.push_back(gpu::target_column);
      const std::size_t count = columns.size() - start.back();
      most_columns_ = std::max(most_columns_, count);
      start.push_back(static_cast<std::uint32_t>(columns.size()));
      sums.push_back(sums.back() + count * (count + 1) / 2);
    }
    sum_count_ = sums.back();
    columns_ = gpu::upload(std::span<const std::uint32_t>(columns));
    column_start_ = gpu::upload(std::span<const std::uint32_t>(start));
    sum_start_ = gpu::upload(std::span<const std::size_t>(sums));
  }

  [[nodiscard]] gpu::GramArguments arguments() const {
    gpu::GramArguments a{};
    a.cells = host_.cells();
    a.hidden = static_cast<int>(hidden_values_);
    a.frame_bytes = static_cast<int>(frame_bytes_);
    a.kept_hidden = kept_hidden_.get();
    a.kept_targets = kept_targets_.get();
    a.kept_frames = kept_frames_.get();
    a.columns = columns_.get();
    a.column_start = column_start_.get();
    a.sum_start = sum_start_.get();
    a.sums = sums_.get();
    return a;
  }

  /// Brings what has been learned to the host.
  void fetch() {
    gpu::wait_for_device();
    if (!std::exchange(changed_, false)) return;
    RidgeReadout::Sums all;
    all.frames = frames_;
    all.triangles = gpu::download(sums_.get(), sum_count_);
    all.rows.assign(host_.inputs().positions(), rows_before_ + static_cast<std::size_t>(added_));
    all.buffered = static_cast<std::size_t>(kept_ - added_);
    const auto rows = [&](const auto& kept, std::size_t each) {
      const std::size_t first = added_ % gpu::kept_rows * each;
      return gpu::download(kept.get() + first, all.buffered * each);
    };
    if (host_.reads_hidden()) all.hidden = rows(kept_hidden_, hidden_values_);
    all.targets = rows(kept_targets_, host_.inputs().positions());
    all.pixels = rows(kept_frames_, frame_bytes_);
    host_.set_sums(std::move(all));
  }
  /// Brings what the host has to the device.
  void send() {
    gpu::wait_for_device();
    const RidgeReadout::Sums all = host_.sums();
    frames_ = all.frames;
    added_ = 0;  // in the buffer's count: rows that were added before it are in the sums
    kept_ = all.buffered;
    rows_before_ = all.rows.front();
    gpu::write(sums_, std::span<const double>(all.triangles));
    gpu::write(kept_hidden_, std::span<const float>(all.hidden));
    gpu::write(kept_targets_, std::span<const float>(all.targets));
    gpu::write(kept_frames_, std::span<const std::uint8_t>(all.pixels));
    changed_ = false;
  }

  RidgeReadout host_;  // the options, the solver, and the form in files; what it knows may be old
  std::size_t hidden_values_, frame_bytes_;
  std::size_t most_columns_ = 0, sum_count_ = 0;
  gpu::DeviceArray<std::uint32_t> columns_, column_start_;
  gpu::DeviceArray<std::size_t> sum_start_;
  gpu::DeviceArray<double> sums_;
  gpu::DeviceArray<float> kept_hidden_, kept_targets_;
  gpu::DeviceArray<std::uint8_t> kept_frames_;
  gpu::StepRecords<float> steps_, own_steps_;
  gpu::OwnSteps own_;
  std::uint64_t frames_ = 0;            // labelled frames learned
  std::uint64_t kept_ = 0, added_ = 0;  // rows put into the buffer, and added to the sums
  std::size_t rows_before_ = 0;         // rows in the sums that came with them
  bool changed_ = false;                // since `fetch`
};

}  // namespace pvm::inline v0::readout
