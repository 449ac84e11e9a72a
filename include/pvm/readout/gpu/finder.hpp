// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Finds objects on an NVIDIA GPU: heatmap, peak and box of many frames in one kernel. Include it
/// from files that nvcc compiles.

#ifndef __CUDACC__
#error "pvm/readout/gpu is compiled by nvcc: name the file .cu, or use the decoder of the host"
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/cuda/device/facts.hpp>
#include <pvm/engine/cuda/device/launch.hpp>
#include <pvm/engine/follower.hpp>
#include <pvm/io/source.hpp>
#include <pvm/readout/decoder.hpp>
#include <pvm/readout/gpu/find_kernel.cuh>
#include <pvm/readout/gpu/followed.cuh>
#include <pvm/readout/inputs.hpp>
#include <pvm/readout/ridge.hpp>

namespace pvm::inline v0::readout {

/// What `RidgeReadout::heat` and `Decoder::decode` do, on the current CUDA device, for several
/// objects and many frames at a time. It holds the fits as they are when it is constructed.
class CudaFinder final : private StepFollower {
 public:
  /// `readouts`: one for each object, all of the same network and with the same inputs; `options`:
  /// as many, with the same smoothing. Throws Error (usage) if that is not so, or the frame is too
  /// large for the GPU's shared memory; Error (device, memory).
  CudaFinder(std::span<RidgeReadout* const> readouts, std::span<const DecoderOptions> options)
      : inputs_(check(readouts, options).inputs()),
        classes_(readouts.size()),
        frame_bytes_(inputs_.frame_bytes()) {
    std::vector<double> thresholds;
    for (const DecoderOptions& one : options) {
      decoders_.emplace_back(inputs_.cells(), inputs_.frame_side() / inputs_.cells(), one);
      thresholds.push_back(one.threshold);
    }
    thresholds_ = gpu::upload(std::span<const double>(thresholds));
    send_fits(readouts);
    send_taps();
    const std::size_t bytes = arguments().shared_bytes();
    const std::size_t most = pvm::detail::describe_device().shared_bytes;
    if (bytes + 1024 > most) {
      throw Error(Fault::usage, "a frame of " + std::to_string(inputs_.frame_side()) +
                                    " pixels per side is too large for the GPU's shared memory; "
                                    "use the decoder of the host");
    }
    own_.prepare(inputs_.kinds().hidden ? inputs_.hidden_values() : 1, frame_bytes_, own_most);
    own_spots_ = gpu::DeviceArray<gpu::Spot>(static_cast<std::size_t>(own_most) * classes_);
  }
  CudaFinder(const CudaFinder&) = delete;
  CudaFinder& operator=(const CudaFinder&) = delete;
  ~CudaFinder() { (void)cudaDeviceSynchronize(); }

  /// Finds the objects in what `engine` sees from now on, if it has a place for that; see `found`.
  bool follow(AnyEngine& engine) { return engine.follow(this); }
  /// What was found in the engine's last block, [step][object]. Waits for it.
  [[nodiscard]] std::vector<Decoded> found() const {
    gpu::wait_for_device();
    const auto all = static_cast<std::size_t>(last_steps_) * classes_;
    return judged(gpu::download(spots_.get() + last_slot_ * slot_spots_, all));
  }

  /// The most steps that `find` takes at a time.
  static constexpr int own_most = 128;
  /// Finds the objects in frames that no engine on the GPU has seen, [step][object]. `hidden`: of
  /// the same steps, [step][units][hidden]; empty if none are read.
  [[nodiscard]] std::vector<Decoded> find(std::span<const float> hidden,
                                          std::span<const std::uint8_t> frames) {
    const std::size_t steps = frames.size() / frame_bytes_;
    const std::size_t values = inputs_.kinds().hidden ? inputs_.hidden_values() : 0;
    if (steps == 0 || steps > own_most || frames.size() != steps * frame_bytes_ ||
        (values > 0 && hidden.size() != steps * values)) {
      throw Error(Fault::usage, "the finder takes 1 to " + std::to_string(own_most) +
                                    " whole frames with their hidden values at a time");
    }
    gpu::wait_for_device();
    own_.write(static_cast<int>(steps), values > 0 ? hidden : std::span<const float>{}, frames);
    return run_own(steps, nullptr);
  }
  /// The same from heatmaps that there are already, [step][object][cells][cells].
  [[nodiscard]] std::vector<Decoded> decode(std::span<const float> heats) {
    const std::size_t each = classes_ * inputs_.positions();
    const std::size_t steps = heats.size() / each;
    if (steps == 0 || steps > own_most || heats.size() != steps * each) {
      throw Error(Fault::usage, "the finder takes the heatmaps of 1 to " +
                                    std::to_string(own_most) + " steps at a time");
    }
    gpu::wait_for_device();
    own_.write(static_cast<int>(steps), {}, {});
    const auto given = gpu::upload(heats);
    return run_own(steps, given.get());
  }

 private:
  static RidgeReadout& check(std::span<RidgeReadout* const> readouts,
                             std::span<const DecoderOptions> options) {
    if (readouts.empty() || options.size() != readouts.size()) {
      throw Error(Fault::usage,
                  "a finder needs the readout of an object or more, and as many options");
    }
    for (std::size_t k = 0; k < readouts.size(); ++k) {
      const RidgeReadout& one = *readouts[k];
      const RidgeReadout& first = *readouts.front();
      if (one.options().inputs == first.options().inputs &&
          one.options().shared == first.options().shared && one.weights() == first.weights() &&
          options[k].smoothing == options[0].smoothing) {
        continue;
      }
      throw Error(Fault::usage,
                  "the readouts of a finder's objects must read the same inputs, and have the same "
                  "smoothing");
    }
    return *readouts.front();
  }

