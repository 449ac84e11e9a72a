// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// DLPack, the protocol by which libraries of Python hand each other tensors without a copy: its
/// structures, and the two sides of an exchange (dmlc.github.io/dlpack/latest).

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/pybind11.h>

#include <pvm/core/error.hpp>

namespace pvm_python {

namespace py = pybind11;

namespace dlpack {

// As DLPack's header has them (version 0.8, which all libraries understand). Names are ours.

enum DeviceType : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13 };
struct Device {
  std::int32_t type = cpu;
  std::int32_t number = 0;
};
enum TypeCode : std::uint8_t { signed_integer = 0, unsigned_integer = 1, floating = 2 };
struct DataType {
  std::uint8_t code = 0;
  std::uint8_t bits = 0;
  std::uint16_t lanes = 1;
};
struct Tensor {
  void* data = nullptr;
  Device device;
  std::int32_t dimensions = 0;
  DataType type;
  std::int64_t* shape = nullptr;
  std::int64_t* strides = nullptr;  // in elements; null: without gaps, the last dimension first
  std::uint64_t byte_offset = 0;
};
struct ManagedTensor {
  Tensor tensor;
  void* manager = nullptr;
  void (*deleter)(ManagedTensor*) = nullptr;
};
/// Names of capsules, before and after somebody has taken what is in them.
inline constexpr const char* fresh = "dltensor";
inline constexpr const char* taken = "used_dltensor";

/// Whether memory is a GPU's, so that the CPU cannot read it.
inline bool is_on_gpu(const Device& device) {
  return device.type == cuda || device.type == cuda_managed;
}

/// Where the tensor is that `object` would hand over.
inline Device device_of(const py::handle& object) {
  const auto pair = py::tuple(object.attr("__dlpack_device__")());
  return {py::int_(pair[0]).cast<std::int32_t>(), py::int_(pair[1]).cast<std::int32_t>()};
}

/// What `object.__dlpack__` hands over, whose memory it keeps. Made and destroyed with the GIL.
class Import {
 public:
  /// Memory of a GPU can be read by work on CUDA's legacy default stream from then on.
  explicit Import(const py::handle& object) {
    constexpr int legacy_default_stream = 1;  // what DLPack calls it
    const auto hand_over = object.attr("__dlpack__");
    const py::object capsule = is_on_gpu(device_of(object))
                                   ? hand_over(py::arg("stream") = legacy_default_stream)
                                   : hand_over();
    managed_ = static_cast<ManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), fresh));
    if (managed_ == nullptr || PyCapsule_SetName(capsule.ptr(), taken) != 0) {
      throw py::error_already_set();
    }
  }
  Import(const Import&) = delete;
  Import& operator=(const Import&) = delete;
  ~Import() {
    if (managed_->deleter != nullptr) managed_->deleter(managed_);
  }

  [[nodiscard]] const Tensor& tensor() const { return managed_->tensor; }
  [[nodiscard]] void* data() const {
    return static_cast<std::uint8_t*>(tensor().data) + tensor().byte_offset;
  }
  [[nodiscard]] std::vector<py::ssize_t> shape() const {
    return {tensor().shape, tensor().shape + tensor().dimensions};
  }
  /// In elements.
  [[nodiscard]] std::vector<py::ssize_t> strides() const {
    if (tensor().strides != nullptr) {
      return {tensor().strides, tensor().strides + tensor().dimensions};
    }
    return without_gaps();
  }
  /// Whether the elements lie one after the other, in the order of C.
  [[nodiscard]] bool is_whole() const {
    const auto lengths = shape(), are = strides(), would_be = without_gaps();
    for (std::size_t k = 0; k < lengths.size(); ++k) {
      if (lengths[k] > 1 && are[k] != would_be[k]) return false;
    }
    return true;
  }
  /// For sentences, as numpy has it: uint8, float32.
  [[nodiscard]] std::string type_name() const {
    const DataType& type = tensor().type;
    const char* const kind = type.code == unsigned_integer ? "uint"
                             : type.code == signed_integer ? "int"
                             : type.code == floating       ? "float"
                                                           : "another type of ";
    return kind + std::to_string(type.bits);
  }
  [[nodiscard]] bool has_bytes() const {
    const DataType& type = tensor().type;
    return type.code == unsigned_integer && type.bits == 8 && type.lanes == 1;
  }

 private:
  [[nodiscard]] std::vector<py::ssize_t> without_gaps() const {
    const auto lengths = shape();
    std::vector<py::ssize_t> strides(lengths.size(), 1);
    for (std::size_t k = lengths.size(); k-- > 1;) strides[k - 1] = strides[k] * lengths[k];
    return strides;
  }

  ManagedTensor* managed_ = nullptr;
};

/// A capsule of floats without gaps, for others to take. `owner`, of any type that can be copied,
/// keeps their memory; it is destroyed by whichever thread lets the tensor go, perhaps without the
/// GIL.
template <class Owner>
py::capsule export_floats(float* data, const Device& device, const std::vector<std::int64_t>& shape,
                          const Owner& owner) {
  struct Exported : ManagedTensor {
    std::vector<std::int64_t> lengths;
    Owner owner;
  };
  auto* const made = new Exported{{}, shape, owner};
  made->tensor = {data,
                  device,
                  static_cast<std::int32_t>(shape.size()),
                  {floating, 32, 1},
                  made->lengths.data()};
  made->deleter = [](ManagedTensor* managed) { delete static_cast<Exported*>(managed); };
  return py::capsule(static_cast<ManagedTensor*>(made), fresh, [](PyObject* capsule) {
    if (PyCapsule_IsValid(capsule, fresh) == 0) return;  // somebody has taken it
    auto* const left = static_cast<ManagedTensor*>(PyCapsule_GetPointer(capsule, fresh));
    left->deleter(left);
  });
}

}  // namespace dlpack

}  // namespace pvm_python
