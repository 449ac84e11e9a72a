// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Ends trials from a signal handler or another thread.

#include <atomic>
#include <thread>

#include <pvm/core/config.hpp>
#include <pvm/train/trainer_base.hpp>

namespace pvm::inline v0 {

/// What trials (see TrialRun) look at to know whether they are still wanted. It must outlive them.
class TrialStop {
 public:
  TrialStop() = default;
  TrialStop(const TrialStop&) = delete;
  TrialStop& operator=(const TrialStop&) = delete;

  /// Ends the trials: they throw io::Stopped as soon as the block of steps that runs is done. It
  /// only sets flags, so a signal handler may call it.
  void request() noexcept {
    requested_.store(true);
    ++inside_;
    if (TrainerBase* const trainer = trainer_.load()) trainer->request_stop();
    --inside_;
  }
  [[nodiscard]] bool requested() const noexcept { return requested_.load(); }

  /// Makes `trainer` the one that `request` stops, as long as this lives. `stop` may be null.
  class Stops {
   public:
    Stops(TrialStop* stop, TrainerBase& trainer) : stop_(stop) {
      if (stop_ == nullptr) return;
      stop_->trainer_.store(&trainer);
      if (stop_->requested()) trainer.request_stop();
    }
    ~Stops() {
      if (stop_ == nullptr) return;
      stop_->trainer_.store(nullptr);
      while (stop_->inside_.load() > 0) std::this_thread::yield();  // it may have the trainer yet
    }
    Stops(const Stops&) = delete;
    Stops& operator=(const Stops&) = delete;

   private:
    TrialStop* stop_;
  };

 private:
  std::atomic<bool> requested_ = false;
  std::atomic<TrainerBase*> trainer_ = nullptr;
  std::atomic<int> inside_ = 0;  // calls of `request`
};

}  // namespace pvm::inline v0
