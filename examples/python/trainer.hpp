// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The Trainer as a Python type.

#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/pybind11.h>

#include <pvm/io/any_source.hpp>
#include <pvm/io/preview.hpp>
#include <pvm/pvm.hpp>
#include <pvm/train/auto_run.hpp>
#include <pvm/train/precisions.hpp>

#include "arrays.hpp"
#include "frames.hpp"
#include "interrupt.hpp"

namespace pvm_python {

/// What a callback of Python sees, and what `fit` returns.
struct Moment {
  std::uint64_t step = 0, begin = 0, target = 0;
  double seconds = 0;
  pvm::Score score;
  bool cut_short = false;
  std::uint64_t skipped = 0;
};

/// Calls a function of Python every `every` steps. If it raises, the run stops, and its exception
/// is kept for `fit` to raise.
class CallPython {
 public:
  CallPython(py::object function, std::uint64_t every)
      : function_(std::move(function)), every_(every) {}

  [[nodiscard]] std::uint64_t next(std::uint64_t step) const {
    return function_ ? pvm::next_multiple(step, every_) : pvm::never;
  }
  void at(const pvm::Moment& moment) {
    if (raised_) return;
    const py::gil_scoped_acquire gil;
    try {
      function_(Moment{moment.step, moment.begin, moment.target, moment.seconds, moment.score,
                       moment.cut_short});
    } catch (py::error_already_set& error) {
      raised_ = std::current_exception();
      moment.trainer.request_stop();
    }
  }
  void raise() const {
    if (raised_) std::rethrow_exception(raised_);
  }

 private:
  py::object function_;
  std::uint64_t every_;
  std::exception_ptr raised_;
};

inline pvm::Spec spec_of(const py::object& spec) {
  if (py::isinstance<py::dict>(spec)) {
    const auto text = py::module_::import("json").attr("dumps")(spec).cast<std::string>();
    return pvm::parse_spec(text, "the spec");
  }
  return pvm::load_spec(py::module_::import("os").attr("fspath")(spec).cast<std::string>());
}
inline py::object dict_of(const pvm::Spec& spec) {
  return py::module_::import("json").attr("loads")(pvm::to_json_text(spec));
}

inline pvm::BackendChoice backend_of(const std::string& name) {
  if (name == "auto") return pvm::BackendChoice::automatic;
  if (name == "cuda") return pvm::BackendChoice::cuda;
  if (name == "host") return pvm::BackendChoice::host;
  throw pvm::Error(pvm::Fault::usage,
                   "backend " + pvm::quote(name) + " is unknown; allowed: auto, cuda, host");
}
inline pvm::Reduce reduce_of(const std::string& name) {
  if (name == "mean" || name.empty()) return pvm::Reduce::mean;
  if (name == "sum") return pvm::Reduce::sum;
  throw pvm::Error(pvm::Fault::usage,
                   "reduce " + pvm::quote(name) + " is unknown; allowed: mean, sum");
}
inline std::uint64_t count_of(const char* what, std::int64_t number) {
  if (number >= 0) return static_cast<std::uint64_t>(number);
  throw pvm::Error(pvm::Fault::usage,
                   what + (" is " + std::to_string(number)) + "; allowed: 0 or more");
}

/// A trainer of any precision. One thread at a time; others are refused.
class Trainer {
 public:
  template <class Start>  // a Spec or a Checkpoint
  Trainer(const Start& start, const std::string& precision, const pvm::TrainerOptions& options)
      : precision_(precision), device_(options.device) {
    pvm::with_precision(precision, [&]<class Precision>() {
      base_ = std::make_shared<pvm::Trainer<Precision, pvm::dynamic>>(start, options);
    });
  }

  pvm::TrainerBase& base() { return *base_; }

  /// The trainer, for this thread alone.
  struct Use {
    std::unique_lock<std::recursive_mutex> lock;
    pvm::TrainerBase& base;
    pvm::TrainerBase* operator->() const { return &base; }
  };
  Use use() {
    std::unique_lock lock(*mutex_, std::try_to_lock);
    if (!lock) {
      throw pvm::Error(pvm::Fault::usage,
                       "the trainer is running in another thread; wait until that has ended");
    }
    use_its_gpu();
    return {std::move(lock), *base_};
  }

  [[nodiscard]] const std::string& precision() const { return precision_; }
  /// Why trials have chosen what they have: sentences.
  [[nodiscard]] const std::vector<std::string>& why() const { return why_; }
  void note_choice(const pvm::AutoChoice& choice) {
    if (!choice.chosen.empty()) base_->note_choice(choice.chosen);
    why_ = choice.why;
  }

