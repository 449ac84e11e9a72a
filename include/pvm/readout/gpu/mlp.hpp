// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The readout of the original implementation on an NVIDIA GPU. Include it from files that nvcc
/// compiles.

#ifndef __CUDACC__
#error "pvm/readout/gpu is compiled by nvcc: name the file .cu, or use the readouts of the host"
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
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/source.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/readout/gpu/followed.cuh>
#include <pvm/readout/gpu/mlp_kernel.cuh>
#include <pvm/readout/mlp.hpp>
#include <pvm/readout/readout.hpp>
#include <pvm/readout/target.hpp>

namespace pvm::inline v0::readout {

/// MlpReadout with its weights on the current CUDA device: the same formulas, with sums in another
/// order. Beside an engine for one sequence on the GPU it follows whole blocks of steps; beside any
/// other it is given one step at a time.
class CudaMlpReadout final : public Readout, private StepFollower {
 public:
  /// Throws Error (usage) if the options make no sense or the GPU has no room for a position's
  /// values, and Error (device, memory).
  CudaMlpReadout(const Spec& spec, const Connectome& net, const MlpOptions& options = {})
      : host_(spec, net, options), hidden_(static_cast<std::size_t>(net.hidden)) {
    units_ = gpu::upload(std::span<const std::uint32_t>(host_.units().ids));
    unit_start_ = gpu::upload(std::span<const std::uint32_t>(host_.units().start));
    for (std::size_t l = 0; l < host_.depth(); ++l) {
      start_[l] = gpu::upload(host_.matrices(l));
      weights_[l] = gpu::DeviceArray<float>(host_.weights(l).size());
      changes_[l] = gpu::DeviceArray<float>(host_.weights(l).size());
    }
    const auto side = static_cast<std::size_t>(host_.heat_side());
    heat_ = gpu::DeviceArray<float>(side * side);
    gpu::write(heat_, std::span<const float>(std::vector<float>(side * side, 0.1F)));
    const std::size_t bytes = gpu::mlp_shared_floats(arguments()) * sizeof(float);
    if (bytes > pvm::detail::describe_device().shared_bytes) {
      throw Error(Fault::usage, "a position of this readout reads " + std::to_string(longest()) +
                                    " values, for which the GPU has no room; take a smaller "
                                    "representation, or the readout of the host");
    }
    own_.prepare(net.units.size() * hidden_, 1);
    own_steps_.prepare(own_.steps(), 1);
    send_weights();
  }
  CudaMlpReadout(const CudaMlpReadout&) = delete;
  CudaMlpReadout& operator=(const CudaMlpReadout&) = delete;
  ~CudaMlpReadout() override { (void)cudaDeviceSynchronize(); }

  [[nodiscard]] const MlpOptions& options() const noexcept { return host_.options(); }
  [[nodiscard]] int heat_side() const noexcept override { return host_.heat_side(); }
  [[nodiscard]] float rate() const noexcept { return host_.rate(); }
  void set_rate(double rate) noexcept { host_.set_rate(rate); }

  bool follow(AnyEngine& engine) override { return engine.follow(this); }
  void expect(std::uint64_t step, std::span<const io::Label> labels) override {
    const auto records = steps_.expect(labels.size());
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (labels[i].state == io::LabelState::unlabelled) continue;
      check_label(labels[i], host_.spec().frame_side());
      host_.at_step(step + i);
      records[i] = record_of(labels[i]);
    }
  }

  void at_step(std::uint64_t step) override { host_.at_step(step); }
  void observe(std::span<const float> hidden, std::span<const std::uint8_t>,
               const io::Label& label) override {
    if (label.state == io::LabelState::unlabelled) return;
    check_label(label, host_.spec().frame_side());
    run_alone(hidden, record_of(label));
  }
  void heat(std::span<const float> hidden, std::span<const std::uint8_t>,
            std::span<float> out) override {
    run_alone(hidden, {});
    copy_heat(out);
  }
  /// The heatmap of the last step that was followed or observed, [side][side], as it was before the
  /// weights learned from that step.
  void last_heat(std::span<float> out) {
    gpu::wait_for_device();
    copy_heat(out);
  }

