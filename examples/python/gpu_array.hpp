// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Results that stay in the memory of a GPU, for torch.from_dlpack and the like.

#include <cstdint>
#include <utility>
#include <vector>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <pvm/infer/gpu_values.hpp>

#include "dlpack.hpp"

namespace pvm_python {

class GpuArray {
 public:
  GpuArray(pvm::GpuValues values, std::vector<std::int64_t> shape)
      : values_(std::move(values)), shape_(std::move(shape)) {}

  [[nodiscard]] py::tuple shape() const { return py::tuple(py::cast(shape_)); }
  [[nodiscard]] int device() const { return values_.device; }
  [[nodiscard]] py::tuple dlpack_device() const {
    return py::make_tuple(static_cast<int>(dlpack::cuda), values_.device);
  }
  /// The values are there, so no stream has to wait for them. Of the protocol's wishes it can grant
  /// none but the usual ones: raises BufferError for a copy, and for another device.
  [[nodiscard]] py::capsule dlpack(const py::object& /*stream*/, const py::object& /*max_version*/,
                                   const py::object& device, const py::object& copy) const {
    if (!copy.is_none() && copy.cast<bool>()) {
      throw py::buffer_error("a result is handed over without a copy; copy the tensor");
    }
    if (!device.is_none() && !py::tuple(device).equal(dlpack_device())) {
      throw py::buffer_error("a result is handed over where it is; move the tensor");
    }
    return dlpack::export_floats(values_.values.get(), {dlpack::cuda, values_.device}, shape_,
                                 values_.values);
  }

 private:
  pvm::GpuValues values_;
  std::vector<std::int64_t> shape_;
};

inline void add_gpu_array(py::module_& module) {
  using namespace py::literals;
  py::class_<GpuArray>(module, "GpuArray")
      .def_property_readonly("shape", &GpuArray::shape)
      .def_property_readonly("device", &GpuArray::device)
      .def("__dlpack_device__", &GpuArray::dlpack_device)
      .def("__dlpack__", &GpuArray::dlpack, py::kw_only(), "stream"_a = py::none(),
           "max_version"_a = py::none(), "dl_device"_a = py::none(), "copy"_a = py::none());
}

}  // namespace pvm_python
