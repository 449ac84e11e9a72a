// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The ranks of a run. Rank 0 leads: it runs the program, which sees one engine. The others serve:
/// they do what that engine orders.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/dist/bytes.hpp>
#include <pvm/dist/communicator.hpp>
#include <pvm/dist/shard.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/engine_maker.hpp>
#include <pvm/model/json.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::dist {

namespace detail {

/// What rank 0 orders. Each order is followed by the messages of its operation.
enum class Order : std::uint32_t {
  make,
  drop,
  run,
  save,
  restore,
  hold_rate,
  take_score,
  read_weights,
  read_outputs,
  read_prediction,
  compare,
  end
};

/// An order, as it is broadcast.
struct OrderMessage {
  Order order = Order::end;
  std::int32_t steps = 0;     ///< of `run`
  Mode mode = Mode::learn;    ///< of `run`
  std::int32_t squeezed = 0;  ///< of `run`: whether the block has squeezed values
  std::uint64_t layer = 0;    ///< of `hold_rate`
  std::int32_t held = 0;      ///< of `hold_rate`: whether there is a rate
  float rate = 0;
};

/// Sends the frames of a block to the ranks that need some of their lines, or receives them.
template <Communicator C>
class FrameLines {
 public:
  FrameLines(C& ranks, std::size_t frame) : ranks_(ranks), frame_(frame) {}

  /// `all`: whole frames, one after the other.
  template <class T>
  void send(int to, std::span<const T> all, const Run& lines) {
    std::vector<T> packed;
    packed.reserve(all.size() / frame_ * lines.count);
    for (std::size_t at = lines.begin; at < all.size(); at += frame_)
      packed.insert(packed.end(), all.begin() + static_cast<std::ptrdiff_t>(at),
                    all.begin() + static_cast<std::ptrdiff_t>(at + lines.count));
    ranks_.send(to, bytes_of(packed));
  }
  template <class T>
  void receive(std::span<T> all, const Run& lines) {
    std::vector<T> packed(all.size() / frame_ * lines.count);
    ranks_.receive(0, bytes_of(packed));
    auto from = packed.begin();
    for (std::size_t at = lines.begin; at < all.size(); at += frame_) {
      std::copy_n(from, lines.count, all.begin() + static_cast<std::ptrdiff_t>(at));
      from += static_cast<std::ptrdiff_t>(lines.count);
    }
  }

 private:
  C& ranks_;
  std::size_t frame_;
};

}  // namespace detail

/// The engine that rank 0's program sees: its own share, and orders to the other ranks. Satisfies
/// Engine. The store of decoded frames is rank 0's.
template <Communicator C>
class ShardedEngine {
 public:
  ShardedEngine(C& ranks, const Spec& spec, int batch, std::string_view precision,
                const EngineOptions& options)
      : ranks_(ranks), spec_(spec), batch_(batch), lines_(ranks, spec.frame_size()) {
    order({detail::Order::make});
    broadcast_task(precision, options);
    shard_.emplace(ranks, spec, batch, precision, options);
  }
  ~ShardedEngine() {
    shard_.reset();
    try {
      order({detail::Order::drop});
    } catch (const Error&) {  // a rank was lost, which has been said
    }
  }
  ShardedEngine(const ShardedEngine&) = delete;
  ShardedEngine& operator=(const ShardedEngine&) = delete;

  [[nodiscard]] int batch() const noexcept { return batch_; }
  [[nodiscard]] std::uint64_t step() { return local().step(); }
  [[nodiscard]] int block_steps() { return local().block_steps(); }
  [[nodiscard]] FrameBlock stage(int steps) { return local().stage(steps); }
  void synchronize() noexcept {}

  void run(const FrameBlock& block, Mode mode) {
    order({detail::Order::run, block.steps, mode, block.squeezed.empty() ? 0 : 1});
    ranks_.broadcast(std::as_writable_bytes(block.scored));
    const std::span<const std::uint8_t> pixels = all_pixels(block);
    for (int r = 1; r < ranks_.size(); ++r) {
      const Run& lines = shard_->part(r).lines;
      if (lines.count == 0) continue;
      if (block.squeezed.empty()) {
        lines_.send(r, pixels, lines);
      } else {
        lines_.send(r, block.squeezed, lines);
      }
    }
    local().run(block, mode);
  }

