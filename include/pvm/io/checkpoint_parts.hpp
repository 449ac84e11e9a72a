// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the files of networks have in common: checkpoints, and networks for prediction only.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <pvm/core/need_json.hpp>

#include <pvm/core/log.hpp>
#include <pvm/core/printable.hpp>
#include <pvm/io/extras.hpp>
#include <pvm/io/safetensors.hpp>
#include <pvm/model/json.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::io::detail {

/// The metadata `format` of a network for prediction only (infer/frozen_file.hpp).
inline constexpr std::string_view frozen_format = "pvm-frozen";

inline std::string text_or(const Metadata& metadata, const char* key, std::string absent) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? std::move(absent) : found->second;
}

inline std::optional<Spec> stored_spec(const SafetensorsReader& file) {
  const auto found = file.metadata().find("spec");
  if (found == file.metadata().end()) return std::nullopt;
  Spec spec = parse_spec(found->second, file.where() + ": its spec");
  const std::string name = text_or(file.metadata(), "name", spec.name);
  spec.name = file_name_part(name);  // the file must not say where files go
  if (spec.name != name) {
    log(Severity::warning, file.where() + ": the name of its spec is " + quote(name) +
                               ", which is no name for files; it is called " + quote(spec.name));
  }
  return spec;
}

inline constexpr std::string_view extras_prefix = "readout";

inline Extras read_extras(SafetensorsReader& file) {
  Extras extras;
  for (const auto& [key, text] : file.metadata()) {
    if (key.starts_with(extras_prefix)) extras.texts[key] = text;
  }
  for (const auto& [name, info] : file.tensors()) {
    if (!name.starts_with(extras_prefix)) continue;
    if (info.dtype == "F64") {
      extras.doubles[name] = file.read<double>(name);
    } else {
      extras.floats[name] = file.read<float>(name);
    }
  }
  return extras;
}

}  // namespace pvm::inline v0::io::detail
