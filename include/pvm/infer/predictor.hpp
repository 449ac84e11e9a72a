// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The Predictor: a frozen network that follows many streams of frames.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/core/error.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/choose.hpp>
#include <pvm/infer/batch_policy.hpp>
#include <pvm/infer/engine_forward.hpp>
#include <pvm/infer/frame_queue.hpp>
#include <pvm/infer/frozen_file.hpp>
#include <pvm/infer/frozen_network.hpp>
#include <pvm/infer/gpu_forwards.hpp>
#include <pvm/infer/gpu_values.hpp>
#include <pvm/infer/host_forward.hpp>
#include <pvm/infer/int8_forward.hpp>
#include <pvm/infer/scheduler.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/source.hpp>
#include <pvm/model/network.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0 {

namespace infer {

/// The backend that the options ask for.
inline BackendChoice backend_of(const PredictorOptions& options) {
  return options.device >= 0 ? BackendChoice::cuda : options.backend;
}
inline GpuPlace place_of(const PredictorOptions& options) {
  return {options.device, static_cast<std::size_t>(options.policy.most)};
}

/// Makes the Forward that the options of a Predictor ask for. Throws Error (Fault::usage) for 16
/// bits on the host.
inline std::unique_ptr<Forward> make_forward(const Spec& spec, std::span<const float> weights,
                                             const PredictorOptions& options, Team& team) {
  const BackendChoice backend = backend_of(options);
  if (options.precision == ForwardPrecision::fp32 && backend != BackendChoice::host) {
    EngineOptions engine{.threads = options.threads};
    if (options.device >= 0) engine.devices = {options.device};
    return std::make_unique<EngineForward>(
        spec, weights,
        pvm::detail::make_engine<fp32, dynamic, RuntimeNetwork, DefaultBackend<RuntimeNetwork>>(
            spec, options.policy.most, engine, backend));
  }
  if (const GpuForwards* gpu = gpu_forwards_for(backend)) {
    return gpu->of_weights(spec, weights, options.precision == ForwardPrecision::bf16, team,
                           place_of(options));
  }
  if (options.precision != ForwardPrecision::fp32) {
    throw Error(Fault::usage,
                "bf16 and fp16 predict on a GPU; on the host take fp32, or a file of pvm quantize");
  }
  return std::make_unique<HostForward>(spec, weights, team);
}
inline std::unique_ptr<Forward> make_forward(const FrozenNetwork& network,
                                             const PredictorOptions& options, Team& team) {
  if (const GpuForwards* gpu = gpu_forwards_for(backend_of(options))) {
    return gpu->of_bytes(network, team, place_of(options));
  }
  if (network.format == FrozenFormat::int8) return std::make_unique<Int8Forward>(network, team);
  return std::make_unique<HostForward>(network.spec, widened(network), team);
}

}  // namespace infer

/// A stream of a Predictor: its frames are those of one clip, in order. It closes when it is
/// destroyed. Frames that were submitted before keep their turn. It may outlive the Predictor.
/// `close` and `is_open` may be called while other threads use the stream.
class Stream {
 public:
  Stream(Stream&&) noexcept = default;
  Stream& operator=(Stream&& other) noexcept {
    close();
    scheduler_ = std::move(other.scheduler_);
    work_ = std::move(other.work_);
    return *this;
  }
  ~Stream() { close(); }

  /// Takes no frames from now on. A thread that waits for room for one gets an Error.
  void close() noexcept {
    if (!work_) return;
    if (const auto scheduler = scheduler_.lock()) scheduler->close(*work_);
    work_->closed = true;
  }
  [[nodiscard]] bool is_open() const noexcept { return work_ != nullptr && !work_->closed; }

 private:
  friend class Predictor;
  Stream(const std::shared_ptr<infer::Scheduler>& scheduler,
         std::shared_ptr<infer::StreamWork> work)
      : scheduler_(scheduler), work_(std::move(work)) {}

  std::weak_ptr<infer::Scheduler> scheduler_;
  std::shared_ptr<infer::StreamWork> work_;
};

/// Runs a frozen network on the frames of many streams, each with a past of its own. A scheduler
/// puts the frames that wait into one step, whichever streams they are of. What a stream gets does
/// not depend on the others, bit by bit; on the host it is what a frozen Trainer computes. All
/// members may be called by several threads at once.
///
///     pvm::Predictor predictor = pvm::Predictor::load("run.safetensors");
///     pvm::Stream camera = predictor.open();
///     std::future<pvm::FrameResult> result = predictor.submit(camera, frame);
class Predictor {
 public:
  /// The network of `checkpoint` and, if it is a tracker's file, its readout. Nothing else of the
  /// checkpoint is kept. Throws Error: Fault::usage for impossible options, Fault::memory,
  /// Fault::device, Fault::checkpoint if the readout is another network's.
  explicit Predictor(const io::Checkpoint& checkpoint, const PredictorOptions& options = {})
      : Predictor(checkpoint.spec, checkpoint.extras, options, [&](Team& team) {
          return infer::make_forward(checkpoint.spec, checkpoint.state.weights, options, team);
        }) {}

