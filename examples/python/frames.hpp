// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What Python gives as the frames of a run: paths, sequences of arrays, sources, iterators.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/pybind11.h>

#include <pvm/core/error.hpp>
#include <pvm/io/any_source.hpp>
#include <pvm/io/deal.hpp>
#include <pvm/io/open.hpp>
#include <pvm/io/source.hpp>

#include "python_source.hpp"

namespace pvm_python {

/// A source of the library, which Python may also read by itself.
struct Source {
  explicit Source(pvm::io::AnySource opened) : source(std::move(opened)) {}

  pvm::io::AnySource source;
  std::unique_ptr<std::atomic<bool>> is_read = std::make_unique<std::atomic<bool>>(false);
};

/// One reader of a Source as long as it lives. Throws Error (Fault::usage) if there is another.
class Reading {
 public:
  explicit Reading(Source& source) : is_read_(source.is_read.get()) {
    if (!is_read_->exchange(true)) return;
    throw pvm::Error(pvm::Fault::usage,
                     "the source is being read already; open another one of the same frames");
  }
  Reading(Reading&& other) noexcept : is_read_(std::exchange(other.is_read_, nullptr)) {}
  Reading& operator=(Reading&&) = delete;
  ~Reading() {
    if (is_read_ != nullptr) is_read_->store(false);
  }

 private:
  std::atomic<bool>* is_read_;
};

/// The frames of a run, whose sources nobody else reads meanwhile. All functions are called with
/// the GIL.
class Frames {
 public:
  explicit Frames(const py::object& frames) {
    const bool list = py::isinstance<py::list>(frames) || py::isinstance<py::tuple>(frames);
    if (list && !is_sequence_of_frames(frames)) {
      for (const py::handle one : frames) parts_.push_back(py::reinterpret_borrow<py::object>(one));
    } else {
      parts_.push_back(frames);
    }
  }

  /// The sources of a `fit`, one for each sequence of the batch. Paths are dealt to the batch as
  /// pvm -f deals files, and so are sequences of arrays, of which there may be fewer than the
  /// batch has. Throws Error (Fault::usage) if there are not as many of other sources.
  [[nodiscard]] std::vector<pvm::io::AnySource> sources(std::size_t batch) {
    const bool paths = std::all_of(parts_.begin(), parts_.end(), is_path);
    const bool spread =
        parts_.size() <= batch && std::all_of(parts_.begin(), parts_.end(), can_be_reopened);
    if (!parts_.empty() && (paths || spread)) {
      std::vector<pvm::io::Opener> openers;
      for (const py::object& part : parts_) openers.push_back(opener_of(part));
      const py::gil_scoped_release unlocked;
      return pvm::io::deal(std::move(openers), batch);
    }
    if (parts_.size() != batch) {
      throw pvm::Error(pvm::Fault::usage,
                       "a batch of " + std::to_string(batch) +
                           " takes as many sources, at most as many sequences of arrays, or a "
                           "list of paths; this is a list of " +
                           std::to_string(parts_.size()));
    }
    std::vector<pvm::io::AnySource> sources;
    for (const py::object& part : parts_) {
      if (py::isinstance<Source>(part)) reading_.emplace_back(part.cast<Source&>());
      sources.push_back(source_of(part));
    }
    return sources;
  }

  /// Openers of the same for trials. A Source is read from where it stands, and stands there again
  /// when this object ends. Throws Error (Fault::usage) for iterators, whose frames would be lost.
  class ForTrials {
   public:
    explicit ForTrials(const Frames& frames) {
      for (const py::object& part : frames.parts_) {
        if (can_be_reopened(part)) {
          openers_.push_back(opener_of(part));
        } else if (py::isinstance<Source>(part)) {
          read_.emplace_back(part);
          pvm::io::AnySource& source = part.cast<Source&>().source;
          openers_.emplace_back([&source] { return pvm::io::AnySource::refer(source); });
        } else {
          throw pvm::Error(pvm::Fault::usage,
                           "trials would use up the frames of an iterator; name a path, a source "
                           "or a sequence of arrays");
        }
      }
    }
    [[nodiscard]] const std::vector<pvm::io::Opener>& openers() const { return openers_; }

   private:
    /// A source that is read, and its place before. What has no end cannot go back, and need not.
    class Read {
     public:
      explicit Read(const py::object& source)
          : owner_(source),
            reading_(source.cast<Source&>()),
            position_(source.cast<Source&>().source.position()) {}
      Read(Read&&) = default;
      Read& operator=(Read&&) = delete;
      ~Read() {
        if (!owner_) return;
        try {
          owner_.cast<Source&>().source.seek(position_);
        } catch (const std::exception&) {  // a camera
        }
      }

     private:
      py::object owner_;
      Reading reading_;
      pvm::io::Position position_;
    };

    std::vector<Read> read_;
    std::vector<pvm::io::Opener> openers_;
  };

 private:
  /// An object that any thread may let go.
  using Shared = std::shared_ptr<const py::object>;

  static bool is_path(const py::object& object) {
    return py::isinstance<py::str>(object) || py::hasattr(object, "__fspath__");
  }
  static bool is_sequence(const py::object& object) {
    return !py::isinstance<Source>(object) && py::hasattr(object, "__getitem__") &&
           py::hasattr(object, "__len__");
  }
  static bool can_be_reopened(const py::object& object) {
    return is_path(object) || is_sequence(object);
  }
  /// Whether a list is one of frames, so that it is one source.
  static bool is_sequence_of_frames(const py::object& list) {
    if (py::len(list) == 0) return false;
    const py::object first = list[py::int_(0)];
    return py::hasattr(first, "ndim") && first.attr("ndim").cast<int>() < 4;
  }

  static pvm::io::Opener opener_of(const py::object& part) {
    if (is_path(part)) {
      return pvm::io::opener(py::module_::import("os").attr("fspath")(part).cast<std::string>());
    }
    const Shared shared(new py::object(part), [](const py::object* object) {
      const py::gil_scoped_acquire gil;
      delete object;
    });
    return {[shared]() -> pvm::io::AnySource {
              const py::gil_scoped_acquire gil;
              return PythonSource(*shared);
            },
            PythonSource::its_name};
  }
  static pvm::io::AnySource source_of(const py::object& part) {
    if (py::isinstance<Source>(part)) {
      return pvm::io::AnySource::refer(part.cast<Source&>().source);
    }
    return can_be_reopened(part) ? opener_of(part)() : PythonSource(part);
  }

  std::vector<py::object> parts_;
  std::vector<Reading> reading_;
};

}  // namespace pvm_python
