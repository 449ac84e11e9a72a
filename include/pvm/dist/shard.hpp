// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A rank's share of a network on the host: an engine for some of the units, and the operations for
/// which all ranks come together.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/random.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/dist/broadcast_values.hpp>
#include <pvm/dist/communicator.hpp>
#include <pvm/dist/frame_lines.hpp>
#include <pvm/dist/host_exchange.hpp>
#include <pvm/dist/partition.hpp>
#include <pvm/dist/ranks_by.hpp>
#include <pvm/dist/share.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/choose.hpp>
#include <pvm/engine/history.hpp>
#include <pvm/engine/other_ranks.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::dist {

namespace detail {

/// The host engine for a spec whose products read weights in `precision`.
inline AnyEngine make_host(const Spec& spec, int batch, std::string_view precision,
                           const EngineOptions& options) {
  using pvm::detail::make_host_engine;
  if (precision == bf16::name) {
    return make_host_engine<bf16, dynamic, RuntimeNetwork>(spec, batch, options);
  }
  if (precision == fp16::name) {
    return make_host_engine<fp16, dynamic, RuntimeNetwork>(spec, batch, options);
  }
  if (precision == fp32::name) {
    return make_host_engine<fp32, dynamic, RuntimeNetwork>(spec, batch, options);
  }
  throw Error(Fault::usage, std::string(precision) +
                                " exists on GPUs only, and several ranks compute on the host; "
                                "take fp32, bf16 or fp16");
}

}  // namespace detail

/// The state of the whole network is on rank 0 only, before `restore` and after `save`; every rank
/// has its own weights and all hidden values. The store of decoded frames is rank 0's.
template <Communicator C>
class Shard final : public Share {
 public:
  /// The units are dealt to the ranks by what their steps cost: for this each rank runs a few steps
  /// on noise. Throws Error: usage if there are more ranks than units; what the engine throws.
  Shard(C& ranks, const Spec& spec, int batch, std::string_view precision, EngineOptions options)
      : ranks_(ranks),
        spec_(spec),
        net_(make_connectome(spec)),
        batch_(batch),
        lines_(ranks, spec.frame_size()) {
    const auto units = net_.units.size();
    if (size() > units) {
      throw Error(Fault::usage, "spec " + quote(spec.name) + " has " + std::to_string(units) +
                                    " units, which cannot be shared by " + std::to_string(size()) +
                                    " ranks; start fewer");
    }
    options.restored_next = false;  // it runs before that, to be measured
    if (options.threads == 0) options.threads = std::max(1, ranks.cores());
    ranks.expect_threads(options.threads);
    make_engines(balanced_ranges(costs_of_units(net_), size()), precision, options, true);
    const std::vector<std::size_t> starts = measure();
    engine_.reset();
    make_engines(starts, precision, options, false);
  }

  [[nodiscard]] AnyEngine& engine() override { return *engine_; }
  /// What belongs to the units of rank `r`.
  [[nodiscard]] const Part& part(int r) const { return parts_[static_cast<std::size_t>(r)]; }
  [[nodiscard]] const Part& own() const { return part(ranks_.rank()); }

  /// Each rank gets the lines of the frames that the patches of its units lie in.
  void send(const FrameBlock& block) override {
    ranks_.broadcast(std::as_writable_bytes(block.scored));
    const std::span<const std::uint8_t> pixels = all_pixels(block);
    for (int r = 1; r < ranks_.size(); ++r) {
      const Run& lines = part(r).lines;
      if (lines.count == 0) continue;
      if (block.squeezed.empty()) {
        lines_.send(r, pixels, lines);
      } else {
        lines_.send(r, block.squeezed, lines);
      }
    }
  }
  [[nodiscard]] FrameBlock receive(int steps, bool squeezed) override {
    FrameBlock block = engine_->stage(steps);
    ranks_.broadcast(std::as_writable_bytes(block.scored));
    const Run& lines = own().lines;
    if (squeezed) {
      squeezed_.resize(block.pixels.size());
      if (lines.count > 0) lines_.receive(std::span<float>(squeezed_), lines);
      block.squeezed = squeezed_;
    } else if (lines.count > 0) {
      lines_.receive(block.pixels, lines);
    }
    return block;
  }

  [[nodiscard]] EngineState save() override {
    EngineState state = engine_->save();
    const auto batch = static_cast<std::size_t>(batch_);
    const auto terms = static_cast<std::size_t>(state.plan.terms);
    const std::size_t arrays = arrays_of(state.dweights, own().weights);
    gather(state.weights, 1, net_.weights, &Part::weights);
    gather(state.folded, 1, net_.weights, &Part::weights);
    gather(state.dweights, arrays, net_.weights, &Part::weights);
    gather(state.outputs, 2 * batch, net_.outputs, &Part::outputs);
    gather(state.output_gradients, terms * batch, net_.outputs, &Part::outputs);
    state.hidden_gradients = pack(state.hidden_gradients, terms * batch, own().units);
    gather(state.hidden_gradients, terms * batch, hidden_values(), &Part::units);
    state.frames = pack(state.frames, (terms + 4) * batch, own().pixels);
    gather(state.frames, (terms + 4) * batch, spec_.frame_size(), &Part::pixels);
    return state;
  }

