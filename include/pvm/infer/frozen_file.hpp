// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Networks for prediction only as safetensors files. docs/infer.md describes the format.

#include <filesystem>

#include <pvm/core/config.hpp>
#include <pvm/infer/frozen_network.hpp>

namespace pvm::inline v0 {

/// Writes the network atomically, its readout too. Throws Error (Fault::checkpoint) if the file
/// cannot be written.
void save_frozen(const std::filesystem::path& path, const FrozenNetwork& network);

/// Reads what save_frozen has written. Throws Error (Fault::checkpoint) if the file cannot be read,
/// is damaged, or is something else.
FrozenNetwork load_frozen(const std::filesystem::path& path);

/// Whether the file is one of save_frozen, whole as far as its header tells.
bool is_frozen(const std::filesystem::path& path);

}  // namespace pvm::inline v0

#if !defined(PVM_COMPILED)
#include <pvm/infer/frozen_file-inl.hpp>
#endif
