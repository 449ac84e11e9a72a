// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A frame as Python gives it to a Predictor: in host memory, or in that of a GPU.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <pvm/core/error.hpp>
#include <pvm/infer/gpu_values.hpp>
#include <pvm/io/source.hpp>

#include "arrays.hpp"
#include "dlpack.hpp"

namespace pvm_python {

class GivenFrame {
 public:
  /// Throws Error (Fault::usage) for what is no frame of a network of this `shape`. On a GPU
  /// nothing is resized.
  GivenFrame(const py::handle& object, const pvm::io::FrameShape& shape) {
    if (is_gpu_tensor(object)) {
      tensor_ = std::make_unique<dlpack::Import>(object);
      check(shape);
      gpu_ = {{static_cast<const std::uint8_t*>(tensor_->data()), shape.size()},
              tensor_->tensor().device.number};
    } else {
      array_ = pixels_of(object);
      host_ = frame_of(array_, shape, room_);
    }
  }

  /// What `use` returns for the span of a frame on the host, or for a GpuFrame.
  template <class Use>
  auto hand_to(const Use& use) const {
    return tensor_ ? use(gpu_) : use(host_);
  }
  /// What has to be kept until the frame has its result; null for a frame on the host.
  std::unique_ptr<dlpack::Import> take_tensor() { return std::move(tensor_); }

 private:
  void check(const pvm::io::FrameShape& shape) const {
    check_type(*tensor_);
    const auto lengths = tensor_->shape();
    const std::vector<py::ssize_t> wanted = {shape.height, shape.width, shape.channels};
    const bool grey = shape.channels == 1 && lengths.size() == 2 && lengths[0] == wanted[0] &&
                      lengths[1] == wanted[1];
    if (lengths != wanted && !grey) {
      throw pvm::Error(pvm::Fault::usage,
                       "a frame in the memory of a GPU has the network's size, " + text_of(wanted) +
                           ", and this one is " + text_of(lengths) +
                           "; resize it there, or hand in a copy on the host, which is resized");
    }
    if (!tensor_->is_whole()) {
      throw pvm::Error(pvm::Fault::usage,
                       "a frame in the memory of a GPU has no gaps and the order [height, width, "
                       "channels] in memory, too; make it contiguous");
    }
  }
  static std::string text_of(const std::vector<py::ssize_t>& lengths) {
    std::string text;
    for (const auto length : lengths) {
      text += (text.empty() ? "" : " x ") + std::to_string(length);
    }
    return text;
  }

  py::array array_;
  std::vector<std::uint8_t> room_;
  std::span<const std::uint8_t> host_;
  std::unique_ptr<dlpack::Import> tensor_;
  pvm::GpuFrame gpu_;
};

}  // namespace pvm_python