  /// Throws Error (checkpoint) on all ranks if `state`, which counts on rank 0, is impossible.
  void restore(EngineState state) override {
    std::string fault;
    if (ranks_.rank() == 0) {
      try {
        pvm::detail::check_state(state, {spec_, net_, batch_});
        if (state.dweights.size() % net_.weights != 0)
          pvm::detail::check_size("dweights", state.dweights.size(), net_.weights);
      } catch (const Error& error) {
        fault = error.what();
      }
    }
    bool resumable = state.resumable();
    std::uint64_t arrays = state.dweights.size() / net_.weights;
    broadcast_values(ranks_, fault, resumable, arrays);
    if (!fault.empty()) throw Error(Fault::checkpoint, fault);
    bool other_plan = state.plan1.has_value();
    DeferralPlan plan1 = state.plans().w1;
    broadcast_values(ranks_, state.step, state.rates, state.layout, state.plan, state.coefficients,
                     other_plan, plan1, state.coefficients1);
    if (other_plan) state.plan1 = plan1;
    scatter(state.weights, 1, &Part::weights);
    if (resumable) {
      const auto batch = static_cast<std::size_t>(batch_);
      const auto terms = static_cast<std::size_t>(state.plan.terms);
      state.batch = batch_;
      broadcast_values(ranks_, state.hidden, state.squeezed, state.frames, state.hidden_gradients);
      scatter(state.folded, 1, &Part::weights);
      scatter(state.dweights, arrays, &Part::weights);
      scatter(state.outputs, 2 * batch, &Part::outputs);
      scatter(state.output_gradients, terms * batch, &Part::outputs);
    }
    engine_->restore(state);
  }

  /// The sum over all units in their order, on rank 0.
  [[nodiscard]] Score take_score() override {
    std::vector<Score> scores(net_.units.size());
    engine_->take_unit_scores(scores);
    std::span<Score> all(scores);
    if (ranks_.rank() != 0) {
      ranks_.send(0, std::as_bytes(all.subspan(own().first, own().end - own().first)));
      return {};
    }
    for (int r = 1; r < ranks_.size(); ++r) {
      const auto theirs = all.subspan(part(r).first, part(r).end - part(r).first);
      ranks_.receive(r, std::as_writable_bytes(theirs));
    }
    Score sum;
    for (const Score& score : scores) sum += score;
    return sum;
  }

  /// What the engine's functions of these names read; complete on rank 0.
  void read_weights(std::span<float> out) override {
    std::vector<float> values(total(own().weights));
    engine_->read_weights(values);
    gather(values, 1, net_.weights, &Part::weights);
    copy_to(out, values);
  }
  void read_outputs(std::span<float> out) override {
    const auto batch = static_cast<std::size_t>(batch_);
    std::vector<float> values(batch * total(own().outputs));
    engine_->read_outputs(values);
    gather(values, batch, net_.outputs, &Part::outputs);
    copy_to(out, values);
  }
  void read_prediction(std::span<float> out) override {
    const auto batch = static_cast<std::size_t>(batch_);
    std::vector<float> values(batch * spec_.frame_size());
    engine_->read_prediction(values);
    values = pack(values, batch, own().pixels);
    gather(values, batch, spec_.frame_size(), &Part::pixels);
    copy_to(out, values);
  }
  void read_hidden(std::span<float> out) override {
    if (ranks_.rank() == 0) engine_->read_hidden(out);
  }

  std::size_t reserve_frames(std::size_t budget, std::size_t frames) override {
    return ranks_.rank() == 0 ? engine_->reserve_frames(budget, frames) : 0;
  }
  void store_frames(std::size_t first, std::size_t /*frames*/,
                    std::span<const std::uint8_t> pixels) override {
    if (ranks_.rank() == 0) engine_->store_frames(first, pixels);
  }