  void hold_rate(std::size_t layer, std::optional<float> rate) {
    detail::OrderMessage message{detail::Order::hold_rate};
    message.layer = layer;
    message.held = rate ? 1 : 0;
    message.rate = rate.value_or(0);
    order(message);
    local().hold_rate(layer, rate);
  }

  [[nodiscard]] Score take_score() {
    order({detail::Order::take_score});
    return shard_->take_score();
  }
  void read_weights(std::span<float> out) {
    order({detail::Order::read_weights});
    shard_->read_weights(out);
  }
  void read_outputs(std::span<float> out) {
    order({detail::Order::read_outputs});
    shard_->read_outputs(out);
  }
  void read_prediction(std::span<float> out) {
    order({detail::Order::read_prediction});
    shard_->read_prediction(out);
  }
  void read_hidden(std::span<float> out) { local().read_hidden(out); }
  [[nodiscard]] EngineState save() {
    order({detail::Order::save});
    return shard_->save();
  }
  void restore(const EngineState& state) {
    order({detail::Order::restore});
    shard_->restore(state);
  }
  [[nodiscard]] std::string description() {
    return std::to_string(ranks_.size()) + " ranks, each a " + local().description();
  }

  std::size_t reserve_frames(std::size_t budget, std::size_t frames) {
    return local().reserve_frames(budget, frames);
  }
  void store_frames(std::size_t first, std::span<const std::uint8_t> pixels) {
    local().store_frames(first, pixels);
  }
  void read_frame(std::size_t index, std::span<std::uint8_t> pixels) {
    local().read_frame(index, pixels);
  }

 private:
  [[nodiscard]] AnyEngine& local() { return shard_->engine(); }
  void order(detail::OrderMessage message) { ranks_.broadcast(bytes_of(message)); }

  /// Sends what `Group::make_shard` receives.
  void broadcast_task(std::string_view precision, const EngineOptions& options) {
    Bytes message;
    message.put(spec_.name);
    message.put(to_json_text(spec_));
    message.put(batch_);
    message.put(std::string(precision));
    message.put(options.reduce);
    message.put(options.threads);
    broadcast_all(ranks_, message.all);
  }

  /// The pixels of a block, also of frames that are in the store.
  [[nodiscard]] std::span<const std::uint8_t> all_pixels(const FrameBlock& block) {
    const bool any = std::any_of(block.stored.begin(), block.stored.end(),
                                 [](std::uint32_t index) { return index != not_stored; });
    if (!any) return block.pixels;
    const std::size_t frame = spec_.frame_size();
    pixels_.assign(block.pixels.begin(), block.pixels.end());
    for (std::size_t row = 0; row < block.stored.size(); ++row) {
      if (block.stored[row] == not_stored) continue;
      local().read_frame(block.stored[row], std::span(pixels_).subspan(row * frame, frame));
    }
    return pixels_;
  }

  C& ranks_;
  Spec spec_;
  int batch_;
  detail::FrameLines<C> lines_;
  std::optional<Shard<C>> shard_;
  std::vector<std::uint8_t> pixels_;
};

/// The ranks of a run as one maker of engines. On rank 0, give it to the Trainer
/// (`TrainerOptions::ranks`), and call `end` when all is done; on the others, call `serve`.
template <Communicator C>
class Group final : public EngineMaker {
 public:
  /// Tells files from others of the same name: io::file_mark does. Empty: there is no such file.
  using Mark = std::function<std::string(const std::string&)>;

  explicit Group(C& ranks) : ranks_(ranks) {}

  [[nodiscard]] bool leads() const noexcept { return ranks_.rank() == 0; }

  AnyEngine make(const Spec& spec, int batch, std::string_view precision,
                 const EngineOptions& options) override {
    return AnyEngine::make<ShardedEngine<C>>(ranks_, spec, batch, precision, options);
  }

