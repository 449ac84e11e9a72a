// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Steps of a frozen network on an NVIDIA GPU.

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/facts.hpp>
#include <pvm/engine/cuda/device/graph.hpp>
#include <pvm/engine/cuda/device/launch.hpp>
#include <pvm/engine/cuda/device/memory.hpp>
#include <pvm/engine/host/memory.hpp>
#include <pvm/engine/host/team.hpp>
#include <pvm/infer/forward.hpp>
#include <pvm/infer/gpu/exchange.hpp>
#include <pvm/infer/gpu/many_streams.cuh>
#include <pvm/infer/gpu/move.cuh>
#include <pvm/infer/gpu/plan.hpp>
#include <pvm/infer/gpu/step.cuh>
#include <pvm/model/spec.hpp>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::infer::gpu {

/// Steps of any streams together. The pasts of streams are in slots of device memory; where there
/// are more streams than slots, those that have waited longest are parked in host memory. A step is
/// a graph of two copies and three kernels, captured once for each number of streams (more than 16
/// are rounded up to multiples of 16). With one stream kernels write results to pinned host memory
/// themselves, which saves the second copy, and hidden values are there before predictions. Frames
/// and results of a program that are in device memory are copied from and to there by a kernel
/// instead. One thread at a time; the team copies frames and results of the host.
template <class Format>
class GpuForward final : public Forward {
 public:
  struct Options {
    std::size_t most_rows = 256;
    std::size_t slots = 0;  ///< pasts in device memory; 0: as many as fit into half of it, 8192 at
                            ///< most, but at least `most_rows`
  };

  /// `team` must outlive this. Throws Error: Fault::spec for an activation that is a type of a
  /// program, Fault::memory, Fault::device.
  GpuForward(const Spec& spec, const ReadRow& read_row, Team& team, const Options& options)
      : team_(team),
        plan_(spec, read_row),
        logistic_(spec.activation == ActivationKind::logistic),
        most_rows_(std::min<std::size_t>(options.most_rows, 4096)),
        hidden_(plan_.net().units.size() * static_cast<std::size_t>(plan_.net().hidden)),
        frame_(spec.frame_size()),
        facts_(detail::describe_device()) {
    if (!spec.own_activation.empty()) {
      throw Error(Fault::spec, "spec " + quote(spec.name) + " has the activation " +
                                   quote(spec.own_activation) +
                                   ", which prediction on a GPU does not know");
    }
    const std::size_t rows = in_tiles(most_rows_);
    const std::size_t least = most_rows_ + 1;
    frames_at_ = rows * sizeof(StepRow);
    up_ = detail::PinnedBytes(frames_at_ + rows * frame_);
    down_ = detail::PinnedBytes(rows * (hidden_ + frame_) * sizeof(float));
    moves_ = detail::PinnedBytes(moves * rows * sizeof(Move));
    const std::size_t tables = plan_.weights.size() + plan_.table.size() * 4 +
                               plan_.scales.size() * 8 + frames_at_ +
                               rows * (frame_ + (hidden_ + frame_) * sizeof(float));
    detail::require_memory(tables + least * past_bytes(), "", "batch");
    const std::size_t fit = (detail::free_memory() - tables) / 2 / past_bytes();
    // Granules are counted in 32 bits.
    const std::size_t most = std::min<std::size_t>(8192, 0xffffffffU / plan_.slot_granules());
    slots_ = options.slots != 0 ? options.slots + 1 : std::clamp(fit, least, std::max(least, most));
    if (slots_ < least || slots_ > 0xffffffffU / plan_.slot_granules()) {
      throw Error(Fault::usage, std::to_string(options.slots) + " streams in device memory are " +
                                    "not enough for steps of " + std::to_string(most_rows_) +
                                    ", or too many");
    }
    detail::cuda_check(cudaGetDevice(&device_), "looking for the GPU");
    upload();
  }

  [[nodiscard]] StreamPast begin() const override { return {}; }
  [[nodiscard]] std::size_t past_bytes() const override {
    return plan_.slot_granules() * sizeof(uint4);
  }
  [[nodiscard]] std::size_t most_rows() const override { return most_rows_; }

