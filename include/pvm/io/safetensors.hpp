// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Reads and writes files in the safetensors format: an 8-byte little-endian header length, a JSON
/// header, raw little-endian values. Files are untrusted input: the whole header is checked against
/// the file's size before memory is allocated for a tensor.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include <pvm/core/need_json.hpp>

#include <nlohmann/json.hpp>

#include <pvm/core/error.hpp>
#include <pvm/core/large_vector.hpp>
#include <pvm/core/open_fault.hpp>
#include <pvm/io/atomic_file.hpp>
#include <pvm/model/parse_json.hpp>

namespace pvm::inline v0::io {

static_assert(std::endian::native == std::endian::little,
              "safetensors files hold little-endian values; big-endian machines are not supported");

/// The strings stored beside the tensors, by their keys.
using Metadata = std::map<std::string, std::string>;

/// The bits of a float of 8 bits, E4M3.
enum class Float8 : std::uint8_t {};

/// A tensor to be written. It refers to the caller's values.
struct TensorView {
  std::string name;
  std::vector<std::uint64_t> shape;  ///< row-major: the slowest dimension first
  std::variant<std::span<const float>, std::span<const double>, std::span<const std::uint64_t>,
               std::span<const std::int64_t>, std::span<const std::uint8_t>,
               std::span<const std::int8_t>, std::span<const Float8>>
      values;
};

/// Type, shape and location of a tensor in a file.
struct TensorInfo {
  std::string dtype;                 ///< as the format names it: F32, F64, ...
  std::vector<std::uint64_t> shape;  ///< row-major: the slowest dimension first
  std::uint64_t begin = 0;           ///< offset of the first byte from the start of the file
  std::uint64_t bytes = 0;           ///< size of all values
};

namespace detail {

inline constexpr std::uint64_t most_header_bytes = 100'000'000;

template <class T>
inline constexpr std::string_view dtype_name = "";
template <>
inline constexpr std::string_view dtype_name<float> = "F32";
template <>
inline constexpr std::string_view dtype_name<double> = "F64";
template <>
inline constexpr std::string_view dtype_name<std::uint64_t> = "U64";
template <>
inline constexpr std::string_view dtype_name<std::int64_t> = "I64";
template <>
inline constexpr std::string_view dtype_name<std::uint8_t> = "U8";
template <>
inline constexpr std::string_view dtype_name<std::int8_t> = "I8";
template <>
inline constexpr std::string_view dtype_name<Float8> = "F8_E4M3";

/// The size of one value in bytes; 0 if the type is not known.
inline std::uint64_t dtype_bytes(std::string_view dtype) {
  struct Size {
    std::string_view dtype;
    std::uint64_t bytes;
  };
  constexpr std::array sizes = {
      Size{"BOOL", 1}, Size{"U8", 1},  Size{"I8", 1},  Size{"F8_E5M2", 1}, Size{"F8_E4M3", 1},
      Size{"U16", 2},  Size{"I16", 2}, Size{"F16", 2}, Size{"BF16", 2},    Size{"U32", 4},
      Size{"I32", 4},  Size{"F32", 4}, Size{"U64", 8}, Size{"I64", 8},     Size{"F64", 8}};
  const auto found = std::find_if(sizes.begin(), sizes.end(),
                                  [&](const Size& size) { return size.dtype == dtype; });
  return found == sizes.end() ? 0 : found->bytes;
}

/// The product of all elements of `shape` and `unit`; nothing if it does not fit into 64 bits.
inline std::optional<std::uint64_t> product(std::span<const std::uint64_t> shape,
                                            std::uint64_t unit) {
  if (std::find(shape.begin(), shape.end(), 0U) != shape.end()) return 0;
  for (const std::uint64_t n : shape) {
    if (unit > std::numeric_limits<std::uint64_t>::max() / n) return std::nullopt;
    unit *= n;
  }
  return unit;
}

}  // namespace detail

/// A safetensors file open for reading.
class SafetensorsReader {
 public:
  /// Opens the file, reads its header and checks it. Throws Error (Fault::checkpoint) if the file
  /// cannot be read or its header is not valid; the message says what is wrong.
  explicit SafetensorsReader(const std::filesystem::path& path)
      : where_("checkpoint " + quote(path.string())) {
    std::error_code fault;
    const auto status = std::filesystem::status(path, fault);
    if (!std::filesystem::exists(status)) refuse("no such file");
    if (!std::filesystem::is_regular_file(status)) refuse("not a file");
    file_.open(path, std::ios::binary);
    file_bytes_ = std::filesystem::file_size(path, fault);
    if (!file_ || fault) {
      const std::string why = why_not_readable(path);
      refuse("cannot be read" + (why.empty() ? "" : ": " + why));
    }
    parse(read_header());
    check_overlaps();
  }

