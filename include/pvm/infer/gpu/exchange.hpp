// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Frames that come, and results that stay, in the memory of the GPU that predicts.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/devices.hpp>
#include <pvm/infer/gpu/result_memory.hpp>
#include <pvm/infer/gpu_values.hpp>

namespace pvm::inline v0::infer::gpu {

class Exchange final : public GpuMemory {
 public:
  /// For the current GPU.
  Exchange()
      : device_(detail::current_device()), results_(std::make_shared<ResultMemory>(device_)) {}

  [[nodiscard]] int device() const override { return device_; }

  [[nodiscard]] ArrivingFrame arriving(const GpuFrame& frame) override {
    const detail::OnDevice on(device_);
    auto event = std::make_shared<detail::Event>();
    detail::cuda_check(cudaEventRecord(event->get(), static_cast<cudaStream_t>(frame.stream)),
                       "noting when a frame is there");
    return {frame.pixels.data(), std::move(event)};
  }
  /// Makes later work of `stream` wait until the frame is there.
  static void wait_for(const ArrivingFrame& frame, cudaStream_t stream) {
    const auto& event = *static_cast<const detail::Event*>(frame.event.get());
    detail::cuda_check(cudaStreamWaitEvent(stream, event.get(), 0), "waiting for a frame");
  }

  void fetch(const ArrivingFrame& frame, std::span<std::uint8_t> to) override {
    const detail::OnDevice on(device_);
    wait_for(frame, copies_.get());
    detail::cuda_check(
        cudaMemcpyAsync(to.data(), frame.pixels, to.size(), cudaMemcpyDeviceToHost, copies_.get()),
        "copying a frame");
    detail::cuda_check(cudaStreamSynchronize(copies_.get()), "copying a frame");
  }

  [[nodiscard]] GpuValues room(std::size_t count) override {
    return {results_->take(count), count, device_};
  }

 private:
  int device_;
  detail::Stream copies_;
  std::shared_ptr<ResultMemory> results_;
};

}  // namespace pvm::inline v0::infer::gpu
