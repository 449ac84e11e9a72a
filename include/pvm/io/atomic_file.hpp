// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Writes files atomically: a file appears under its name complete or not at all.
///
/// A file is written as PATH.PID@HOST.tmp and renamed when it is complete. The writer's process
/// number and host in the name tell whether a temporary file was left behind by a killed process.

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <pvm/core/error.hpp>

namespace pvm::inline v0::io {

namespace detail {

/// The name of this host, for temporary names: at most 64 characters, without `/` and `@`.
inline std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  std::string host = name;
  std::replace_if(
      host.begin(), host.end(), [](char c) { return c == '/' || c == '@'; }, '_');
  return host.substr(0, 64);
}

inline constexpr std::string_view temporary_ending = ".tmp";

/// The temporary name for `path`: PATH.PID@HOST.tmp.
inline std::filesystem::path temporary_name(const std::filesystem::path& path) {
  return path.string() + "." + std::to_string(::getpid()) + "@" + host_name() +
         std::string(temporary_ending);
}

/// Whether `name` is a temporary file of this host whose writing process does not exist any more.
inline bool is_abandoned(std::string_view name) {
  std::string host = "@";
  host += host_name();
  host += temporary_ending;
  if (!name.ends_with(host)) return false;
  name.remove_suffix(host.size());
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return false;
  name.remove_prefix(dot + 1);
  ::pid_t writer = 0;
  const auto [end, fault] = std::from_chars(name.data(), name.data() + name.size(), writer);
  if (fault != std::errc() || end != name.data() + name.size() || writer <= 0) return false;
  return ::kill(writer, 0) != 0 && errno == ESRCH;
}

/// Flushes the directory of `path`, so that a rename in it survives a power cut. Failures are
/// ignored: not every file system supports this.
inline void flush_directory_of(const std::filesystem::path& path) {
  const auto directory = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const int handle = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) return;
  ::fsync(handle);
  ::close(handle);
}

}  // namespace detail

/// Removes temporary files of killed processes. `prefix`: a directory and the beginning of a file
/// name; only files that match are considered. A file whose writer may still be alive is kept.
inline void remove_abandoned_temporaries(const std::filesystem::path& prefix) {
  namespace fs = std::filesystem;
  const fs::path directory = prefix.has_parent_path() ? prefix.parent_path() : fs::path(".");
  const std::string start = prefix.filename().string();
  std::error_code fault;
  for (fs::directory_iterator entry(directory, fault), end; !fault && entry != end;
       entry.increment(fault)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    if (name.starts_with(start) && detail::is_abandoned(name)) fs::remove(entry->path(), ignored);
  }
}

namespace detail {

/// Why no file can take the place of what is at `path`; empty if one can. Only a file may be
/// replaced: a rename would take the place of a device, too.
inline std::string why_not_replaceable(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto kind = std::filesystem::status(path, ignored).type();
  if (kind == std::filesystem::file_type::directory) return "it is a directory";
  const bool free = kind == std::filesystem::file_type::regular ||
                    kind == std::filesystem::file_type::not_found ||
                    kind == std::filesystem::file_type::none;
  return free ? "" : "it is not a file";
}

}  // namespace detail

/// Why `path` cannot be written; empty if it can. If directories of `path` are missing, checks
/// whether the first missing one could be created. Creates a file as a test, because permissions
/// alone do not tell: the disk may be full or read-only.
inline std::string why_not_writable(std::filesystem::path path) {
  if (std::string why = detail::why_not_replaceable(path); !why.empty()) return why;
  std::error_code ignored;
  while (path.has_parent_path() && path.parent_path() != path &&
         !std::filesystem::exists(path.parent_path(), ignored)) {
    path = path.parent_path();
  }
  const auto trial = detail::temporary_name(path);
  const int handle = ::open(trial.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (handle < 0) return std::generic_category().message(errno);
  ::close(handle);
  ::unlink(trial.c_str());
  return {};
}

/// Creates the missing directories of `path`. Failures are ignored, since writing `path` will fail
/// then and say why.
inline void make_directories_of(const std::filesystem::path& path) {
  std::error_code ignored;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), ignored);
}

/// A file being written under a temporary name in the same directory. `commit` renames it, which
/// atomically replaces a file of that name. Without `commit`, the temporary file is removed. Not
/// copyable.
class AtomicFile {
 public:
  /// Throws Error (Fault::checkpoint) if no file can be created, or something else than a file is
  /// there.
  explicit AtomicFile(std::filesystem::path path)
      : path_(std::move(path)), temporary_(detail::temporary_name(path_)) {
    if (const auto why = detail::why_not_replaceable(path_); !why.empty()) refuse(why);
    handle_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (handle_ < 0) refuse(std::generic_category().message(errno));
  }
  ~AtomicFile() {
    if (handle_ >= 0) ::close(handle_);
    if (!committed_) ::unlink(temporary_.c_str());
  }
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends `bytes` bytes. Throws Error (Fault::checkpoint) if that fails, on a full disk for
  /// example; then the temporary file is gone.
  void write(const void* data, std::size_t bytes) {
    constexpr std::size_t most_at_once = std::size_t{32} << 20;
    const char* next = static_cast<const char*>(data);
    while (bytes > 0) {
      const ::ssize_t written = ::write(handle_, next, std::min(bytes, most_at_once));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail(written < 0 ? errno : EIO);
      next += written;
      bytes -= static_cast<std::size_t>(written);
      if (bytes > 0) start_flushing();
    }
  }

  /// Replaces the first `bytes` bytes, which must have been written. Throws as `write` does.
  void rewrite(const void* data, std::size_t bytes) {
    if (::pwrite(handle_, data, bytes, 0) != static_cast<::ssize_t>(bytes)) fail(errno);
  }

  /// Gives the file its name. `durable`: flushes the file and its directory, so that both are on
  /// the disk when this returns. Throws Error (Fault::checkpoint) if that fails; then an existing
  /// file of that name is untouched.
  void commit(bool durable = true) {
    if (durable && ::fsync(handle_) != 0) fail(errno);
    if (::close(std::exchange(handle_, -1)) != 0) fail(errno);
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
    committed_ = true;
    if (durable) detail::flush_directory_of(path_);
  }

 private:
  /// Lets the system write to the disk what it has of a large file, so that the disk does not wait
  /// for `commit`.
  void start_flushing() const {
#if defined(__linux__)
    (void)::sync_file_range(handle_, 0, 0, SYNC_FILE_RANGE_WRITE);
#endif
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Fault::checkpoint, quote(path_.string()) + " cannot be written: " + why);
  }
  /// Removes the temporary file and throws. It is not left to the destructor, because a program
  /// that catches the error may look at the directory while this object still exists.
  [[noreturn]] void fail(int code) {
    if (handle_ >= 0) ::close(std::exchange(handle_, -1));
    ::unlink(temporary_.c_str());
    refuse(std::generic_category().message(code));
  }

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int handle_ = -1;
  bool committed_ = false;
};

}  // namespace pvm::inline v0::io
