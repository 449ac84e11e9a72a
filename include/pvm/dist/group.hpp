// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The ranks of a run. Rank 0 leads: it runs the program, which sees one engine. The others serve:
/// they do what that engine orders.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/dist/bytes.hpp>
#include <pvm/dist/communicator.hpp>
#include <pvm/dist/gpus_of_ranks.hpp>
#include <pvm/dist/make_share.hpp>
#include <pvm/dist/share.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/backend_choice.hpp>
#include <pvm/engine/choose.hpp>
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
  read_hidden,
  reserve_frames,
  store_frames,
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
  std::uint64_t budget = 0;  ///< of `reserve_frames`, in bytes
  std::uint64_t frames = 0;  ///< of `reserve_frames` and `store_frames`
  std::uint64_t first = 0;   ///< of `store_frames`
};

/// Calls visit(field) for what rank 0 tells the others of a task beside its spec, in this order.
template <class Task, class Visit>
void each_field(Task& task, Visit visit) {
  visit(task.batch);
  visit(task.precision);
  visit(task.wanted);
  visit(task.options.reduce);
  visit(task.options.threads);
  visit(task.options.graph);
  visit(task.options.restored_next);
  visit(task.options.devices);
  visit(task.options.shards);
}

}  // namespace detail

/// The engine that rank 0's program sees: its own share, and orders to the other ranks. Satisfies
/// Engine.
template <Communicator C>
class ShardedEngine {
 public:
  /// `broken`: becomes true if rank 0 alone fails in what all ranks have begun.
  ShardedEngine(C& ranks, const ShareTask& task, const pvm::detail::GpuEngines* gpu, bool& broken)
      : ranks_(ranks), frame_(task.spec.frame_size()), batch_(task.batch), broken_(broken) {
    order({detail::Order::make});
    broadcast_task(task);
    share_ = make_share(ranks, task, gpu);
  }
  ~ShardedEngine() {
    if (broken_) {  // the others wait for steps that will never be: so would this one
      (void)share_.release();
      return;
    }
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
  void synchronize() { local().synchronize(); }

  void run(const FrameBlock& block, Mode mode) {
    lead({detail::Order::run, block.steps, mode, block.squeezed.empty() ? 0 : 1}, [&] {
      share_->send(block);
      local().run(block, mode);
    });
  }

  void hold_rate(std::size_t layer, std::optional<float> rate) {
    detail::OrderMessage message{detail::Order::hold_rate};
    message.layer = layer;
    message.held = rate ? 1 : 0;
    message.rate = rate.value_or(0);
    lead(message, [&] { local().hold_rate(layer, rate); });
  }

  [[nodiscard]] Score take_score() {
    return lead({detail::Order::take_score}, [&] { return share_->take_score(); });
  }
  void read_weights(std::span<float> out) {
    lead({detail::Order::read_weights}, [&] { share_->read_weights(out); });
  }
  void read_outputs(std::span<float> out) {
    lead({detail::Order::read_outputs}, [&] { share_->read_outputs(out); });
  }
  void read_prediction(std::span<float> out) {
    lead({detail::Order::read_prediction}, [&] { share_->read_prediction(out); });
  }
  void read_hidden(std::span<float> out) {
    lead({detail::Order::read_hidden}, [&] { share_->read_hidden(out); });
  }
  [[nodiscard]] EngineState save() {
    return lead({detail::Order::save}, [&] { return share_->save(); });
  }
  void restore(const EngineState& state) {
    lead({detail::Order::restore}, [&] { share_->restore(state); });
  }
  [[nodiscard]] std::string description() {
    return std::to_string(ranks_.size()) + " ranks, each a " + local().description();
  }
  /// Of rank 0's GPU, if ranks compute on GPUs.
  [[nodiscard]] std::optional<double> device_seconds() { return local().device_seconds(); }

  std::size_t reserve_frames(std::size_t budget, std::size_t frames) {
    detail::OrderMessage message{detail::Order::reserve_frames};
    message.budget = budget;
    message.frames = frames;
    return lead(message, [&] { return share_->reserve_frames(budget, frames); });
  }
  void store_frames(std::size_t first, std::span<const std::uint8_t> pixels) {
    detail::OrderMessage message{detail::Order::store_frames};
    message.first = first;
    message.frames = pixels.size() / frame_;
    lead(message, [&] { share_->store_frames(first, message.frames, pixels); });
  }
  void read_frame(std::size_t index, std::span<std::uint8_t> pixels) {
    local().read_frame(index, pixels);
  }

 private:
  [[nodiscard]] AnyEngine& local() { return share_->engine(); }
  void order(detail::OrderMessage message) { ranks_.broadcast(bytes_of(message)); }

  /// Orders the other ranks to do what `work` does on this one.
  template <class Work>
  auto lead(const detail::OrderMessage& message, Work work) {
    order(message);
    try {
      return work();
    } catch (const Error& error) {
      // Other faults all ranks have alike.
      if (error.fault() == Fault::device || error.fault() == Fault::rank) broken_ = true;
      throw;
    }
  }

  /// Sends what `Group::make_share` receives.
  void broadcast_task(const ShareTask& task) {
    Bytes message;
    message.put(task.spec.name);
    message.put(to_json_text(task.spec));
    detail::each_field(task, [&](const auto& field) { message.put(field); });
    broadcast_all(ranks_, message.all);
  }

  C& ranks_;
  std::size_t frame_;
  int batch_;
  bool& broken_;
  std::unique_ptr<Share> share_;
};

/// The ranks of a run as one maker of engines. On rank 0, give it to the Trainer
/// (`TrainerOptions::ranks`), and call `end` when all is done; on the others, call `serve`. The
/// ranks have one engine at a time: a Trainer must go before another one is made.
template <Communicator C>
class Group final : public EngineMaker {
 public:
  /// Tells files from others of the same name: io::file_mark does. Empty: there is no such file.
  using Mark = std::function<std::string(const std::string&)>;