  void step(std::span<const Row> rows) override {
    struct : Beside {
      void begun() override {}
      void has_hidden() override {}
    } nothing;
    step(rows, nothing);
  }
  void step(std::span<const Row> rows, Beside& beside) override {
    ++now_;
    // Threads take turns, and each begins with the first GPU.
    detail::cuda_check(cudaSetDevice(device_), "choosing the GPU");
    const Shape shape = shape_of(rows);
    try {
      fill(rows);
      if (shape.of_gpu || shape.to_gpu) fill_moves(rows, shape);
      graph_of(shape).launch(stream_.get());
      beside.begun();
      detail::cuda_check(cudaEventSynchronize(has_hidden_.get()), "waiting for hidden values");
      deliver(rows, &Row::hidden, hidden_, 0);
      beside.has_hidden();
      detail::cuda_check(cudaStreamSynchronize(stream_.get()), "waiting for a step");
    } catch (...) {  // whoever hears of it may free the frames that the GPU reads
      (void)cudaStreamSynchronize(stream_.get());
      throw;
    }
    deliver(rows, &Row::prediction, frame_, shape.hidden ? shape.rows * hidden_ : 0);
    last_ = shape;
    for (const Row& row : rows) ++row.past->step;
  }

  [[nodiscard]] GpuMemory* gpu_memory() override { return &exchange_; }

  void forget(StreamPast& past) override {
    const auto found = seats_.find(&past);
    if (found == seats_.end()) return;
    free_.push_back(found->second.slot);
    seats_.erase(found);
  }

  /// Runs the kernels of the last step `times` times again, without the copies from and to the
  /// host, and waits for them: for measurements. Frames and pasts stay as they are.
  void repeat(int times) {
    Shape shape = last_;
    shape.copies = false;
    detail::Graph& graph = graph_of(shape);
    for (int i = 0; i < times; ++i) graph.launch(stream_.get());
    detail::cuda_check(cudaStreamSynchronize(stream_.get()), "waiting for steps");
  }

  [[nodiscard]] std::string description() const override {
    return facts_.name + ": " + Format::name + ", " +
           std::to_string(plan_.weights.size() / 1'000'000) + " MB of weights, up to " +
           std::to_string(most_rows_) + " streams at a time, " + std::to_string(slots_ - 1) +
           " in device memory";
  }

 private:
  /// Up to so many streams in a step, thread blocks that share a sum are sooner done.
  static constexpr int few = 32;
  /// Kinds of moves of a row: its frame, hidden values, prediction.
  static constexpr unsigned moves = 3;

  /// What a graph is captured for.
  struct Shape {
    std::size_t rows = 0;
    bool hidden = false, predictions = false, copies = true;
    bool of_host = true, of_gpu = false;  // where frames come from
    bool to_host = true, to_gpu = false;  // where results go
    auto operator<=>(const Shape&) const = default;

    /// Whether kernels write results to the host's memory.
    [[nodiscard]] bool writes_to_host() const { return copies && to_host && !to_gpu && rows == 1; }
  };
  /// Where a stream's past is.
  struct Seat {
    std::uint32_t slot = 0;
    std::uint64_t used = 0;
  };

  [[nodiscard]] static Shape shape_of(std::span<const Row> rows) {
    Shape shape{.rows = padded(rows.size()), .of_host = false, .to_host = false};
    for (const Row& row : rows) {
      const bool frame_here = row.gpu_frame.pixels != nullptr;
      shape.of_gpu |= frame_here;
      shape.of_host |= !frame_here;
      shape.hidden |= !row.hidden.empty() || row.gpu_hidden != nullptr;
      shape.predictions |= !row.prediction.empty() || row.gpu_prediction != nullptr;
      shape.to_host |= !row.hidden.empty() || !row.prediction.empty();
      shape.to_gpu |= row.gpu_hidden != nullptr || row.gpu_prediction != nullptr;
    }
    return shape;
  }

  [[nodiscard]] static std::size_t padded(std::size_t rows) {
    constexpr std::size_t whole = tile_rows;
    return rows <= 1 ? 1 : (rows + whole - 1) / whole * whole;
  }
  /// Rows that kernels read: whole tiles.
  [[nodiscard]] static std::size_t in_tiles(std::size_t rows) {
    return (rows + tile_rows - 1) / tile_rows * tile_rows;
  }

