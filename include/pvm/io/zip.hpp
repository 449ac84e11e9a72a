// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A sequence in a zip archive, which is how the published PVM data sets are stored: numbered
/// pictures and one text file of labels. The archive is not unpacked.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <pvm/core/need_libzip.hpp>

#include <zip.h>

#include <pvm/core/error.hpp>
#include <pvm/core/open_fault.hpp>
#include <pvm/io/file_names.hpp>
#include <pvm/io/image_list.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0::io {

/// Whether the file begins with the magic number of zip archives. Only regular files are opened:
/// opening a pipe would block until somebody writes to it.
inline bool has_zip_magic(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return magic[0] == 'P' && magic[1] == 'K' &&
         ((magic[2] == 3 && magic[3] == 4) || (magic[2] == 5 && magic[3] == 6));
}

/// An open archive, read only. Model of FileStore.
class ZipStore {
 public:
  /// Throws Fault::source if `path` is not a complete zip archive that can be opened.
  explicit ZipStore(const std::filesystem::path& path) : name_(path.string()) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) {
      throw Error(Fault::source, pvm::quote(path.string()) + " is a directory, not a zip archive");
    }
    int code = 0;
    archive_.reset(zip_open(path.string().c_str(), ZIP_RDONLY, &code));
    if (!archive_) throw Error(Fault::source, why_not(path, code));
  }

  /// All entries, directories included, with their names as stored. Throws Fault::source if there
  /// are pictures and all of them are encrypted or use a compression method that libzip does not
  /// support: one error instead of a message for each picture.
  [[nodiscard]] std::vector<StoredFile> files() const {
    const zip_int64_t count = zip_get_num_entries(archive_.get(), 0);
    std::vector<StoredFile> files;
    files.reserve(static_cast<std::size_t>(std::max<zip_int64_t>(count, 0)));
    for (zip_int64_t i = 0; i < count; ++i) {
      const auto index = static_cast<zip_uint64_t>(i);
      const char* name = zip_get_name(archive_.get(), index, ZIP_FL_ENC_RAW);
      if (name != nullptr) files.push_back({name, index});
    }
    refuse_if_locked(files);
    return files;
  }

  /// The size of an entry in bytes, once it is unpacked, as the archive claims; 0 if it says none.
  [[nodiscard]] std::uint64_t size(const StoredFile& file) const {
    zip_stat_t facts;
    const bool known = zip_stat_index(archive_.get(), file.id, 0, &facts) == 0 &&
                       (facts.valid & ZIP_STAT_SIZE) != 0;
    return known ? facts.size : 0;
  }

  /// Replaces `bytes` by the content of an entry. False if it is encrypted, damaged (its checksum
  /// is verified), compressed by a method that libzip does not support, or larger than
  /// `most_frame_bytes`. The size that the entry claims is never allocated in advance.
  bool read(const StoredFile& file, std::vector<std::uint8_t>& bytes) {
    zip_stat_t facts;
    constexpr zip_uint64_t needed = ZIP_STAT_SIZE | ZIP_STAT_ENCRYPTION_METHOD;
    if (zip_stat_index(archive_.get(), file.id, 0, &facts) != 0 ||
        (facts.valid & needed) != needed || facts.encryption_method != ZIP_EM_NONE ||
        facts.size > most_frame_bytes) {
      return false;
    }
    const char* name = zip_get_name(archive_.get(), file.id, ZIP_FL_ENC_RAW);
    if (name == nullptr || file.name != name) return false;  // the archive has been replaced
    const Entry entry(zip_fopen_index(archive_.get(), file.id, 0));
    return entry && read_to_end(entry.get(), static_cast<std::size_t>(facts.size), bytes);
  }

 private:
  struct Discard {
    void operator()(zip_t* archive) const noexcept { zip_discard(archive); }
    void operator()(zip_file_t* entry) const noexcept { zip_fclose(entry); }
  };
  using Entry = std::unique_ptr<zip_file_t, Discard>;

  void refuse_if_locked(const std::vector<StoredFile>& files) const {
    const char* why = nullptr;
    for (const StoredFile& file : files) {
      if (!is_image_name(file.name)) continue;
      zip_stat_t facts;
      constexpr zip_uint64_t needed = ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
      if (zip_stat_index(archive_.get(), file.id, 0, &facts) != 0) return;
      if ((facts.valid & needed) != needed) return;
      if (facts.encryption_method != ZIP_EM_NONE) {
        why = " are encrypted; unpack it with its password and name the directory";
      } else if (zip_compression_method_supported(facts.comp_method, 0) == 0) {
        why =
            " are packed in a way that libzip does not know here; pack them with deflate, or "
            "unpack it and name the directory";
      } else {
        return;
      }
    }
    if (why != nullptr) throw Error(Fault::source, "the pictures in " + pvm::quote(name_) + why);
  }

  /// Reads `size` bytes, then tries to read one more: at the end libzip verifies the checksum. The
  /// buffer grows with the data that is really there.
  static bool read_to_end(zip_file_t* entry, std::size_t size, std::vector<std::uint8_t>& bytes) {
    for (std::size_t used = 0; used < size;) {
      bytes.resize(std::min(size, std::max<std::size_t>(2 * used, std::size_t{1} << 20)));
      const zip_int64_t count = zip_fread(entry, bytes.data() + used, bytes.size() - used);
      if (count <= 0) return false;
      used += static_cast<std::size_t>(count);
    }
    bytes.resize(size);
    std::uint8_t beyond = 0;
    return zip_fread(entry, &beyond, 1) == 0;
  }

  static std::string why_not(const std::filesystem::path& path, int code) {
    const std::string name = pvm::quote(path.string());
    std::error_code ignored;
    if (code == ZIP_ER_NOENT) return name + " does not exist";
    if (std::filesystem::file_size(path, ignored) == 0)
      return name + " is an empty file; copy or download it again";
    bool damaged = code == ZIP_ER_NOZIP || code == ZIP_ER_INCONS;
#if defined(ZIP_ER_TRUNCATED_ZIP)  // libzip 1.11 and later
    damaged = damaged || code == ZIP_ER_TRUNCATED_ZIP;
#endif
    if (damaged && has_zip_magic(path)) {
      return name + " is a damaged zip archive, perhaps cut off; copy or download it again";
    }
    if (damaged) return name + " is not a zip archive";
    if (const std::string why = why_not_readable(path); !why.empty()) {
      return name + " cannot be opened: " + why;
    }
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    const std::string reason = zip_error_strerror(&error);
    zip_error_fini(&error);
    return name + " cannot be opened: " + reason;
  }

  std::string name_;
  std::unique_ptr<zip_t, Discard> archive_;
};

/// The pictures in a zip archive as a source. See ImageList for the constructor and the functions.
class Zip : public ImageList<ZipStore> {
 public:
  using ImageList::ImageList;
};

static_assert(FrameSource<Zip>);

}  // namespace pvm::inline v0::io