  [[nodiscard]] const Metadata& metadata() const noexcept { return metadata_; }
  [[nodiscard]] const std::map<std::string, TensorInfo>& tensors() const noexcept {
    return tensors_;
  }
  [[nodiscard]] bool has(const std::string& name) const { return tensors_.contains(name); }

  /// The values of a tensor, in the file's order. Throws Error (Fault::checkpoint) if there is no
  /// tensor of this name, if its type is not `T`, or if it cannot be read.
  template <class T>
  [[nodiscard]] std::vector<T> read(const std::string& name) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) refuse("it has no tensor " + quote(name));
    const TensorInfo& info = found->second;
    if (info.dtype != detail::dtype_name<T>) {
      refuse("tensor " + quote(name) + " is " + quote(info.dtype) + " where " +
             std::string(detail::dtype_name<T>) + " is needed");
    }
    auto values = pvm::detail::large_vector<T>(static_cast<std::size_t>(info.bytes / sizeof(T)));
    read_bytes(info.begin, values.data(), info.bytes);
    return values;
  }

  /// Throws Error (Fault::checkpoint) with the message `where()`: `why`.
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Fault::checkpoint, where_ + ": " + why);
  }
  /// The word "checkpoint" and the file's path, for messages.
  [[nodiscard]] const std::string& where() const noexcept { return where_; }

 private:
  void read_bytes(std::uint64_t begin, void* out, std::uint64_t bytes) {
    file_.seekg(static_cast<std::streamoff>(begin));
    if (!file_.read(static_cast<char*>(out), static_cast<std::streamsize>(bytes))) {
      refuse("it ended while it was being read");
    }
  }

  std::string read_header() {
    std::uint64_t length = 0;
    if (file_bytes_ < sizeof length) refuse("not a safetensors file: shorter than 8 bytes");
    read_bytes(0, &length, sizeof length);
    if (length > detail::most_header_bytes) {
      refuse("not a safetensors file: its header would be " + std::to_string(length) +
             " bytes long; allowed: 100000000");
    }
    if (length > file_bytes_ - sizeof length) {
      refuse("it is cut off: a header of " + std::to_string(length) + " bytes in a file of " +
             std::to_string(file_bytes_));
    }
    data_begin_ = sizeof length + length;
    std::string header(static_cast<std::size_t>(length), '\0');
    read_bytes(sizeof length, header.data(), length);
    return header;
  }

  void parse(const std::string& header) {
    const auto json = pvm::detail::parse_shallow(header, where_ + ": header", Fault::checkpoint);
    if (!json.is_object()) refuse("its header is not a JSON object");
    for (const auto& [name, value] : json.items()) {
      if (!value.is_object()) refuse("header entry " + quote(name) + " is not an object");
      if (name == "__metadata__") {
        parse_metadata(value);
      } else {
        tensors_[name] = parse_tensor("tensor " + quote(name), value);
      }
    }
  }

  void parse_metadata(const nlohmann::json& object) {
    for (const auto& [key, value] : object.items()) {
      if (!value.is_string()) refuse("metadata " + quote(key) + " is not a string");
      metadata_[key] = value.get<std::string>();
    }
  }

  [[nodiscard]] TensorInfo parse_tensor(const std::string& tensor,
                                        const nlohmann::json& object) const {
    TensorInfo info;
    if (!object.contains("dtype") || !object["dtype"].is_string()) {
      refuse(tensor + " has no dtype");
    }
    info.dtype = object["dtype"].get<std::string>();
    const std::uint64_t unit = detail::dtype_bytes(info.dtype);
    if (unit == 0) refuse(tensor + " has the unknown dtype " + quote(info.dtype));
    info.shape = parse_numbers(tensor, object, "shape");
    const auto offsets = parse_numbers(tensor, object, "data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1]) {
      refuse(tensor + " has data_offsets that are not a begin and an end");
    }
    const std::uint64_t room = file_bytes_ - data_begin_;
    if (offsets[1] > room) {
      refuse(tensor + " ends at byte " + std::to_string(offsets[1]) +
             " of data, but the file has " + std::to_string(room) + "; is it cut off?");
    }
    info.begin = data_begin_ + offsets[0];
    info.bytes = offsets[1] - offsets[0];
    if (detail::product(info.shape, unit) != info.bytes) {
      refuse(tensor + " has " + std::to_string(info.bytes) + " bytes, which its shape and dtype " +
             "do not ask for");
    }
    return info;
  }

  [[nodiscard]] std::vector<std::uint64_t> parse_numbers(const std::string& tensor,
                                                         const nlohmann::json& object,
                                                         const char* key) const {
    if (!object.contains(key) || !object[key].is_array()) {
      refuse(tensor + " has no " + std::string(key));
    }
    std::vector<std::uint64_t> numbers;
    for (const auto& item : object[key]) {
      if (!item.is_number_unsigned()) {
        refuse(tensor + ": " + key + " holds something that is not a whole number");
      }
      numbers.push_back(item.get<std::uint64_t>());
    }
    return numbers;
  }

  void check_overlaps() const {
    std::vector<std::pair<const TensorInfo*, const std::string*>> order;
    for (const auto& [name, info] : tensors_) {
      if (info.bytes > 0) order.emplace_back(&info, &name);
    }
    std::sort(order.begin(), order.end(),
              [](const auto& a, const auto& b) { return a.first->begin < b.first->begin; });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const TensorInfo& before = *order[i - 1].first;
      if (order[i].first->begin < before.begin + before.bytes) {
        refuse("tensors " + quote(*order[i - 1].second) + " and " + quote(*order[i].second) +
               " overlap");
      }
    }
  }

  std::string where_;
  std::ifstream file_;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t data_begin_ = 0;
  Metadata metadata_;
  std::map<std::string, TensorInfo> tensors_;
};

