// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Between numpy and pvm: arrays, frames, signals.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <opencv2/core.hpp>

#include <pvm/core/error.hpp>
#include <pvm/io/mat.hpp>
#include <pvm/io/source.hpp>

namespace pvm_python {

namespace py = pybind11;

/// An array that owns the values of `values`, without a copy.
template <class T>
py::array_t<T> as_array(std::vector<T>&& values, std::initializer_list<std::size_t> shape) {
  auto* owned = new std::vector<T>(std::move(values));
  const py::capsule owner(owned, [](void* p) { delete static_cast<std::vector<T>*>(p); });
  return py::array_t<T>(std::vector<py::ssize_t>(shape.begin(), shape.end()), owned->data(), owner);
}

/// The array that `object` is: numpy's, or that of anything that numpy can take without a copy (a
/// torch tensor in host memory). Throws Error (Fault::usage) if its values are not of 8 bits.
inline py::array pixels_of(const py::handle& object) {
  py::array array = py::array::ensure(object);
  if (!array) {
    PyErr_Clear();
    throw pvm::Error(pvm::Fault::usage,
                     "a frame must be an array of bytes, and this is a " +
                         std::string(py::str(py::type::of(object).attr("__name__"))));
  }
  if (!py::isinstance<py::array_t<std::uint8_t>>(array)) {
    throw pvm::Error(pvm::Fault::usage, "a frame's values must be of type uint8, and these are " +
                                            std::string(py::str(array.dtype())) +
                                            "; convert them to 0 to 255");
  }
  return py::array::ensure(array, py::array::c_style);
}

/// A frame of `shape` from an array [height][width][channels] or [height][width]: the array itself
/// if it has that shape, else `room`, into which it is resized as pictures of sources are.
inline std::span<const std::uint8_t> frame_of(const py::array& array,
                                              const pvm::io::FrameShape& shape,
                                              std::vector<std::uint8_t>& room) {
  const auto dimensions = array.ndim();
  const auto length = [&](py::ssize_t k) { return k < dimensions ? array.shape(k) : 1; };
  const auto* pixels = static_cast<const std::uint8_t*>(array.data());
  if (dimensions != 2 && dimensions != 3) {
    throw pvm::Error(pvm::Fault::usage,
                     "a frame has 2 or 3 dimensions, [height, width, channels], "
                     "and this array has " +
                         std::to_string(dimensions));
  }
  if (length(0) == shape.height && length(1) == shape.width && length(2) == shape.channels) {
    return {pixels, shape.size()};
  }
  constexpr py::ssize_t most = 1 << 15;
  if (length(0) < 1 || length(1) < 1 || length(0) > most || length(1) > most ||
      (length(2) != 1 && length(2) != 3 && length(2) != 4)) {
    throw pvm::Error(pvm::Fault::usage,
                     "a frame has 1 to 32768 rows and columns and 1, 3 or 4 channels, and this "
                     "array is " +
                         std::to_string(length(0)) + " x " + std::to_string(length(1)) + " x " +
                         std::to_string(length(2)));
  }
  const cv::Mat picture(static_cast<int>(length(0)), static_cast<int>(length(1)),
                        CV_8UC(static_cast<int>(length(2))), const_cast<std::uint8_t*>(pixels));
  room.resize(shape.size());
  pvm::io::AsFrame<cv::Mat>::write(picture, shape, room);
  return room;
}

/// Throws what a signal handler of Python has raised, such as KeyboardInterrupt for Ctrl-C.
inline void check_signals() {
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

}  // namespace pvm_python
