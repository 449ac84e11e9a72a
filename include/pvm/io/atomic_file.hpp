// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Files that appear whole or not at all.

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

/// What ends the name of a temporary file: who writes it, so that others can tell if he still does.
inline std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  std::string host = name;
  std::replace_if(
      host.begin(), host.end(), [](char c) { return c == '/' || c == '@'; }, '_');
  return host.substr(0, 64);
}

inline constexpr std::string_view temporary_ending = ".tmp";

inline std::filesystem::path temporary_name(const std::filesystem::path& path) {
  return path.string() + "." + std::to_string(::getpid()) + "@" + host_name() +
         std::string(temporary_ending);
}

/// Whether the writer of the temporary file `name` is known to be gone.
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

/// Flushes the directory of `path`, so that a rename in it outlives a power cut. File systems that
/// cannot are left alone.
inline void flush_directory_of(const std::filesystem::path& path) {
  const auto directory = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const int handle = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) return;
  ::fsync(handle);
  ::close(handle);
}

}  // namespace detail

/// Removes the temporary files of killed processes among those whose name starts with `prefix`
/// (a path and the start of a file name). A file whose writer may still live is kept.
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

/// Why `path` cannot be written, its directories included where they are not there yet; empty if it
/// can. Tries, because permissions alone do not tell: a disk may be full or read-only.
inline std::string why_not_writable(std::filesystem::path path) {
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

/// Makes the directories `path` lies in. Where that fails, writing `path` will say so.
inline void make_directories_of(const std::filesystem::path& path) {
  std::error_code ignored;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), ignored);
}

/// A file being written under a temporary name beside its own. `commit` gives it its name, in one
/// step and over whatever had that name; without it nothing stays behind. Not copyable.
class AtomicFile {
 public:
  /// Throws Error (Fault::checkpoint) where no file can be made.
  explicit AtomicFile(std::filesystem::path path)
      : path_(std::move(path)), temporary_(detail::temporary_name(path_)) {
    handle_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (handle_ < 0) refuse(errno);
  }
  ~AtomicFile() {
    if (handle_ >= 0) ::close(handle_);
    if (!committed_) ::unlink(temporary_.c_str());
  }
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Throws Error (Fault::checkpoint) where it cannot be written, on a full disk for example.
  void write(const void* data, std::size_t bytes) {
    constexpr std::size_t most_at_once = std::size_t{1} << 30;
    const char* next = static_cast<const char*>(data);
    while (bytes > 0) {
      const ::ssize_t written = ::write(handle_, next, std::min(bytes, most_at_once));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail(written < 0 ? errno : EIO);
      next += written;
      bytes -= static_cast<std::size_t>(written);
    }
  }

  /// Gives the file its name. `durable`: it and its name are on the disk when this returns. Throws
  /// Error (Fault::checkpoint); then the file that had the name before is untouched.
  void commit(bool durable = true) {
    if (durable && ::fsync(handle_) != 0) fail(errno);
    if (::close(std::exchange(handle_, -1)) != 0) fail(errno);
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
    committed_ = true;
    if (durable) detail::flush_directory_of(path_);
  }

 private:
  [[noreturn]] void refuse(int code) const {
    throw Error(Fault::checkpoint, quote(path_.string()) + " cannot be written: " +
                                       std::generic_category().message(code));
  }
  /// Here, not in the destructor, because the program may catch the error and look.
  [[noreturn]] void fail(int code) {
    if (handle_ >= 0) ::close(std::exchange(handle_, -1));
    ::unlink(temporary_.c_str());
    refuse(code);
  }

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int handle_ = -1;
  bool committed_ = false;
};

}  // namespace pvm::inline v0::io
