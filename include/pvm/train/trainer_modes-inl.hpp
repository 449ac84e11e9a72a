// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The bodies of trainer_base.hpp that obey commands and change frames: the modes of a run, which
/// docs/model.md defines.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/io/source.hpp>
#include <pvm/train/callback.hpp>
#include <pvm/train/command.hpp>
#include <pvm/train/feed.hpp>
#include <pvm/train/modes.hpp>
#include <pvm/train/trainer_base.hpp>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0 {

namespace detail {

/// The index in a frame of value k (row, column, channel) of the patch of a layer-0 unit.
inline std::size_t pixel_of(const Spec& spec, const Unit& unit, std::size_t k) {
  const auto block = static_cast<std::size_t>(spec.input_block_size);
  const auto channels = static_cast<std::size_t>(spec.input_channels);
  const std::size_t line = block * channels;
  const std::size_t row = static_cast<std::size_t>(unit.row) * block + k / line;
  const std::size_t column = static_cast<std::size_t>(unit.column) * block;
  return (row * static_cast<std::size_t>(spec.frame_side()) + column) * channels + k % line;
}

/// A prediction as a pixel.
inline std::uint8_t pixel_from(float output) {
  const float value = unsqueeze(output);
  return value >= 0 ? static_cast<std::uint8_t>(255.0F * value + 0.5F) : 0;  // 0 for NaN
}

/// Calls `change(first, count)` for each row of pixels of `spot` in a frame.
template <class Change>
void for_each_row(const Spot& spot, const io::FrameShape& shape, Change change) {
  const auto channels = static_cast<std::size_t>(shape.channels);
  for (int y = spot.y; y < spot.y + spot.height; ++y) {
    const auto first = static_cast<std::size_t>(y * shape.width + spot.x) * channels;
    change(first, static_cast<std::size_t>(spot.width) * channels);
  }
}

}  // namespace detail

PVM_INLINE void TrainerBase::set_modes(Modes modes) {
  modes_ = std::move(modes);
  for (std::size_t l = 0; l < modes_.rates.size(); ++l) engine_.hold_rate(l, modes_.rates[l]);
}

PVM_INLINE void TrainerBase::command(const Command& command) { obey(command); }

PVM_INLINE void TrainerBase::command_at(std::uint64_t at, const Command& command) {
  if (at < step()) {
    throw Error(Fault::usage, "the command " + quote(command_text(command)) + " is for step " +
                                  std::to_string(at) + ", and the run is at step " +
                                  std::to_string(step()) + "; name a later one");
  }
  Modes possible = modes_;
  possible.obey(command, spec_.frame_side());
  waiting_.emplace(at, command);
}

PVM_INLINE void TrainerBase::post(const Command& command) {
  constexpr std::size_t most = 1000;  // nobody gives more within a block of steps
  {
    const std::lock_guard lock(post_mutex_);
    if (posted_.size() < most) posted_.push_back(command);
    any_posted_.store(true);
  }
  posted_some_.notify_one();
}

PVM_INLINE void TrainerBase::obey_posted() {
  if (!any_posted_.load()) return;
  std::vector<Command> posted;
  {
    const std::lock_guard lock(post_mutex_);
    posted.swap(posted_);
    any_posted_.store(false);
  }
  for (const Command& command : posted) {
    try {
      obey(command);
    } catch (const Error& error) {
      log(Severity::warning, error.what());
    }
  }
}

PVM_INLINE void TrainerBase::obey(const Command& command) {
  using Verb = Command::Verb;
  Modes modes = modes_;
  modes.obey(command, spec_.frame_side());
  if (modes.frozen == (options_.mode == Mode::freeze)) modes.frozen.reset();  // as it was started
  if (command.verb == Verb::skip || command.verb == Verb::restart) move_sources(command);
  if (command.verb == Verb::pause) allowed_ = 0;
  if (command.verb == Verb::step) allowed_ = command.steps;
  if (command.verb == Verb::resume) allowed_.reset();
  set_modes(std::move(modes));
  const bool changes_results =
      command.verb != Verb::pause && command.verb != Verb::step && command.verb != Verb::resume;
  if (!changes_results) return;
  constexpr std::size_t most = 10'000;
  if (obeyed_.size() == most) obeyed_.pop_front();
  obeyed_.push_back({step(), command_text(command)});
  ++commands_;
}

PVM_INLINE void TrainerBase::move_sources(const Command& command) {
  if (feed_ == nullptr) {
    throw Error(Fault::usage, "the command " + quote(command_text(command)) +
                                  " moves a source, and only a fit has sources");
  }
  const std::size_t first = command.index.value_or(0);
  const std::size_t end = command.index ? first + 1 : streams_.size();
  for (std::size_t b = first; b < end; ++b) {
    StreamState& state = streams_[b];
    io::Position to{0, 0, state.position.pass};
    if (command.verb == Command::Verb::skip) {
      to.sequence = state.position.sequence + 1;
      if (to.sequence >= feed_->files(b)) to = {0, 0, state.position.pass + 1};
    }
    try {
      feed_->move(b, to);
    } catch (const Error& error) {  // a camera, for example
      log(Severity::warning, "the command " + quote(command_text(command)) +
                                 " cannot be obeyed for sequence " + std::to_string(b) + ": " +
                                 error.what());
      continue;
    }
    state.position = to;
    state.frames_since_start = 0;
  }
}