  Moment fit(const py::object& frames, std::optional<std::int64_t> steps,
             const py::object& callback, std::int64_t every,
             const std::filesystem::path& checkpoints, std::int64_t save_every,
             const std::filesystem::path& metrics, const std::filesystem::path& preview,
             bool progress) {
    const Use trainer = use();
    const InFit in_fit(in_fit_, "fit");
    if (every < 1) {
      throw pvm::Error(pvm::Fault::usage,
                       "every is " + std::to_string(every) + "; allowed: 1 or more");
    }
    if (!callback.is_none() && PyCallable_Check(callback.ptr()) == 0) {
      throw pvm::Error(pvm::Fault::usage,
                       "the callback cannot be called; give a function of one Moment");
    }
    CallPython function(callback.is_none() ? py::object() : callback, count_of("every", every));
    pvm::Optionally<pvm::Checkpoints> saved;
    pvm::Optionally<pvm::Metrics> written;
    pvm::Optionally<pvm::io::Preview> shown;
    pvm::Optionally<pvm::Progress> printed;
    if (!checkpoints.empty()) {
      saved.callback.emplace(checkpoints.string(), count_of("save_every", save_every));
    }
    if (!metrics.empty()) written.callback.emplace(metrics, count_of("every", every));
    if (!preview.empty()) shown.callback.emplace(preview, count_of("every", every));
    if (progress) printed.callback.emplace(count_of("every", every));
    pvm::LastPass last{count_of("every", every)};
    const pvm::Steps target{steps ? count_of("steps", *steps) : trainer->spec().steps};
    Frames all(frames);
    std::vector<pvm::io::AnySource> sources =
        all.sources(static_cast<std::size_t>(trainer->batch()));
    const StopOnInterrupt stop([&trainer] { trainer->request_stop(); });
    pvm::FitResult result;
    const std::uint64_t begin = trainer->step();
    {
      const py::gil_scoped_release unlocked;
      result = trainer->fit(sources, target, saved, written, shown, last, printed, function);
    }
    function.raise();
    check_signals();
    return {result.step,      begin,         target.count, result.seconds, last.score(),
            result.cut_short, result.skipped};
  }

  /// Runs the steps of frames that Python has.
  void run(const py::handle& frames) {
    const Use trainer = use();
    const InFit in_fit(in_fit_, "run");
    const py::array array = pixels_of(frames);
    const auto shape = trainer->frame_shape();
    std::vector<std::uint8_t> room;
    const bool several = array.ndim() > 3 || trainer->batch() > 1;
    const std::span<const std::uint8_t> pixels =
        several ? std::span(static_cast<const std::uint8_t*>(array.data()),
                            static_cast<std::size_t>(array.size()))
                : frame_of(array, shape, room);
    if (several && !ends_in(array, shape)) {
      throw pvm::Error(pvm::Fault::usage,
                       "several frames must be [..., " + std::to_string(shape.height) + ", " +
                           std::to_string(shape.width) + ", " + std::to_string(shape.channels) +
                           "], the network's size");
    }
    const py::gil_scoped_release unlocked;
    stepped_.emplace(trainer->step(pixels));
  }

  /// The score of the steps since it was last asked for.
  pvm::Score score() {
    const Use trainer = use();
    if (!stepped_) return {};
    const py::gil_scoped_release unlocked;
    return stepped_->score();
  }

 private:
  /// Refuses to take steps within steps: callbacks and sources of a `fit` are of its thread.
  struct InFit {
    InFit(bool& flag, const char* what) : inside(flag) {
      if (inside) {
        throw pvm::Error(pvm::Fault::usage, std::string("the trainer's steps are running; ") +
                                                what +
                                                " cannot be called by their callbacks or "
                                                "sources");
      }
      inside = true;
    }
    ~InFit() { inside = false; }
    InFit(const InFit&) = delete;
    InFit& operator=(const InFit&) = delete;
    bool& inside;
  };

  /// Makes the trainer's GPU that of this thread. Looks for it only if the thread had another one,
  /// because that takes longer than a step.
  void use_its_gpu() const {
    thread_local int current = -1;
    if (device_ < 0 || device_ == current) return;
    pvm::use_gpu(device_);
    current = device_;
  }

  static bool ends_in(const py::array& array, const pvm::io::FrameShape& shape) {
    const auto n = array.ndim();
    return n >= 3 && array.shape(n - 3) == shape.height && array.shape(n - 2) == shape.width &&
           array.shape(n - 1) == shape.channels;
  }

  std::shared_ptr<pvm::TrainerBase> base_;
  std::string precision_;
  int device_;  // the number of its GPU; -1: it has none, or several
  std::vector<std::string> why_;
  std::unique_ptr<std::recursive_mutex> mutex_ = std::make_unique<std::recursive_mutex>();
  bool in_fit_ = false;
  std::optional<pvm::TrainerBase::Stepped> stepped_;
};

}  // namespace pvm_python