  template <class T>
  [[nodiscard]] detail::DeviceArray<T> copied(const std::vector<T>& from) const {
    detail::DeviceArray<T> to(from.size());
    copy(to.get(), from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice);
    return to;
  }
  static void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    detail::cuda_check(cudaMemcpy(to, from, bytes, kind), "copying streams");
  }

  void upload() {
    items_ = copied(plan_.hidden_items);
    output_items_ = copied(plan_.output_items);
    table_ = copied(plan_.table);
    weights_ = copied(plan_.weights);
    scales_ = copied(plan_.scales);
    std::vector<std::int32_t> pixels(plan_.lines().patch);
    for (std::size_t k = 0; k < pixels.size(); ++k) {
      const PatchLines& lines = plan_.lines();
      pixels[k] = static_cast<std::int32_t>(k / lines.line * lines.row + k % lines.line);
    }
    pixels_ = copied(pixels);
    const std::size_t rows = in_tiles(most_rows_);
    device_up_ = detail::DeviceArray<std::uint8_t>(frames_at_ + rows * frame_);
    device_down_ = detail::DeviceArray<float>(rows * (hidden_ + frame_));
    values_ = detail::DeviceArray<uint4>(slots_ * plan_.slot_granules());
    const auto ones = plan_.ones();  // slot 0: what new streams are copied from, and padding reads
    copy(values_.get(), ones.data(), past_bytes(), cudaMemcpyHostToDevice);
    for (std::size_t slot = slots_; slot-- > 1;) free_.push_back(static_cast<std::uint32_t>(slot));
  }

  [[nodiscard]] uint4* slot_at(std::size_t slot) const {
    return values_.get() + slot * plan_.slot_granules();
  }

  /// The slot of a stream, which it gets if it has none.
  std::uint32_t seat(StreamPast& past) {
    const auto found = seats_.find(&past);
    if (found != seats_.end()) {
      found->second.used = now_;
      return found->second.slot;
    }
    if (free_.empty()) park_one();
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    if (past.values.size() == 0) {
      detail::cuda_check(cudaMemcpyAsync(slot_at(slot), slot_at(0), past_bytes(),
                                         cudaMemcpyDeviceToDevice, stream_.get()),
                         "beginning a stream");
    } else {
      copy(slot_at(slot), past.values.data(), past_bytes(), cudaMemcpyHostToDevice);
      past.values = {};
    }
    seats_[&past] = {slot, now_};
    return slot;
  }

  /// Frees the slot of the stream that has waited longest.
  void park_one() {
    const auto oldest = std::min_element(
        seats_.begin(), seats_.end(),
        [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
    HugeArray& values = oldest->first->values;
    values = HugeArray(past_bytes() / sizeof(float));
    copy(values.data(), slot_at(oldest->second.slot), past_bytes(), cudaMemcpyDeviceToHost);
    free_.push_back(oldest->second.slot);
    seats_.erase(oldest);
  }

  /// Writes what the step's kernels read to pinned memory.
  void fill(std::span<const Row> rows) {
    auto* const to = reinterpret_cast<StepRow*>(up_.get());
    // Streams of this step that have a slot keep it, whoever needs one.
    for (const Row& row : rows) {
      if (const auto found = seats_.find(row.past); found != seats_.end())
        found->second.used = now_;
    }
    for (std::size_t b = 0; b < in_tiles(rows.size()); ++b) {
      const bool used = b < rows.size();
      const std::size_t slot = used ? seat(*rows[b].past) : 0;
      const std::uint64_t step = used ? rows[b].past->step : 0;
      for (int kind = 0; kind < kinds; ++kind) {
        to[b].base[kind] = static_cast<std::uint32_t>(slot * plan_.slot_granules() +
                                                      plan_.base(static_cast<Kind>(kind), step));
      }
      to[b].used = used ? 1 : 0;
    }
    for_each_row(rows.size(), [&](std::size_t b) {
      if (rows[b].gpu_frame.pixels != nullptr) return;
      std::memcpy(up_.get() + frames_at_ + b * frame_, rows[b].frame.data(), frame_);
    });
  }

  /// Writes what is to be copied within the device: frames to where kernels read them, when they
  /// are there, and results from where kernels write them.
  void fill_moves(std::span<const Row> rows, const Shape& shape) {
    const auto bytes = [](const void* place, std::size_t count) {
      return place != nullptr ? static_cast<std::uint32_t>(count) : 0;
    };
    float* const hiddens = device_down_.get();
    float* const predictions = hiddens + (shape.hidden ? shape.rows * hidden_ : 0);
    for (std::size_t b = 0; b < shape.rows; ++b) {
      static const Row none;
      const Row& row = b < rows.size() ? rows[b] : none;
      if (row.gpu_frame.pixels != nullptr) Exchange::wait_for(row.gpu_frame, stream_.get());
      move_of(0, b) = {row.gpu_frame.pixels, device_up_.get() + frames_at_ + b * frame_,
                       bytes(row.gpu_frame.pixels, frame_)};
      move_of(1, b) = {hiddens + b * hidden_, row.gpu_hidden,
                       bytes(row.gpu_hidden, hidden_ * sizeof(float))};
      move_of(2, b) = {predictions + b * frame_, row.gpu_prediction,
                       bytes(row.gpu_prediction, frame_ * sizeof(float))};
    }
  }
  [[nodiscard]] Move& move_of(std::size_t kind, std::size_t row) const {
    return reinterpret_cast<Move*>(moves_.get())[kind * in_tiles(most_rows_) + row];
  }

  /// Copies a part of the results, `each` values a row from the `first` on, to where rows want it.
  void deliver(std::span<const Row> rows, std::span<float> Row::*part, std::size_t each,
               std::size_t first) {
    const bool any =
        std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return !(row.*part).empty(); });
    if (!any) return;
    const float* const results = reinterpret_cast<const float*>(down_.get()) + first;
    for_each_row(rows.size(), [&](std::size_t b) {
      const std::span<float> to = rows[b].*part;
      std::copy_n(results + b * each, to.size(), to.data());
    });
  }

  /// Calls work(b) for all rows, by the team if that is worth waking it.
  template <class Work>
  void for_each_row(std::size_t count, const Work& work) {
    constexpr std::size_t alone = 4;
    if (count <= alone) {
      for (std::size_t b = 0; b < count; ++b) work(b);
      return;
    }
    std::atomic<std::size_t> next{0};
    team_.run([&](int) {
      for (std::size_t b = next++; b < count; b = next++) work(b);
    });
  }

  detail::Graph& graph_of(const Shape& shape) {
    const auto [found, is_new] = graphs_.try_emplace(shape);
    if (is_new) {
      try {
        found->second.capture(stream_.get(), [&] { launch_all(shape); });
      } catch (...) {
        graphs_.erase(found);
        throw;
      }
    }
    return found->second;
  }

  void launch_all(const Shape& shape) {
    const auto copy_async = [this](void* to, const void* from, std::size_t bytes,
                                   cudaMemcpyKind kind) {
      detail::cuda_check(cudaMemcpyAsync(to, from, bytes, kind, stream_.get()), "copying frames");
    };
    if (shape.copies) {
      copy_async(device_up_.get(), up_.get(),
                 frames_at_ + (shape.of_host ? shape.rows * frame_ : 0), cudaMemcpyHostToDevice);
      if (shape.of_gpu) move(shape, 0, 1);
    }
    StepArguments a = arguments(shape);
    const auto granules = static_cast<unsigned>(plan_.patches() * plan_.patch_granules);
    detail::cuda_check(
        detail::launch(take_frames<Format>,
                       {dim3((granules + 127) / 128, static_cast<unsigned>(shape.rows)), 128, 0,
                        stream_.get()},
                       a),
        "launching a step");
    multiply<false>(a, plan_.hidden_items.size());
    if (shape.writes_to_host()) note_hidden();
    if (shape.predictions) {
      a.items = output_items_.get();
      multiply<true>(a, plan_.output_items.size());
    }
    const std::size_t results =
        shape.rows * ((shape.hidden ? hidden_ : 0) + (shape.predictions ? frame_ : 0));
    if (shape.writes_to_host()) return;
    if (shape.copies && shape.to_gpu) move(shape, 1, 2);
    if (shape.copies && shape.to_host && results > 0) {
      copy_async(down_.get(), device_down_.get(), results * sizeof(float), cudaMemcpyDeviceToHost);
    }
    if (shape.copies) note_hidden();
  }
  /// Copies within the device: `kinds` kinds of moves, from `first` on.
  void move(const Shape& shape, std::size_t first, unsigned kinds) const {
    const dim3 grid(move_blocks, static_cast<unsigned>(shape.rows), kinds);
    detail::cuda_check(detail::launch(move_all<uint4>, {grid, move_threads, 0, stream_.get()},
                                      &move_of(first, 0), in_tiles(most_rows_)),
                       "copying within the GPU");
  }
  /// The graph says here that hidden values are in pinned memory.
  void note_hidden() const {
    detail::cuda_check(
        cudaEventRecordWithFlags(has_hidden_.get(), stream_.get(), cudaEventRecordExternal),
        "noting the hidden values");
  }

  template <bool Predicts>
  void multiply(const StepArguments& a, std::size_t items) {
    if (logistic_) {
      multiply_with<Logistic, Predicts>(a, items);
    } else {
      multiply_with<Polynomial, Predicts>(a, items);
    }
  }
  template <class Function, bool Predicts>
  void multiply_with(const StepArguments& a, std::size_t items) {
    const auto of_items = static_cast<unsigned>(items);
    const auto of_streams = [&](int each) {
      return static_cast<unsigned>((a.count + each - 1) / each);
    };
    if (a.count > few) {
      // Predictions begin while hidden values end. (That hidden values begin while frames are taken
      // is slower.)
      const bool early = Predicts && facts_.is_hopper_or_later;
      detail::cuda_check(
          detail::launch(many_streams<Format, Function, Predicts>,
                         {dim3(of_streams(many_rows) * of_items), 32 * many_warps<Format>,
                          sizeof(Staged<Format>), stream_.get(), early},
                         a),
          "launching a step");
    } else {
      detail::cuda_check(
          detail::launch(few_streams<Format, Function, Predicts>,
                         {dim3(of_items, of_streams(tile_rows)), 32 * warps, 0, stream_.get()}, a),
          "launching a step");
    }
  }

  [[nodiscard]] StepArguments arguments(const Shape& shape) const {
    const auto whole = [](std::size_t n) { return static_cast<int>(n); };
    StepArguments a;
    a.items = items_.get();
    a.table = table_.get();
    a.weights = weights_.get();
    a.scales = scales_.get();
    a.rows = reinterpret_cast<const StepRow*>(device_up_.get());
    a.count = whole(shape.rows);
    a.values = values_.get();
    a.frames = device_up_.get() + frames_at_;
    float* const results =
        shape.writes_to_host() ? reinterpret_cast<float*>(down_.get()) : device_down_.get();
    a.hidden = shape.hidden ? results : nullptr;
    a.predictions = results + (shape.hidden ? shape.rows * hidden_ : 0);
    a.pixels = pixels_.get();
    a.patches = whole(plan_.patches());
    a.patch = whole(plan_.lines().patch);
    a.line = whole(plan_.lines().line);
    a.block = whole(plan_.lines().block);
    a.frame = whole(frame_);
    a.frame_row = whole(plan_.lines().row);
    a.hidden_each = plan_.net().hidden;
    a.units = whole(plan_.net().units.size());
    a.hidden_granules = whole(plan_.hidden_granules);
    a.patch_granules = whole(plan_.patch_granules);
    a.sms = facts_.multiprocessors;
    return a;
  }

  Team& team_;
  Plan<Format> plan_;
  bool logistic_;
  std::size_t most_rows_, hidden_, frame_;  // hidden_, frame_: values of a stream
  detail::DeviceFacts facts_;
  std::size_t frames_at_ = 0, slots_ = 0;
  detail::Stream stream_{true};
  detail::Event has_hidden_;
  detail::PinnedBytes up_, down_;  // [rows][StepRow], [rows][frame]; hidden values, predictions
  detail::PinnedBytes moves_;      // [kind][row] Move, which kernels read there
  detail::DeviceArray<std::uint8_t> device_up_;
  detail::DeviceArray<float> device_down_;
  detail::DeviceArray<Item> items_, output_items_;
  detail::DeviceArray<std::uint32_t> table_;
  detail::DeviceArray<std::uint8_t> weights_;
  detail::DeviceArray<float2> scales_;
  detail::DeviceArray<std::int32_t> pixels_;
  detail::DeviceArray<uint4> values_;  // [slot][granule]
  Exchange exchange_;
  std::vector<std::uint32_t> free_;
  std::unordered_map<StreamPast*, Seat> seats_;
  std::map<Shape, detail::Graph> graphs_;
  Shape last_;
  int device_ = 0;
  std::uint64_t now_ = 0;  // steps done
};

}  // namespace pvm::inline v0::infer::gpu