  // Following an engine.
  void prepare(const FollowedSteps& steps) override {
    slot_spots_ = static_cast<std::size_t>(steps.block_steps) * classes_;
    spots_ = gpu::DeviceArray<gpu::Spot>(static_cast<std::size_t>(steps.slots) * slot_spots_);
    last_steps_ = 0;
  }
  void upload(std::size_t slot, int steps, void*) override {
    last_slot_ = slot;
    last_steps_ = steps;
  }
  void launch(const FollowedSteps& steps, void* stream) override {
    gpu::FindArguments a = arguments();
    a.spots = spots_.get();
    gpu::launch_find(a, steps, static_cast<cudaStream_t>(stream));
  }
  void end_block(void*) override {}

  std::vector<Decoded> run_own(std::size_t steps, const float* given) {
    gpu::FindArguments a = arguments();
    a.given = given;
    a.spots = own_spots_.get();
    FollowedSteps s = own_.steps();
    s.most_steps = static_cast<int>(steps);
    gpu::launch_find(a, s, nullptr);
    gpu::wait_for_device();
    return judged(gpu::download(own_spots_.get(), steps * classes_));
  }
  [[nodiscard]] std::vector<Decoded> judged(const std::vector<gpu::Spot>& spots) const {
    std::vector<Decoded> all;
    all.reserve(spots.size());
    for (std::size_t i = 0; i < spots.size(); ++i) {
      const gpu::Spot& spot = spots[i];
      const io::Box box{static_cast<float>(spot.left), static_cast<float>(spot.top),
                        static_cast<float>(spot.right - spot.left + 1),
                        static_cast<float>(spot.bottom - spot.top + 1)};
      all.push_back(decoders_[i % classes_].judge(spot.peak, spot.median, box));
    }
    return all;
  }

  void send_fits(std::span<RidgeReadout* const> readouts) {
    std::vector<float> linear, biases, tables;
    for (RidgeReadout* const one : readouts) {
      const RidgeReadout::Arranged fit = one->arranged();
      linear.insert(linear.end(), fit.linear.begin(), fit.linear.end());
      biases.insert(biases.end(), fit.biases.begin(), fit.biases.end());
      tables.insert(tables.end(), fit.tables.begin(), fit.tables.end());
    }
    linear_ = gpu::upload(std::span<const float>(linear));
    biases_ = gpu::upload(std::span<const float>(biases));
    tables_ = gpu::upload(std::span<const float>(tables));
    start_ = gpu::upload(readouts.front()->arranged().start);
    linear_each_ = linear.size() / classes_;
    biases_each_ = biases.size() / classes_;
    tables_each_ = tables.size() / classes_;
    units_ = gpu::upload(std::span<const std::uint32_t>(inputs_.units().ids));
    unit_start_ = gpu::upload(std::span<const std::uint32_t>(inputs_.units().start));
  }
  void send_taps() {
    std::vector<int4> cells;
    std::vector<float4> weights;
    for (const auto& c : decoders_.front().taps().cell)
      cells.push_back(make_int4(c[0], c[1], c[2], c[3]));
    for (const auto& w : decoders_.front().taps().weight) {
      weights.push_back(make_float4(w[0], w[1], w[2], w[3]));
    }
    tap_cells_ = gpu::upload(std::span<const int4>(cells));
    tap_weights_ = gpu::upload(std::span<const float4>(weights));
  }
  [[nodiscard]] gpu::FindArguments arguments() const {
    gpu::FindArguments a{};
    a.cells = inputs_.cells();
    a.block = inputs_.frame_side() / inputs_.cells();
    a.channels = inputs_.channels();
    a.classes = static_cast<int>(classes_);
    a.smoothing = decoders_.front().options().smoothing;
    a.thresholds = thresholds_.get();
    a.linear = linear_.get();
    a.start = start_.get();
    a.biases = biases_.get();
    if (inputs_.kinds().colours) a.tables = reinterpret_cast<const float4*>(tables_.get());
    a.linear_each = linear_each_;
    a.biases_each = biases_each_;
    a.tables_each = tables_each_ / RidgeReadout::table_width;
    if (inputs_.kinds().hidden) {
      a.unit_start = unit_start_.get();
      a.hidden = static_cast<int>(inputs_.hidden_per_unit());
    }
    a.units = units_.get();
    a.pixels = static_cast<int>(inputs_.pixel_size());
    a.tap_cells = tap_cells_.get();
    a.tap_weights = tap_weights_.get();
    return a;
  }

  Inputs inputs_;
  std::vector<Decoder> decoders_;  // by object: each judges what the kernel has found
  std::size_t classes_, frame_bytes_;
  std::size_t linear_each_ = 0, biases_each_ = 0, tables_each_ = 0;
  gpu::DeviceArray<double> thresholds_;
  gpu::DeviceArray<float> linear_, biases_, tables_;
  gpu::DeviceArray<std::size_t> start_;
  gpu::DeviceArray<std::uint32_t> units_, unit_start_;
  gpu::DeviceArray<int4> tap_cells_;
  gpu::DeviceArray<float4> tap_weights_;
  gpu::DeviceArray<gpu::Spot> spots_, own_spots_;
  gpu::OwnSteps own_;
  std::size_t slot_spots_ = 0, last_slot_ = 0;
  int last_steps_ = 0;
};

}  // namespace pvm::inline v0::readout
