// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// When the warps of the units engine's kernels begin the parts of a step. Compiled in where
/// PVM_TIMELINE is defined, and then in the whole program; otherwise `View::mark` is empty, and the
/// kernels have the same machine code as without it.
///
/// A mark is the SM's clock at the beginning of a part; the part lasts until the warp's next mark.
/// Each part of each recorded step has a place of its own, so that a mark is a store, which nothing
/// waits for, and not a counter. Marks of a later launch replace those of the one before: what is
/// read at the end is of the last launch that had so many steps.
///
/// SMs have clocks of their own, of the same frequency. A thread block therefore notes, when a
/// launch begins and when it ends, both its clock and the GPU's timer at a tick of that timer.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pvm::inline v0::detail::units {

/// The parts of a warp's step, in the order of the legend. `wait_...` is time in which a warp can
/// do nothing until another one has done something.
enum class Part : std::uint8_t {
  tables,          ///< the step's coefficients are loaded
  factors,         ///< factors of folds are written
  listed,          ///< what the listed gradients add to W0 x is computed
  reload,          ///< weights are loaded or prefetched ahead of a pass
  forward,         ///< W0 x(t)
  hidden,          ///< h(t): sums are completed, values sent; mostly with the inner products
  products,        ///< inner products of h(t) with its past, where they are made apart
  errors,          ///< d1(t)
  learn,           ///< W1^T d1(t) and y
  gradient,        ///< d0(t)
  patches,         ///< the next frame's patches are read
  gather,          ///< x(t+1) is collected as other thread blocks send it: it waits for them, too
  fold_held,       ///< due blocks of W0 fold while multipliers use their copies
  fold_w0,         ///< due blocks of W0 fold
  fold_w1,         ///< due blocks of W1 fold
  wait_inputs,     ///< for x(t)
  wait_sums,       ///< for W0 x(t)
  wait_hidden,     ///< for h(t)
  wait_errors,     ///< for d1(t)
  wait_gradients,  ///< for W1^T d1(t)
  wait_tables,     ///< for tables and factors
  wait_x_free,     ///< until no warp reads x(t) any more
  wait_w0_free,    ///< until no warp reads W0 any more
  wait_w1_free,    ///< until no warp reads W1 any more
  wait_w0_folds,   ///< for the last step's folds of W0, or of both matrices
  wait_w1_folds,   ///< for the last step's folds of W1
  count
};
inline constexpr std::size_t part_count = static_cast<std::size_t>(Part::count);
inline constexpr std::array<const char*, part_count> part_names = {
    "tables",       "factors",      "listed gradients", "loads",         "W0 x",
    "h",            "products",     "errors",           "W1",            "d0",
    "patches",      "gather",       "fold held W0",     "fold W0",       "fold W1",
    "wait: inputs", "wait: sums",   "wait: h",          "wait: errors",  "wait: W1^T d1",
    "wait: tables", "wait: x free", "wait: W0 free",    "wait: W1 free", "wait: W0 folded",
    "wait: W1 folded"};
inline constexpr std::size_t first_wait = static_cast<std::size_t>(Part::wait_inputs);

/// Where kernels put their marks, in device memory.
struct TimelineMarks {
  unsigned long long* marks;   ///< [thread block][warp][step][part], 0 if there was no such part
  unsigned long long* clocks;  ///< [thread block][begin, end][SM's clock, GPU's timer in ns]
  std::uint32_t* sms;          ///< [thread block]
  int first, steps;            ///< which steps of a launch are recorded
};

/// A part of a step as a warp ran it, in nanoseconds since the launch began.
struct TimelinePiece {
  std::uint32_t sm, thread_block, warp;
  int step;  ///< of the recorded ones
  Part part;
  double begin, end;
};

/// What kernels have recorded, downloaded: the arrays of TimelineMarks.
struct TimelineRecord {
  std::vector<unsigned long long> marks, clocks;
  std::vector<std::uint32_t> sms;
  int warps = 0, steps = 0;  ///< of a thread block; recorded
};

/// Converts the clock of an SM to nanoseconds of the GPU's timer.
class SmClock {
 public:
  /// `clocks`: of one thread block, TimelineMarks::clocks.
  explicit SmClock(const unsigned long long* clocks) : clock_(clocks[0]), time_(clocks[1]) {
    const auto cycles = static_cast<double>(clocks[2] - clocks[0]);
    if (cycles > 0) nanoseconds_ = static_cast<double>(clocks[3] - clocks[1]) / cycles;
  }
  /// Nanoseconds since `since`, a time of the GPU's timer.
  [[nodiscard]] double at(unsigned long long clock, unsigned long long since) const {
    return static_cast<double>(time_) - static_cast<double>(since) +
           nanoseconds_ * static_cast<double>(static_cast<long long>(clock - clock_));
  }

 private:
  unsigned long long clock_, time_;
  double nanoseconds_ = 0;  ///< of a cycle
};

/// The pieces of all warps, warp by warp in the order of time. A warp's last mark has no end, and is
/// left out.
inline std::vector<TimelinePiece> pieces_of(const TimelineRecord& record) {
  struct Mark {
    unsigned long long clock;
    int step;
    std::size_t part;
  };
  std::vector<TimelinePiece> pieces;
  std::vector<Mark> of_warp;
  unsigned long long since = ~0ULL;
  for (std::size_t b = 0; b < record.sms.size(); ++b) {
    since = std::min(since, record.clocks[4 * b + 1]);
  }
  const auto warps = static_cast<std::size_t>(record.warps);
  const unsigned long long* mark = record.marks.data();
  for (std::size_t w = 0; w < record.sms.size() * warps; ++w) {
    of_warp.clear();
    for (int step = 0; step < record.steps; ++step) {
      for (std::size_t part = 0; part < part_count; ++part, ++mark) {
        if (*mark != 0) of_warp.push_back({*mark, step, part});
      }
    }
    std::sort(of_warp.begin(), of_warp.end(),
              [](const Mark& one, const Mark& other) { return one.clock < other.clock; });
    const std::size_t block = w / warps;
    const SmClock clock(record.clocks.data() + 4 * block);
    for (std::size_t i = 0; i + 1 < of_warp.size(); ++i) {
      pieces.push_back({record.sms[block], static_cast<std::uint32_t>(block),
                        static_cast<std::uint32_t>(w % warps), of_warp[i].step,
                        static_cast<Part>(of_warp[i].part), clock.at(of_warp[i].clock, since),
                        clock.at(of_warp[i + 1].clock, since)});
    }
  }
  return pieces;
}

}  // namespace pvm::inline v0::detail::units
