// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Between numpy and pvm: arrays, frames, signals.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
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

#include "dlpack.hpp"

namespace pvm_python {

/// An array that owns the values of `values`, without a copy.
template <class T>
py::array_t<T> as_array(std::vector<T>&& values, std::initializer_list<std::size_t> shape) {
  auto* owned = new std::vector<T>(std::move(values));
  const py::capsule owner(owned, [](void* p) { delete static_cast<std::vector<T>*>(p); });
  return py::array_t<T>(std::vector<py::ssize_t>(shape.begin(), shape.end()), owned->data(), owner);
}

/// Whether `object` hands over its memory by DLPack. numpy's own arrays need not.
inline bool is_tensor(const py::handle& object) {
  return !py::isinstance<py::array>(object) && py::hasattr(object, "__dlpack_device__");
}
/// Whether it does, and that is a GPU's.
inline bool is_gpu_tensor(const py::handle& object) {
  return is_tensor(object) && dlpack::is_on_gpu(dlpack::device_of(object));
}

[[noreturn]] inline void refuse_type(const std::string& type) {
  throw pvm::Error(pvm::Fault::usage, "a frame's values must be of type uint8, and these are " +
                                          type + "; convert them to 0 to 255");
}
/// Throws Error (Fault::usage) if a tensor's values are not of 8 bits.
inline void check_type(const dlpack::Import& tensor) {
  if (!tensor.has_bytes()) refuse_type(tensor.type_name());
}

/// The array in host memory that a tensor is, without a copy.
inline py::array array_of_tensor(const py::handle& object) {
  const dlpack::Device device = dlpack::device_of(object);
  if (device.type != dlpack::cpu && device.type != dlpack::cuda_host) {
    throw pvm::Error(pvm::Fault::usage,
                     "the frame is in the memory of a device, and is read from host memory here; "
                     "hand in a copy on the host (of a torch tensor: frame.cpu())");
  }
  auto tensor = std::make_unique<dlpack::Import>(object);
  check_type(*tensor);
  const py::capsule owner(tensor.get(), [](void* p) { delete static_cast<dlpack::Import*>(p); });
  const dlpack::Import& given = *tensor.release();
  return py::array_t<std::uint8_t>(given.shape(), given.strides(),
                                   static_cast<const std::uint8_t*>(given.data()), owner);
}

/// The array that `object` is: numpy's, a tensor's in host memory, or that of anything else that
/// numpy can take without a copy. Throws Error (Fault::usage) if its values are not of 8 bits, and
/// for tensors in other memory.
inline py::array pixels_of(const py::handle& object) {
  py::array array = is_tensor(object) ? array_of_tensor(object) : py::array::ensure(object);
  if (!array) {
    PyErr_Clear();
    throw pvm::Error(pvm::Fault::usage,
                     "a frame must be an array of bytes, and this is a " +
                         std::string(py::str(py::type::of(object).attr("__name__"))));
  }
  if (!py::isinstance<py::array_t<std::uint8_t>>(array)) refuse_type(py::str(array.dtype()));
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
  if (length(0) < 1 || length(1) < 1 || length(0) > most || length(1) > most || length(2) < 1 ||
      length(2) > 4) {
    throw pvm::Error(pvm::Fault::usage,
                     "a frame has 1 to 32768 rows and columns and 1 to 4 channels, and this "
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
