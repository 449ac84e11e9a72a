// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The bodies of frozen_file.hpp.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/core/error.hpp>
#include <pvm/core/version.hpp>
#include <pvm/infer/frozen_file.hpp>
#include <pvm/infer/frozen_network.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/checkpoint_parts.hpp>
#include <pvm/io/safetensors.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/json.hpp>

namespace pvm::inline v0 {

namespace infer {

/// The bytes as a tensor of type T.
template <class T>
std::span<const T> values_as(const FrozenNetwork& network) {
  return {reinterpret_cast<const T*>(network.values.data()), network.values.size()};
}

template <class T>
std::vector<std::uint8_t> read_values(io::SafetensorsReader& file) {
  const auto values = file.read<T>("values");
  std::vector<std::uint8_t> bytes(values.size());
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// Throws Fault::checkpoint unless the arrays are those of the spec's network, with numbers only.
inline void check_frozen(const io::SafetensorsReader& file, const FrozenNetwork& network) {
  const auto matrices = frozen_matrices(network.spec, make_connectome(network.spec));
  const std::size_t rows = matrices.back().first_row + matrices.back().rows;
  if (network.values.size() != matrices.back().end() || network.scales.size() != rows ||
      network.offsets.size() != rows) {
    file.refuse("its tensors are not those of its spec; is it damaged?");
  }
  const auto not_a_number = [](std::uint8_t byte) { return (byte & 0x7f) == 0x7f; };
  if (!io::detail::all_finite(network.scales) || !io::detail::all_finite(network.offsets) ||
      (network.format == FrozenFormat::fp8 &&
       std::any_of(network.values.begin(), network.values.end(), not_a_number))) {
    file.refuse("it holds values that are not numbers (NaN or infinite)");
  }
}

}  // namespace infer

PVM_INLINE void save_frozen(const std::filesystem::path& path, const FrozenNetwork& network) {
  io::Metadata metadata = {{"format", std::string(io::detail::frozen_format)},
                           {"format_version", "1"},
                           {"pvm_version", version_text()},
                           {"name", network.spec.name},
                           {"spec", to_json_text(network.spec)},
                           {"precision", std::string(name_of(network.format))}};
  for (const auto& [key, text] : network.extras.texts) metadata[key] = text;
  std::vector<io::TensorView> tensors;
  for (const auto& [name, values] : network.extras.doubles) {  // 8-byte values come first
    tensors.push_back({name, {values.size()}, std::span(values)});
  }
  tensors.push_back({"scales", {network.scales.size()}, std::span(network.scales)});
  tensors.push_back({"offsets", {network.offsets.size()}, std::span(network.offsets)});
  for (const auto& [name, values] : network.extras.floats) {
    tensors.push_back({name, {values.size()}, std::span(values)});
  }
  io::TensorView& values = tensors.emplace_back();
  values.name = "values";
  values.shape = {network.values.size()};
  if (network.format == FrozenFormat::int8) {
    values.values = infer::values_as<std::int8_t>(network);
  } else {
    values.values = infer::values_as<io::Float8>(network);
  }
  io::write_safetensors(path, metadata, tensors);
}

PVM_INLINE FrozenNetwork load_frozen(const std::filesystem::path& path) {
  using io::detail::text_or;
  io::SafetensorsReader file(path);
  if (text_or(file.metadata(), "format", "") != io::detail::frozen_format) {
    file.refuse("it is not a file of pvm quantize");
  }
  if (const auto version = text_or(file.metadata(), "format_version", ""); version != "1") {
    file.refuse("its format version is " + quote(version) + "; this program reads version 1");
  }
  const std::string precision = text_or(file.metadata(), "precision", "");
  if (precision != "int8" && precision != "fp8") {
    file.refuse("its precision is " + quote(precision) + ", which this program does not know");
  }
  const auto spec = io::detail::stored_spec(file);
  if (!spec) file.refuse("its metadata lacks 'spec'");
  FrozenNetwork network;
  network.spec = *spec;
  network.format = precision == "int8" ? FrozenFormat::int8 : FrozenFormat::fp8;
  network.values = network.format == FrozenFormat::int8 ? infer::read_values<std::int8_t>(file)
                                                        : infer::read_values<io::Float8>(file);
  network.scales = file.read<float>("scales");
  network.offsets = file.read<float>("offsets");
  infer::check_frozen(file, network);
  network.extras = io::detail::read_extras(file);
  return network;
}

PVM_INLINE bool is_frozen(const std::filesystem::path& path) {
  try {
    const io::SafetensorsReader file(path);
    return io::detail::text_or(file.metadata(), "format", "") == io::detail::frozen_format;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace pvm::inline v0