  /// The same of a network with weights of one byte (pvm::quantize, load_frozen). In fp8 the host
  /// computes with the rounded weights in fp32.
  explicit Predictor(const FrozenNetwork& network, const PredictorOptions& options = {})
      : Predictor(network.spec, network.extras, options,
                  [&](Team& team) { return infer::make_forward(network, options, team); }) {}

  /// The same on an engine of the program's choice. Its batch bounds the streams of a step.
  Predictor(const io::Checkpoint& checkpoint, AnyEngine engine,
            const PredictorOptions& options = {})
      : Predictor(checkpoint.spec, checkpoint.extras, options, [&](Team&) {
          return std::make_unique<infer::EngineForward>(checkpoint.spec, checkpoint.state.weights,
                                                        std::move(engine));
        }) {}

  /// Reads a checkpoint, a tracker's file, or one of pvm quantize. `spec`: for files that hold
  /// none. Throws what io::load_network throws, too.
  static Predictor load(const std::filesystem::path& path, const PredictorOptions& options = {},
                        const Spec* spec = nullptr) {
    if (is_frozen(path)) return Predictor(load_frozen(path), options);
    return Predictor(io::load_network(path, spec), options);
  }

  Predictor(Predictor&&) noexcept = default;
  Predictor& operator=(Predictor&&) = delete;
  /// The step that runs ends; the futures of all frames that wait get an Error.
  ~Predictor() {
    if (scheduler_) scheduler_->shut_down();
  }

  /// A new stream, with the past of a new run. Throws Error (Fault::memory) if its past would
  /// exceed the bound.
  [[nodiscard]] Stream open() { return {scheduler_, scheduler_->open()}; }

  /// Hands in the next frame of a stream, [side][side][channels]. If there is no room for it, waits
  /// until there is (back-pressure). Throws Error (Fault::usage) for a frame of another size and
  /// for a closed stream.
  ///
  /// A GpuFrame is one that is in the memory of the GPU that predicts, in frozen steps. It reaches
  /// them without the host (which a readout, if the file has one, copies it to). Throws Error
  /// (Fault::usage) for one in other memory.
  std::future<FrameResult> submit(Stream& stream, std::span<const std::uint8_t> frame,
                                  Priority priority = Priority::normal) {
    return scheduler_->submit(work_of(stream), frame, priority);
  }
  std::future<FrameResult> submit(Stream& stream, const GpuFrame& frame,
                                  Priority priority = Priority::normal) {
    return scheduler_->submit(work_of(stream), frame, priority);
  }
  /// The same, but returns nullopt if there is no room.
  std::optional<std::future<FrameResult>> try_submit(Stream& stream,
                                                     std::span<const std::uint8_t> frame,
                                                     Priority priority = Priority::normal) {
    return scheduler_->try_submit(work_of(stream), frame, priority);
  }
  std::optional<std::future<FrameResult>> try_submit(Stream& stream, const GpuFrame& frame,
                                                     Priority priority = Priority::normal) {
    return scheduler_->try_submit(work_of(stream), frame, priority);
  }
  /// Waits until there is room for a frame of the stream, `longest` at most; whether there is.
  /// Throws as `submit`.
  bool wait_for_room(Stream& stream, std::chrono::milliseconds longest) {
    return scheduler_->wait_for_room(work_of(stream), longest);
  }
  /// The result of a frame. If nothing else is to be done, the calling thread does it, which saves
  /// the time of waking another.
  FrameResult predict(Stream& stream, std::span<const std::uint8_t> frame,
                      Priority priority = Priority::normal) {
    return scheduler_->predict(work_of(stream), frame, priority);
  }
  FrameResult predict(Stream& stream, const GpuFrame& frame, Priority priority = Priority::normal) {
    return scheduler_->predict(work_of(stream), frame, priority);
  }

  [[nodiscard]] const Spec& spec() const noexcept { return scheduler_->spec(); }
  /// The shape of the frames that it takes.
  [[nodiscard]] io::FrameShape frame_shape() const {
    return {spec().frame_side(), spec().frame_side(), spec().input_channels};
  }
  /// Whether the file had a readout, so that results have a heatmap and perhaps a box.
  [[nodiscard]] bool has_readout() const noexcept { return scheduler_->has_readout(); }
  [[nodiscard]] PredictorReport report() const { return scheduler_->report(); }
  /// For logs: what runs where.
  [[nodiscard]] std::string description() const { return scheduler_->description(); }

 private:
  template <class MakeForward>
  Predictor(const Spec& spec, const io::Extras& extras, const PredictorOptions& options,
            const MakeForward& make_forward)
      : scheduler_(infer::Scheduler::make(spec, extras, options, make_forward)) {}

  infer::StreamWork& work_of(Stream& stream) const {
    if (stream.is_open() && stream.scheduler_.lock() == scheduler_) return *stream.work_;
    throw Error(Fault::usage, stream.is_open() ? "the stream is one of another predictor"
                                               : "the stream is closed; open another one");
  }

  std::shared_ptr<infer::Scheduler> scheduler_;
};

}  // namespace pvm::inline v0
