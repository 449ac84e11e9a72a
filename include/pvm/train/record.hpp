// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Records what a network computes, step by step, in a NumPy file.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/io/atomic_file.hpp>
#include <pvm/io/npy.hpp>
#include <pvm/train/callback.hpp>
#include <pvm/train/trainer_base.hpp>

namespace pvm::inline v0 {

/// Which values are recorded.
struct RecordKinds {
  bool hidden = false;      ///< h of all units, [units][hidden]
  bool prediction = false;  ///< of the frame two steps ahead, [side][side][channels] in [0, 1]
  /// The frame minus the prediction made for it two steps before, likewise; NaN where there was
  /// none.
  bool error = false;
};

/// A callback that writes a record for every step and sequence. Its fields: `step`; `stream`, the
/// sequence of the batch; `source`, `frame` and `pass`, which say what the frame of the step was:
/// its file's index in the source, its index in the file, and how often the source had started
/// over; then the values that `kinds` names. In Python:
///
///     records = numpy.load("run.npy", mmap_mode="r"); records["hidden"][100]
///
/// Steps run one by one while it records, so that a GPU is not used well.
class Record {
 public:
  Record(std::filesystem::path path, const RecordKinds& kinds)
      : path_(std::move(path)), kinds_(kinds) {}

  /// Throws Error (Fault::usage) if the name does not end in .npy, Fault::checkpoint if the file
  /// cannot be written.
  void begin(const Moment& moment) {
    if (path_.extension() != ".npy") {
      throw Error(Fault::usage, "records cannot be written to " + quote(path_.string()) +
                                    ": its name must end in .npy");
    }
    const Spec& spec = moment.trainer.spec();
    const Connectome& net = moment.trainer.connectome();
    std::vector<io::NpyField> fields = {{"step", "<u8", {}},
                                        {"stream", "<u8", {}},
                                        {"source", "<u8", {}},
                                        {"frame", "<u8", {}},
                                        {"pass", "<u8", {}}};
    const std::vector<int> picture = {spec.frame_side(), spec.frame_side(), spec.input_channels};
    if (kinds_.hidden) {
      fields.push_back({"hidden", "<f4", {static_cast<int>(net.units.size()), net.hidden}});
    }
    if (kinds_.prediction) fields.push_back({"prediction", "<f4", picture});
    if (kinds_.error) fields.push_back({"error", "<f4", picture});
    io::make_directories_of(path_);
    file_ = std::make_unique<io::NpyWriter>(path_, std::move(fields));
    predictions_[0].clear();
    predictions_[1].clear();
    places_ = moment.trainer.places();
  }

  [[nodiscard]] std::uint64_t next(std::uint64_t step) const { return step + 1; }

  void at(const Moment& moment) {
    TrainerBase& trainer = moment.trainer;
    const auto places = trainer.places();
    const std::vector<float> hidden = kinds_.hidden ? trainer.hidden() : std::vector<float>{};
    std::vector<float> prediction;
    if (kinds_.prediction || kinds_.error) prediction = trainer.prediction();
    const auto frames = kinds_.error ? trainer.last_frames() : std::span<const std::uint8_t>{};
    for (std::size_t b = 0; b < places.size(); ++b) {
      record_.clear();
      const io::Position at =
          of_frame(b < places_.size() ? places_[b].position : io::Position{}, places[b].position);
      for (const std::uint64_t n :
           {moment.step, std::uint64_t{b}, at.sequence, at.frame, at.pass}) {
        append(&n, 1);
      }
      const auto part = [&](const std::vector<float>& all) {
        const std::size_t each = all.size() / places.size();
        append(all.data() + b * each, each);
      };
      if (kinds_.hidden) part(hidden);
      if (kinds_.prediction) part(prediction);
      if (kinds_.error) {
        const std::size_t size = frames.size() / places.size();
        append_error(frames.subspan(b * size, size), b * size, places[b].frames_since_start);
      }
      file_->write(record_);
    }
    places_ = places;
    predictions_[0] = std::move(predictions_[1]);
    predictions_[1] = std::move(prediction);
  }

  void end(const Moment&) { file_->finish(); }

 private:
  /// The position of the frame that was read between two positions of the run.
  static io::Position of_frame(const io::Position& before, const io::Position& after) {
    if (after.frame == 0) return before;  // it was the last one of its file or pass
    return {after.sequence, after.frame - 1, after.pass};
  }

  template <class T>
  void append(const T* values, std::size_t count) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(values);
    record_.insert(record_.end(), bytes, bytes + count * sizeof(T));
  }

  /// `first`: where the sequence begins in predictions.
  void append_error(std::span<const std::uint8_t> frame, std::size_t first,
                    std::uint64_t frames_since_start) {
    std::vector<float> error(frame.size(), std::numeric_limits<float>::quiet_NaN());
    if (frames_since_start > 2 && !predictions_[0].empty()) {
      for (std::size_t i = 0; i < frame.size(); ++i) {
        error[i] = static_cast<float>(frame[i]) / 255.0F - predictions_[0][first + i];
      }
    }
    append(error.data(), error.size());
  }

  std::filesystem::path path_;
  RecordKinds kinds_;
  std::unique_ptr<io::NpyWriter> file_;
  std::vector<float> predictions_[2];    // made two steps before, and one
  std::vector<io::StreamState> places_;  // after the step before
  std::vector<std::uint8_t> record_;
};

static_assert(Callback<Record>);

}  // namespace pvm::inline v0
