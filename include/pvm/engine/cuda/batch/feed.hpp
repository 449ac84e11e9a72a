// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Uploads blocks of frames, with the rate tables of their steps, and converts the frames into
/// rows, while the steps of earlier blocks run.

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/batch/device.cuh>
#include <pvm/engine/cuda/batch/frames.cuh>
#include <pvm/engine/cuda/batch/persistence.cuh>
#include <pvm/engine/cuda/run/staging.hpp>
#include <pvm/engine/cuda/run/streams.hpp>
#include <pvm/engine/engine.hpp>

namespace pvm::inline v0::detail::batch {

/// Uploads `block`, a part of the staged block from its step `first` on, with the steps' rate
/// tables of `table` floats each, and converts its frames into rows, in the ring of frames from
/// slot `frame_slot` on. If `persistence_errors` is not null (in a sweep), it receives the errors
/// of repeating the frames, which are also added to the score.
template <class M>
void feed(Staging& staging, const RunStreams& streams, const FrameBlock& block, int first,
          std::size_t table, const Arguments& a, std::size_t frame_slot,
          float* persistence_errors) {
  const auto at = static_cast<std::size_t>(first);
  staging.send_frames(block, first);
  staging.send_tables(at * table, static_cast<std::size_t>(block.steps) * table);
  // Where the steps are on the device, for the kernels.
  const StagingSizes& sizes = staging.sizes();
  const std::size_t row = staging.slot() * sizes.frames() + at * sizes.batch;
  const Uploaded uploaded{
      staging.device_frames() + row,
      block.squeezed.empty() ? nullptr : staging.device_floats() + row * sizes.frame,
      staging.device_scored() + row,
      staging.device_tables() + staging.slot() * sizes.tables + at * table,
      static_cast<std::uint32_t>(frame_slot),
      persistence_errors};
  convert_frames<M>(a, uploaded, block.steps, streams.upload());
  staging.end_upload();
  score_persistence(a, uploaded, block.steps, streams.upload());
}

}  // namespace pvm::inline v0::detail::batch
