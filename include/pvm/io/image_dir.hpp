// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A sequence in a directory: numbered pictures and, where there are labels, one text file.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/io/image_list.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0::io {

/// The files directly in a directory. Model of FileStore.
class DirectoryStore {
 public:
  /// Throws Fault::source if `path` is not a directory.
  explicit DirectoryStore(std::filesystem::path path) : path_(std::move(path)) {
    std::error_code fault;
    if (!std::filesystem::is_directory(path_, fault)) {
      throw Error(Fault::source, pvm::quote(path_.string()) + " is not a directory");
    }
  }

  /// The files, without subdirectories. Throws Fault::source if the directory cannot be read.
  [[nodiscard]] std::vector<StoredFile> files() const {
    std::vector<StoredFile> files;
    std::error_code fault;
    std::error_code ignored;
    for (std::filesystem::directory_iterator entry(path_, fault), end; !fault && entry != end;
         entry.increment(fault)) {
      if (!entry->is_directory(ignored)) files.push_back({entry->path().filename().string(), 0});
    }
    if (fault) {
      throw Error(Fault::source, "the directory " + pvm::quote(path_.string()) +
                                     " cannot be read: " + fault.message());
    }
    return files;
  }

  /// Replaces `bytes` by the content of a file. False if the file has been removed, may not be
  /// read, or is larger than `most_frame_bytes`.
  bool read(const StoredFile& file, std::vector<std::uint8_t>& bytes) const {
    const std::filesystem::path path = path_ / file.name;
    std::error_code fault;
    if (!std::filesystem::is_regular_file(path, fault)) return false;
    const std::uintmax_t size = std::filesystem::file_size(path, fault);
    if (fault || size > most_frame_bytes) return false;
    bytes.resize(static_cast<std::size_t>(size));
    std::ifstream stream(path, std::ios::binary);
    stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
    return stream.good();
  }

 private:
  std::filesystem::path path_;
};

/// The pictures directly in a directory as a source. See ImageList for the constructor and the
/// functions.
class ImageDirectory : public ImageList<DirectoryStore> {
 public:
  using ImageList::ImageList;
};

static_assert(FrameSource<ImageDirectory>);

}  // namespace pvm::inline v0::io
