// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Reads and writes specs as JSON.

#include <filesystem>
#include <string>
#include <string_view>

#include <pvm/core/config.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0 {

/// Parses and validates a spec. `where` names the text in messages. Logs a warning for each unknown
/// key. Throws Error (Fault::spec) if the text is not JSON, or a value is missing or not allowed.
Spec parse_spec(std::string_view text, const std::string& where);

/// Reads and validates a spec file; the spec's name is the file's without extension. Throws Error
/// (Fault::spec) with a sentence that names the file, the key, the value and what is allowed.
Spec load_spec(const std::filesystem::path& path);

/// The spec as JSON text, with all keys that have an effect. `parse_spec` turns it into the same
/// spec again, except for the name, which is not in the text. `indent`: spaces per level; -1 for
/// one line.
std::string to_json_text(const Spec& spec, int indent = -1);

}  // namespace pvm::inline v0

#if !defined(PVM_COMPILED)
#include <pvm/model/json-inl.hpp>
#endif
