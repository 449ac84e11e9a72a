// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Frames that Python has: a sequence of arrays, or an iterator.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/pybind11.h>

#include <pvm/core/error.hpp>
#include <pvm/io/source.hpp>

#include "arrays.hpp"

namespace pvm_python {

/// Model of FrameSource. What has `__getitem__` and `__len__` starts over at its end; anything else
/// that can be iterated over must not end. Takes the GIL for each frame.
class PythonSource {
 public:
  static constexpr const char* its_name = "python";

  /// Called with the GIL. Throws Error (Fault::usage) if `frames` cannot be iterated over.
  explicit PythonSource(py::object frames) {
    if (is_one_frame(frames)) {
      throw pvm::Error(pvm::Fault::usage,
                       "these are no frames but one: a sequence has one dimension more, [frames, "
                       "height, width, channels]");
    }
    const bool indexed = py::hasattr(frames, "__getitem__") && py::hasattr(frames, "__len__");
    if (indexed) {
      length_ = py::len(frames);
      if (*length_ == 0) throw pvm::Error(pvm::Fault::source, "the sequence of frames is empty");
      frames_ = std::move(frames);
    } else if (py::hasattr(frames, "__iter__")) {
      frames_ = py::iter(frames);
    } else {
      throw pvm::Error(pvm::Fault::usage,
                       "frames come from a path, a source, a sequence of arrays or an iterator, "
                       "and this is a " +
                           std::string(py::str(py::type::of(frames).attr("__name__"))));
    }
  }
  PythonSource(PythonSource&&) noexcept = default;
  PythonSource& operator=(PythonSource&&) = delete;
  ~PythonSource() {
    const py::gil_scoped_acquire gil;
    frames_ = py::object();
  }

  pvm::io::FrameInfo next(pvm::io::FrameShape shape, std::span<std::uint8_t> pixels) {
    const py::gil_scoped_acquire gil;
    const py::array array = pixels_of(next_object());
    const auto frame = frame_of(array, shape, room_);
    std::copy(frame.begin(), frame.end(), pixels.begin());
    pvm::io::FrameInfo info;
    info.starts_sequence = position_.frame == 0;
    ++position_.frame;
    if (length_ && position_.frame == *length_) {
      position_.frame = 0;
      ++position_.pass;
    }
    return info;
  }

  [[nodiscard]] pvm::io::Position position() const { return position_; }
  void seek(const pvm::io::Position& position) {
    if (position == position_) return;
    if (!length_) {
      throw pvm::Error(pvm::Fault::source, "an iterator cannot go back to frame " +
                                               std::to_string(position.frame) +
                                               "; give a sequence with __getitem__ and __len__");
    }
    if (position.sequence != 0 || position.frame >= *length_) {
      throw pvm::Error(pvm::Fault::source, "the sequence has " + std::to_string(*length_) +
                                               " frames and no frame " +
                                               std::to_string(position.frame));
    }
    position_ = position;
  }
  [[nodiscard]] std::optional<std::uint64_t> length() const { return length_; }
  [[nodiscard]] std::uint64_t skipped() const { return 0; }
  [[nodiscard]] static std::string name() { return its_name; }
  /// It needs no thread that reads ahead, which could only wait for the GIL.
  [[nodiscard]] static bool read_ahead(std::size_t) { return true; }

 private:
  /// An array of one frame would be taken for a sequence of its rows.
  static bool is_one_frame(const py::object& frames) {
    if (!py::hasattr(frames, "ndim") || !py::hasattr(frames, "shape")) return false;
    const auto dimensions = frames.attr("ndim").cast<int>();
    if (dimensions != 3) return dimensions < 3;
    const auto last = frames.attr("shape").attr("__getitem__")(2).cast<py::ssize_t>();
    return last >= 1 && last <= 4;
  }

  py::object next_object() {
    if (length_) return frames_[py::int_(position_.frame)];
    PyObject* next = PyIter_Next(frames_.ptr());
    if (next != nullptr) return py::reinterpret_steal<py::object>(next);
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
    throw pvm::Error(pvm::Fault::source, "the iterator has ended after " +
                                             std::to_string(position_.frame) +
                                             " frames; ask for as many steps, or give a sequence");
  }

  py::object frames_;
  std::optional<std::uint64_t> length_;
  pvm::io::Position position_;
  std::vector<std::uint8_t> room_;
};

static_assert(pvm::io::FrameSource<PythonSource>);

}  // namespace pvm_python