  void save(io::Extras& extras) override {
    gpu::wait_for_device();
    for (std::size_t l = 0; l < host_.depth(); ++l) {
      host_.set_layer(l, gpu::download(weights_[l].get(), weights_[l].size()),
                      gpu::download(changes_[l].get(), changes_[l].size()));
    }
    host_.save(extras);
  }
  void restore(const io::Extras& extras) override {
    host_.restore(extras);
    send_weights();
  }
  /// Replaces the weights of a layer and their last changes, as MlpReadout does.
  void set_layer(std::size_t layer, std::vector<float> weights, std::vector<float> changes) {
    host_.set_layer(layer, std::move(weights), std::move(changes));
    send_weights();
  }

 private:
  // Following an engine.
  void prepare(const FollowedSteps& steps) override { steps_.prepare(steps, 1); }
  void upload(std::size_t slot, int steps, void* stream) override {
    steps_.upload(slot, steps, static_cast<cudaStream_t>(stream));
  }
  void launch(const FollowedSteps& steps, void* stream) override {
    gpu::MlpArguments a = arguments();
    a.steps = steps_.device();
    gpu::launch_mlp(a, steps, static_cast<cudaStream_t>(stream));
  }
  void end_block(void*) override {}

  [[nodiscard]] gpu::MlpStep record_of(const io::Label& label) const {
    if (!host_.learns_now()) return {};
    const MlpReadout::Pixels on = host_.box_pixels(label);
    return {1, host_.rate(), on.left, on.top, on.right, on.bottom};
  }
  void run_alone(std::span<const float> hidden, const gpu::MlpStep& step) {
    host_.check_hidden(hidden);
    gpu::wait_for_device();
    own_.write(1, hidden, {});
    own_steps_.expect(1)[0] = step;
    own_steps_.upload(0, 1, nullptr);
    gpu::MlpArguments a = arguments();
    a.steps = own_steps_.device();
    gpu::launch_mlp(a, own_.steps(), nullptr);
    gpu::wait_for_device();
  }
  void copy_heat(std::span<float> out) const {
    const std::vector<float> squeezed = gpu::download(heat_.get(), heat_.size());
    std::transform(squeezed.begin(), squeezed.end(), out.begin(),
                   [](float v) { return (v - 0.1F) / 0.8F; });
  }

  [[nodiscard]] gpu::MlpArguments arguments() const {
    gpu::MlpArguments a{};
    a.layers = static_cast<int>(host_.depth());
    a.middle = host_.options().representation;
    a.outputs = static_cast<int>(host_.outputs(host_.depth() - 1));
    a.cells = host_.spec().layer_shapes.front();
    a.block = host_.heat_side() / a.cells;
    a.hidden = static_cast<int>(hidden_);
    a.longest = static_cast<int>(longest());
    a.sign_error = host_.spec().opt_abs_diff ? 1 : 0;
    a.momentum = static_cast<float>(host_.spec().momentum);
    a.unit_start = unit_start_.get();
    a.units = units_.get();
    for (std::size_t l = 0; l < host_.depth(); ++l) {
      a.weights[l] = weights_[l].get();
      a.changes[l] = changes_[l].get();
      a.start[l] = start_[l].get();
    }
    a.heat = heat_.get();
    return a;
  }
  [[nodiscard]] std::size_t longest() const {
    std::size_t most = 0;
    for (std::size_t p = 0; p < host_.positions(); ++p) most = std::max(most, host_.inputs(0, p));
    return most;
  }
  void send_weights() {
    gpu::wait_for_device();
    for (std::size_t l = 0; l < host_.depth(); ++l) {
      gpu::write(weights_[l], std::span<const float>(host_.weights(l)));
      gpu::write(changes_[l], std::span<const float>(host_.changes(l)));
    }
  }

  MlpReadout host_;  // the sizes, the schedule, and the form in files; its weights are old
  std::size_t hidden_;
  gpu::DeviceArray<std::uint32_t> units_, unit_start_;
  gpu::DeviceArray<std::size_t> start_[gpu::mlp_layers];
  gpu::DeviceArray<float> weights_[gpu::mlp_layers], changes_[gpu::mlp_layers];
  gpu::DeviceArray<float> heat_;
  gpu::StepRecords<gpu::MlpStep> steps_, own_steps_;
  gpu::OwnSteps own_;
};

}  // namespace pvm::inline v0::readout