  /// On rank 0: throws Error (rank) if another rank has another file under one of these paths. A
  /// file that a rank lacks is not compared: only rank 0 reads files.
  void compare_files(const std::vector<std::string>& paths, const Mark& mark) {
    order(detail::Order::compare);
    Bytes message;
    message.put(static_cast<std::uint64_t>(paths.size()));
    for (const std::string& path : paths) message.put(path);
    broadcast_all(ranks_, message.all);
    std::string differing;
    for (const std::string& path : paths) {
      const std::string here = mark(path);
      for (int r = 1; r < ranks_.size(); ++r) {
        std::vector<char> there;
        receive_bytes(ranks_, r, there);
        if (there.empty() || here.empty() || here == std::string(there.begin(), there.end()))
          continue;
        if (!differing.empty()) continue;
        differing = "rank " + std::to_string(r) + " has another file " + quote(path) +
                    " than rank 0; start all ranks with the same files";
      }
    }
    if (!differing.empty()) throw Error(Fault::rank, differing);
  }

  /// On rank 0: lets the others return from `serve` with `code`.
  void end(int code) {
    order(detail::Order::end);
    ranks_.broadcast(bytes_of(code));
  }

  /// On the other ranks: does what rank 0 orders until it ends, and returns its code. Throws Error:
  /// what the engine throws; rank, if one was lost.
  int serve(const Mark& mark) {
    using detail::Order;
    for (;;) {
      detail::OrderMessage message;
      ranks_.broadcast(bytes_of(message));
      switch (message.order) {
        case Order::make:
          make_shard();
          break;
        case Order::drop:
          shard_.reset();
          break;
        case Order::run:
          run(message);
          break;
        case Order::save:
          static_cast<void>(shard_->save());
          break;
        case Order::restore:
          restore();
          break;
        case Order::hold_rate:
          shard_->engine().hold_rate(
              static_cast<std::size_t>(message.layer),
              message.held != 0 ? std::optional<float>(message.rate) : std::nullopt);
          break;
        case Order::take_score:
          static_cast<void>(shard_->take_score());
          break;
        case Order::read_weights:
          shard_->read_weights({});
          break;
        case Order::read_outputs:
          shard_->read_outputs({});
          break;
        case Order::read_prediction:
          shard_->read_prediction({});
          break;
        case Order::compare:
          send_marks(mark);
          break;
        case Order::end:
          int code = 0;
          ranks_.broadcast(bytes_of(code));
          return code;
      }
    }
  }

 private:
  void order(detail::Order what) {
    detail::OrderMessage message{what};
    ranks_.broadcast(bytes_of(message));
  }

  void make_shard() {
    Bytes message;
    broadcast_all(ranks_, message.all);
    std::string name, text, precision;
    int batch = 0;
    EngineOptions options;
    message.get(name);
    message.get(text);
    message.get(batch);
    message.get(precision);
    message.get(options.reduce);
    message.get(options.threads);
    spec_ = parse_spec(text, name);
    spec_.name = name;
    try {
      shard_.emplace(ranks_, spec_, batch, precision, options);
    } catch (const Error& error) {  // rank 0 has thrown the same
      if (error.fault() == Fault::rank) throw;
    }
  }

  void restore() {
    try {
      shard_->restore({});
    } catch (const Error& error) {  // rank 0 has thrown the same
      if (error.fault() != Fault::checkpoint) throw;
    }
  }

  void run(const detail::OrderMessage& message) {
    FrameBlock block = shard_->engine().stage(message.steps);
    ranks_.broadcast(std::as_writable_bytes(block.scored));
    detail::FrameLines<C> lines(ranks_, spec_.frame_size());
    const Run& own = shard_->own().lines;
    if (message.squeezed != 0) {
      squeezed_.resize(block.pixels.size());
      if (own.count > 0) lines.receive(std::span<float>(squeezed_), own);
      block.squeezed = squeezed_;
    } else if (own.count > 0) {
      lines.receive(block.pixels, own);
    }
    shard_->engine().run(block, message.mode);
  }

  void send_marks(const Mark& mark) {
    Bytes message;
    broadcast_all(ranks_, message.all);
    std::uint64_t count = 0;
    message.get(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      std::string path;
      message.get(path);
      const std::string text = mark(path);
      send_bytes(ranks_, 0, std::vector<char>(text.begin(), text.end()));
    }
  }

  C& ranks_;
  Spec spec_;
  std::optional<Shard<C>> shard_;
  std::vector<float> squeezed_;
};

}  // namespace pvm::inline v0::dist