  /// `gpus`: the engines for ranks that compute on GPUs.
  explicit Group(C& ranks, GpusOf gpus = detail::gpus_of_program<>) : ranks_(ranks), gpus_(gpus) {}

  [[nodiscard]] bool leads() const noexcept { return ranks_.rank() == 0; }
  /// Whether rank 0 alone has failed in what all ranks had begun: then the others wait for ever,
  /// and their processes must be ended instead of calling `end`.
  [[nodiscard]] bool broken() const noexcept { return broken_; }

  AnyEngine make(const Spec& spec, int batch, std::string_view precision,
                 const EngineOptions& options, BackendChoice wanted) override {
    const ShareTask task{spec, batch, std::string(precision), options, wanted};
    return AnyEngine::make<ShardedEngine<C>>(ranks_, task, gpus_(precision), broken_);
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
          make();
          break;
        case Order::drop:
          share_.reset();
          break;
        case Order::run:
          share_->engine().run(share_->receive(message.steps, message.squeezed != 0), message.mode);
          break;
        case Order::save:
          static_cast<void>(share_->save());
          break;
        case Order::restore:
          restore();
          break;
        case Order::hold_rate:
          share_->engine().hold_rate(
              static_cast<std::size_t>(message.layer),
              message.held != 0 ? std::optional<float>(message.rate) : std::nullopt);
          break;
        case Order::take_score:
          static_cast<void>(share_->take_score());
          break;
        case Order::read_weights:
          share_->read_weights({});
          break;
        case Order::read_outputs:
          share_->read_outputs({});
          break;
        case Order::read_prediction:
          share_->read_prediction({});
          break;
        case Order::read_hidden:
          share_->read_hidden({});
          break;
        case Order::reserve_frames:
          static_cast<void>(share_->reserve_frames(message.budget, message.frames));
          break;
        case Order::store_frames:
          share_->store_frames(message.first, message.frames, {});
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

  void make() {
    Bytes message;
    broadcast_all(ranks_, message.all);
    std::string name, text;
    ShareTask task;
    message.get(name);
    message.get(text);
    detail::each_field(task, [&](auto& field) { message.get(field); });
    task.spec = parse_spec(text, name);
    task.spec.name = name;
    try {
      share_ = make_share(ranks_, task, gpus_(task.precision));
    } catch (const Error& error) {  // rank 0 has thrown the same
      if (error.fault() == Fault::rank) throw;
    }
  }

  void restore() {
    try {
      share_->restore({});
    } catch (const Error& error) {  // rank 0 has thrown the same
      if (error.fault() != Fault::checkpoint && error.fault() != Fault::usage) throw;
    }
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
  GpusOf gpus_;
  bool broken_ = false;           // rank 0
  std::unique_ptr<Share> share_;  // the others
};

}  // namespace pvm::inline v0::dist
