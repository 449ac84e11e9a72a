// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tracking of many frames at a time on an NVIDIA GPU. Include it from files that nvcc compiles.

#ifndef __CUDACC__
#error "pvm/readout/gpu is compiled by nvcc: name the file .cu, or track frame by frame"
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/readout/decoder.hpp>
#include <pvm/readout/gpu/finder.hpp>
#include <pvm/readout/object.hpp>
#include <pvm/readout/ridge.hpp>
#include <pvm/readout/tracker.hpp>

namespace pvm::inline v0 {

/// What `tracker.track_all` does, for many frames at a time, with readouts and decoders on the
/// current CUDA device. It knows what the tracker had learned when it was constructed. Where hidden
/// values are read, the network runs on the tracker's engine.
class CudaTracking {
 public:
  /// Throws Error (usage) if the tracker has not learned all its objects; else what CudaFinder
  /// throws.
  explicit CudaTracking(Tracker& tracker)
      : tracker_(tracker), finder_(readouts(tracker), options(tracker)) {
    follows_ = reads_hidden() && finder_.follow(tracker.engine());
  }
  CudaTracking(const CudaTracking&) = delete;
  CudaTracking& operator=(const CudaTracking&) = delete;
  ~CudaTracking() {
    if (follows_) tracker_.engine().follow(nullptr);
  }

  /// A sensible number of frames at a time.
  [[nodiscard]] static constexpr std::size_t frames() { return readout::CudaFinder::own_most; }

  /// Shows the frames of a clip one after the other, [frame][side][side][channels], and says for
  /// each where the objects are. Throws Error (usage) for half frames.
  std::vector<std::vector<Found>> track(std::span<const std::uint8_t> all) {
    const std::size_t each = tracker_.frame_shape().size();
    if (all.size() % each != 0) {
      throw Error(Fault::usage, "the tracker was given a part of a frame");
    }
    std::vector<std::vector<Found>> found;
    while (!all.empty()) {
      const auto some = all.first(std::min(all.size(), most_frames() * each));
      append(found, find(some));
      all = all.subspan(some.size());
    }
    return found;
  }

 private:
  static std::vector<readout::RidgeReadout*> readouts(Tracker& tracker) {
    tracker.solve();
    std::vector<readout::RidgeReadout*> all;
    for (std::size_t k = 0; k < tracker.objects().size(); ++k) {
      all.push_back(&tracker.object_readout(k).readout());
    }
    return all;
  }
  static std::vector<readout::DecoderOptions> options(Tracker& tracker) {
    std::vector<readout::DecoderOptions> all;
    for (std::size_t k = 0; k < tracker.objects().size(); ++k) {
      all.push_back(tracker.object_readout(k).decoder().options());
    }
    return all;
  }
  [[nodiscard]] bool reads_hidden() const { return tracker_.options().ridge.inputs.hidden; }
  [[nodiscard]] std::size_t most_frames() {
    if (!reads_hidden()) return frames();
    return std::min(frames(), static_cast<std::size_t>(tracker_.engine().block_steps()));
  }

  std::vector<readout::Decoded> find(std::span<const std::uint8_t> some) {
    if (!reads_hidden()) return finder_.find({}, some);
    if (follows_) {
      run(some);
      return finder_.found();
    }
    std::vector<float> hidden, step(values());
    const std::size_t each = tracker_.frame_shape().size();
    for (std::size_t at = 0; at < some.size(); at += each) {
      run(some.subspan(at, each));
      tracker_.engine().read_hidden(step);
      hidden.insert(hidden.end(), step.begin(), step.end());
    }
    return finder_.find(hidden, some);
  }
  [[nodiscard]] std::size_t values() const { return tracker_.readout().inputs().hidden_values(); }
  void run(std::span<const std::uint8_t> some) {
    const auto steps = static_cast<int>(some.size() / tracker_.frame_shape().size());
    const FrameBlock block = tracker_.engine().stage(steps);
    std::copy(some.begin(), some.end(), block.pixels.begin());
    std::fill(block.scored.begin(), block.scored.end(), std::uint8_t{0});
    tracker_.engine().run(block, Mode::freeze);
  }
  void append(std::vector<std::vector<Found>>& found,
              const std::vector<readout::Decoded>& decoded) {
    const std::size_t objects = tracker_.objects().size();
    for (std::size_t i = 0; i < decoded.size(); ++i) {
      if (i % objects == 0) found.emplace_back();
      const auto& presence = tracker_.object_readout(i % objects).presence();
      found.back().push_back(
          {decoded[i].present, presence.confidence(decoded[i].contrast), decoded[i].box});
    }
  }

  Tracker& tracker_;
  readout::CudaFinder finder_;
  bool follows_ = false;
};

}  // namespace pvm::inline v0
