// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The Trainer as a Python type.

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/pybind11.h>

#include <signal.h>

#include <pvm/io/deal.hpp>
#include <pvm/io/open.hpp>
#include <pvm/io/preview.hpp>
#include <pvm/pvm.hpp>

#include "arrays.hpp"
#include "python_source.hpp"

namespace pvm_python {

/// A source of the library, which Python may also read by itself.
struct Source {
  pvm::io::AnySource source;
};

/// What a callback of Python sees, and what `fit` returns.
struct Moment {
  std::uint64_t step = 0, begin = 0, target = 0;
  double seconds = 0;
  pvm::Score score;
  bool cut_short = false;
  std::uint64_t skipped = 0;
};

/// Lets Ctrl-C stop a `fit` of the main thread: Python's handler notes the signal as ever, and the
/// trainer is asked to stop, so that checkpoints are saved before KeyboardInterrupt is raised.
class StopOnInterrupt {
 public:
  explicit StopOnInterrupt(pvm::TrainerBase& trainer) {
    struct sigaction now {};
    const bool handled = ::sigaction(SIGINT, nullptr, &now) == 0 && now.sa_handler != SIG_DFL &&
                         now.sa_handler != SIG_IGN && (now.sa_flags & SA_SIGINFO) == 0;
    pvm::TrainerBase* nobody = nullptr;
    if (!handled || !running().compare_exchange_strong(nobody, &trainer)) return;
    before() = now;
    struct sigaction ours = now;
    ours.sa_handler = [](int signal) {
      before().sa_handler(signal);
      if (pvm::TrainerBase* stopped = running().load()) stopped->request_stop();
    };
    installed_ = ::sigaction(SIGINT, &ours, nullptr) == 0;
  }
  ~StopOnInterrupt() {
    if (!installed_) return;
    ::sigaction(SIGINT, &before(), nullptr);
    running().store(nullptr);
  }
  StopOnInterrupt(const StopOnInterrupt&) = delete;
  StopOnInterrupt& operator=(const StopOnInterrupt&) = delete;

 private:
  static std::atomic<pvm::TrainerBase*>& running() {
    static std::atomic<pvm::TrainerBase*> trainer{nullptr};
    return trainer;
  }
  static struct sigaction& before() {
    static struct sigaction action {};
    return action;
  }
  bool installed_ = false;
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
  if (name == "mean") return pvm::Reduce::mean;
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
  Trainer(const Start& start, const std::string& precision, const pvm::TrainerOptions& options) {
    if (precision == "fp32") {
      make<pvm::fp32>(start, options);
    } else if (precision == "tf32") {
      make<pvm::tf32>(start, options);
    } else if (precision == "bf16") {
      make<pvm::bf16>(start, options);
    } else if (precision == "fp16") {
      make<pvm::fp16>(start, options);
    } else {
      throw pvm::Error(pvm::Fault::usage, "precision " + pvm::quote(precision) +
                                              " is unknown; allowed: fp32, tf32, bf16, fp16");
    }
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
    if (lock) return {std::move(lock), *base_};
    throw pvm::Error(pvm::Fault::usage,
                     "the trainer is running in another thread; wait until that has ended");
  }

  Moment fit(const py::object& frames, std::optional<std::int64_t> steps,
             const py::object& callback, std::int64_t every, const std::string& checkpoints,
             std::int64_t save_every, const std::string& metrics, const std::string& preview,
             bool progress) {
    const Use trainer = use();
    if (every < 1) {
      throw pvm::Error(pvm::Fault::usage,
                       "every is " + std::to_string(every) + "; allowed: 1 or more");
    }
    CallPython function(callback.is_none() ? py::object() : callback, count_of("every", every));
    pvm::Optionally<pvm::Checkpoints> saved;
    pvm::Optionally<pvm::Metrics> written;
    pvm::Optionally<pvm::io::Preview> shown;
    pvm::Optionally<pvm::Progress> printed;
    if (!checkpoints.empty()) {
      saved.callback.emplace(checkpoints, count_of("save_every", save_every));
    }
    if (!metrics.empty()) written.callback.emplace(metrics, count_of("every", every));
    if (!preview.empty()) shown.callback.emplace(preview, count_of("every", every));
    if (progress) printed.callback.emplace(count_of("every", every));
    pvm::LastPass last{count_of("every", every)};
    const pvm::Steps target{steps ? count_of("steps", *steps) : trainer->spec().steps};
    std::vector<pvm::io::AnySource> sources = sources_of(frames);
    const StopOnInterrupt stop(trainer.base);
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
  template <class Precision, class Start>
  void make(const Start& start, const pvm::TrainerOptions& options) {
    base_ = std::make_shared<pvm::Trainer<Precision, pvm::dynamic>>(start, options);
  }

  static bool ends_in(const py::array& array, const pvm::io::FrameShape& shape) {
    const auto n = array.ndim();
    return n >= 3 && array.shape(n - 3) == shape.height && array.shape(n - 2) == shape.width &&
           array.shape(n - 1) == shape.channels;
  }

  /// The sources of a `fit`, one for each sequence of the batch.
  std::vector<pvm::io::AnySource> sources_of(const py::object& frames) {
    const auto batch = static_cast<std::size_t>(base_->batch());
    const bool list = py::isinstance<py::list>(frames) || py::isinstance<py::tuple>(frames);
    std::vector<py::object> all;
    if (list && !of_arrays(frames)) {
      for (const py::handle one : frames) all.push_back(py::reinterpret_borrow<py::object>(one));
    } else {
      all.push_back(frames);
    }
    std::vector<pvm::io::Opener> paths;
    std::vector<pvm::io::AnySource> sources;
    for (const py::object& one : all) {
      if (is_path(one)) {
        paths.push_back(
            pvm::io::opener(py::module_::import("os").attr("fspath")(one).cast<std::string>()));
      } else if (py::isinstance<Source>(one)) {
        sources.push_back(pvm::io::AnySource::refer(one.cast<Source&>().source));
      } else {
        sources.emplace_back(PythonSource(one));
      }
    }
    if (!paths.empty() && sources.empty()) {
      const py::gil_scoped_release unlocked;
      return pvm::io::deal(std::move(paths), batch);
    }
    if (!paths.empty() || sources.size() != batch) {
      throw pvm::Error(pvm::Fault::usage,
                       "a batch of " + std::to_string(batch) +
                           " takes as many sources, or a list of paths; this is a list of " +
                           std::to_string(all.size()));
    }
    return sources;
  }
  /// Whether a list is one of frames, so that it is one source.
  static bool of_arrays(const py::object& list) {
    if (py::len(list) == 0) return false;
    const py::object first = list[py::int_(0)];
    return py::hasattr(first, "ndim") && first.attr("ndim").cast<int>() < 4;
  }
  static bool is_path(const py::object& object) {
    return py::isinstance<py::str>(object) || py::hasattr(object, "__fspath__");
  }

  std::shared_ptr<pvm::TrainerBase> base_;
  std::unique_ptr<std::recursive_mutex> mutex_ = std::make_unique<std::recursive_mutex>();
  std::optional<pvm::TrainerBase::Stepped> stepped_;
};

}  // namespace pvm_python