PVM_INLINE std::optional<TrainerBase::BeforeCommands> TrainerBase::before_commands() {
  if (waiting_.empty() || waiting_.begin()->first > step()) return std::nullopt;
  return BeforeCommands{modes_, streams_, waiting_, obeyed_, commands_};
}

PVM_INLINE void TrainerBase::put_back(const BeforeCommands& before) {
  set_modes(before.modes);
  streams_ = before.streams;
  waiting_ = before.waiting;
  obeyed_ = before.obeyed;
  commands_ = before.commands;
}

PVM_INLINE std::uint64_t TrainerBase::obey_due(std::uint64_t most) {
  const std::uint64_t now = step();
  while (!waiting_.empty() && waiting_.begin()->first <= now) {
    const Command due = waiting_.begin()->second;
    waiting_.erase(waiting_.begin());
    obey(due);
  }
  if (!waiting_.empty()) most = std::min(most, waiting_.begin()->first - now);
  return modes_.dreams() ? std::min<std::uint64_t>(most, 1) : most;  // it sees its last output
}

PVM_INLINE void TrainerBase::wait_while_paused(Callbacks callbacks, Moment moment) {
  constexpr std::chrono::milliseconds look_again{50};  // whether a signal asks to stop
  moment.step = step();
  while (paused() && !stop_.load()) {
    for (detail::ScheduledCallback& scheduled : callbacks) scheduled.callback->idle(moment);
    {
      std::unique_lock lock(post_mutex_);
      posted_some_.wait_for(lock, look_again, [this] { return any_posted_.load(); });
    }
    obey_posted();
  }
}

PVM_INLINE void TrainerBase::run_filled(const FrameBlock& block,
                                        std::vector<io::StreamState>& states,
                                        std::span<const io::Label> labels) {
  change_frames(block, states);
  note_last_frames(block);
  if (readout_follows_) readout_->expect(step(), labels);
  last_label_ = labels[labels.size() - static_cast<std::size_t>(batch())];
  engine_.run(block, mode());
  if (readout_ != nullptr && !readout_follows_) teach(last_label_);
  if (!modes_.dreams()) return;
  outputs_.resize(net_.outputs * static_cast<std::size_t>(batch()));
  engine_.read_outputs(outputs_);
  keep_predicted(step() + 1, outputs_);
}

PVM_INLINE void TrainerBase::change_frames(const FrameBlock& block,
                                           std::vector<io::StreamState>& states) {
  if (!modes_.changes_frames()) return;
  const io::FrameShape shape = frame_shape();
  const std::size_t size = shape.size();
  const std::size_t sequences = modes_.sequences.size();
  constexpr std::uint8_t grey = 128;
  for (std::size_t row = 0; row < block.scored.size(); ++row) {
    const std::size_t b = row % sequences;
    const auto& [sight, spot] = modes_.sequences[b];
    if (sight == Sight::frames) continue;
    const auto pixels = block.pixels.subspan(row * size, size);
    if (!block.stored.empty() && block.stored[row] != not_stored) {
      if (sight != Sight::dream) engine_.read_frame(block.stored[row], pixels);
      block.stored[row] = not_stored;
    }
    if (sight == Sight::blind_spot) {
      detail::for_each_row(spot, shape, [&](std::size_t first, std::size_t count) {
        std::fill_n(pixels.begin() + static_cast<std::ptrdiff_t>(first), count, grey);
      });
    } else {
      const auto predicted = predicted_for(step()).subspan(b * size, size);
      const Spot all{0, 0, shape.width, shape.height};
      detail::for_each_row(sight == Sight::dream ? all : spot, shape,
                           [&](std::size_t first, std::size_t count) {
                             const auto at = static_cast<std::ptrdiff_t>(first);
                             std::copy_n(predicted.begin() + at, count, pixels.begin() + at);
                           });
    }
    block.scored[row] = 0;
    states[b].frames_since_start = 0;
  }
}

PVM_INLINE std::span<const std::uint8_t> TrainerBase::predicted_for(std::uint64_t at) {
  Predicted& predicted = predicted_for_[at % 2];
  if (predicted.step != at) {  // the sequences have only begun to dream
    const EngineState state = engine_.save();
    const std::size_t each = state.outputs.size() / 2;
    keep_predicted(at + 1, std::span(state.outputs).first(each));
    keep_predicted(at, std::span(state.outputs).last(each));
  }
  return predicted.frames;
}

PVM_INLINE void TrainerBase::keep_predicted(std::uint64_t at, std::span<const float> outputs) {
  Predicted& predicted = predicted_for_[at % 2];
  const std::size_t size = frame_shape().size();
  const std::size_t sequences = modes_.sequences.size();
  predicted.step = at;
  predicted.frames.resize(size * sequences);
  for (std::size_t b = 0; b < sequences; ++b) {
    const float* y = outputs.data() + b * net_.outputs;
    for (std::size_t u = 0; u < net_.layer_start[1]; ++u) {
      const Unit& unit = net_.units[u];
      for (std::size_t k = 0; k < static_cast<std::size_t>(unit.base); ++k) {
        predicted.frames[b * size + detail::pixel_of(spec_, unit, k)] = detail::pixel_from(y[k]);
      }
      y += unit.outputs;
    }
  }
}

}  // namespace pvm::inline v0
