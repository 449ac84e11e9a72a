// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A sequence in a directory: numbered pictures and, where there are labels, one text file.

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/open_fault.hpp>
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
                                     " cannot be read: " + open_fault(fault.value()));
    }
    return files;
  }

  /// The size of a file in bytes; 0 if it is not known.
  [[nodiscard]] std::uint64_t size(const StoredFile& file) const {
    std::error_code fault;
    const std::uintmax_t size = std::filesystem::file_size(path_ / file.name, fault);
    return fault ? 0 : size;
  }

  /// Replaces `bytes` by the content of a file. False if the file has been removed, may not be
  /// read, or is larger than `most_frame_bytes`. Throws Fault::source if that says nothing about
  /// this file: the whole directory has vanished, or too many files are open.
  bool read(const StoredFile& file, std::vector<std::uint8_t>& bytes) const {
    if (read_file(path_ / file.name, bytes)) return true;
    refuse_if_gone();
    return false;
  }

 private:
  static bool read_file(const std::filesystem::path& path, std::vector<std::uint8_t>& bytes) {
    std::error_code fault;
    if (!std::filesystem::is_regular_file(path, fault)) return false;
    const std::uintmax_t size = std::filesystem::file_size(path, fault);
    if (fault || size > most_frame_bytes) return false;
    bytes.resize(static_cast<std::size_t>(size));
    errno = 0;
    std::ifstream stream(path, std::ios::binary);
    stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
    if (!stream.is_open()) refuse_if_too_many(path);
    return stream.good();
  }

  static void refuse_if_too_many(const std::filesystem::path& path) {
    if (errno != EMFILE && errno != ENFILE) return;
    const int code = errno;
    throw Error(Fault::source,
                pvm::quote(path.string()) + " cannot be opened: " + open_fault(code));
  }

  void refuse_if_gone() const {
    std::error_code fault;
    if (std::filesystem::is_directory(path_, fault)) return;
    const bool replaced = std::filesystem::exists(path_, fault);
    throw Error(Fault::source, "the directory " + pvm::quote(path_.string()) +
                                   (replaced ? " is a directory no more" : " has vanished") +
                                   "; put it back to go on");
  }

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