/// Writes a safetensors file atomically (see AtomicFile), the tensors in the given order. Put
/// tensors of 8-byte values first, so that every value lies at a multiple of its size. Throws Error
/// (Fault::checkpoint) if the file cannot be written.
inline void write_safetensors(const std::filesystem::path& path, const Metadata& metadata,
                              std::span<const TensorView> tensors) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  const auto bytes_of = [](const TensorView& tensor) {
    return std::visit([](auto values) { return std::as_bytes(values); }, tensor.values);
  };
  for (const TensorView& tensor : tensors) {
    const auto dtype = std::visit(
        [](auto values) { return detail::dtype_name<typename decltype(values)::value_type>; },
        tensor.values);
    const std::uint64_t end = offset + bytes_of(tensor).size();
    header[tensor.name] = {
        {"dtype", dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  constexpr auto replace = nlohmann::ordered_json::error_handler_t::replace;
  std::string text = header.dump(-1, ' ', false, replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // aligns the values to 8 bytes
  const std::uint64_t length = text.size();

  AtomicFile file(path);
  file.write(&length, sizeof length);
  file.write(text.data(), text.size());
  for (const TensorView& tensor : tensors) {
    const auto bytes = bytes_of(tensor);
    file.write(bytes.data(), bytes.size());
  }
  file.commit();
}

}  // namespace pvm::inline v0::io