 private:
  using Which = Runs Part::*;

  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(ranks_.size()); }
  [[nodiscard]] std::size_t hidden_values() const {
    return net_.units.size() * static_cast<std::size_t>(net_.hidden);
  }
  [[nodiscard]] static std::size_t arrays_of(const std::vector<float>& values, const Runs& runs) {
    return values.empty() ? 0 : values.size() / total(runs);
  }
  static void copy_to(std::span<float> out, const std::vector<float>& values) {
    if (out.size() == values.size()) std::copy(values.begin(), values.end(), out.begin());
  }

  /// Makes the engines of all ranks; throws on all of them if one cannot be made.
  void make_engines(const std::vector<std::size_t>& starts, std::string_view precision,
                    const EngineOptions& options, bool measuring) {
    RanksBy<C> all(ranks_);
    pvm::detail::on_all_ranks(all, [&] { make_engine(starts, precision, options, measuring); });
  }
  void make_engine(const std::vector<std::size_t>& starts, std::string_view precision,
                   EngineOptions options, bool measuring) {
    parts_.clear();
    for (std::size_t r = 0; r < size(); ++r)
      parts_.emplace_back(spec_, net_, starts[r], starts[r + 1]);
    exchange_.emplace(ranks_, starts);
    if (measuring) exchange_->seconds.resize(net_.units.size());
    options.exchange = &*exchange_;
    engine_.emplace(detail::make_host(spec_, batch_, precision, options));
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
      engine_->read_frame(block.stored[row], std::span(pixels_).subspan(row * frame, frame));
    }
    return pixels_;
  }

  /// Runs steps on noise, and returns the partition by what each unit's step has cost. How long
  /// that was changes which rank computes a unit, and no result.
  [[nodiscard]] std::vector<std::size_t> measure() {
    constexpr int steps = 8, most_blocks = 20, warm_blocks = 2;
    constexpr double enough = 0.3;  // seconds
    const auto began = std::chrono::steady_clock::now();
    std::uint8_t goes_on = 1;
    for (int i = 0; i < most_blocks && goes_on != 0; ++i) {
      const FrameBlock block = engine_->stage(steps);
      for (std::size_t k = 0; k < block.pixels.size(); ++k) {
        const auto noise = uniform(static_cast<std::uint64_t>(i), k);
        block.pixels[k] = static_cast<std::uint8_t>(noise * 255.0F);
      }
      if (i == warm_blocks) {  // from now on it counts
        for (std::vector<float>& times : exchange_->seconds) times.clear();
      }
      engine_->run(block, Mode::learn);
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - began;
      goes_on = time.count() < enough ? 1 : 0;
      ranks_.broadcast(bytes_of(goes_on));
    }
    std::vector<float> seconds;
    for (const std::vector<float>& times : exchange_->seconds)
      seconds.push_back(static_cast<float>(usual_time({times.begin(), times.end()})));
    const auto of = [&](int r) {
      return std::as_writable_bytes(
          std::span(seconds).subspan(part(r).first, part(r).end - part(r).first));
    };
    std::vector<std::size_t> starts;
    if (ranks_.rank() == 0) {
      for (int r = 1; r < ranks_.size(); ++r) ranks_.receive(r, of(r));
      for (const Part& part : parts_) starts.push_back(part.first);
      starts.push_back(net_.units.size());
      const double each = measured_each(net_, seconds, starts, default_each);
      starts = balanced_ranges(costs_of_units(net_, each), size());
    } else {
      ranks_.send(0, of(ranks_.rank()));
    }
    broadcast_all(ranks_, starts);
    return starts;
  }

  /// Every rank has its part of each of `rows` rows in `values`; afterwards rank 0 has whole rows
  /// of `width` values.
  void gather(std::vector<float>& values, std::size_t rows, std::size_t width, Which which) {
    if (rows == 0) return;
    if (ranks_.rank() != 0) return ranks_.send(0, bytes_of(values));
    std::vector<float> all(rows * width);
    unpack(values, all, rows, own().*which);
    for (int r = 1; r < ranks_.size(); ++r) {
      values.resize(rows * total(part(r).*which));
      ranks_.receive(r, bytes_of(values));
      unpack(values, all, rows, part(r).*which);
    }
    values = std::move(all);
  }
  /// The reverse: rank 0 has whole rows in `values`, and afterwards every rank its part of each.
  void scatter(std::vector<float>& values, std::size_t rows, Which which) {
    if (rows == 0) return;
    if (ranks_.rank() != 0) {
      values.resize(rows * total(own().*which));
      return ranks_.receive(0, bytes_of(values));
    }
    for (int r = 1; r < ranks_.size(); ++r) {
      const std::vector<float> theirs = pack(values, rows, part(r).*which);
      ranks_.send(r, bytes_of(theirs));
    }
    values = pack(values, rows, own().*which);
  }

  C& ranks_;
  Spec spec_;
  Connectome net_;
  int batch_;
  detail::FrameLines<C> lines_;
  std::vector<std::uint8_t> pixels_;  // rank 0: of a block
  std::vector<float> squeezed_;       // others: of a block
  std::vector<Part> parts_;           // [rank]
  std::optional<HostExchange<C>> exchange_;
  std::optional<AnyEngine> engine_;  // after exchange_, which it uses
};

}  // namespace pvm::inline v0::dist
