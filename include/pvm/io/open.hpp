// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Opens frame sources from what a user names: a path, a camera, a data set.

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/open_fault.hpp>
#include <pvm/io/any_source.hpp>
#include <pvm/io/camera.hpp>
#include <pvm/io/file_names.hpp>
#include <pvm/io/image_dir.hpp>
#include <pvm/io/natural_order.hpp>
#include <pvm/io/picture_reader.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/synthetic.hpp>
#include <pvm/io/video.hpp>
#include <pvm/io/zip.hpp>

#if defined(__CUDACC__) && defined(PVM_NVJPEG)
#include <pvm/io/gpu/pictures.hpp>
#endif
#if defined(__CUDACC__) && defined(PVM_NVDEC)
#include <pvm/io/gpu/video.hpp>
#endif

namespace pvm::inline v0::io {

/// Where pictures and videos are decoded. `automatic` and `gpu` use a GPU if the program was built
/// for it and there is one. Whatever cannot be decoded there is decoded on the CPU, and one line in
/// the log says why; only `gpu` says so if the program was built without GPU decoding.
enum class Decode { automatic, cpu, gpu };

/// Which GPU decoding is compiled in. `open_source` has it as a template parameter, so that a
/// program may link object files that were compiled with different GPU decoding (one definition
/// rule). Decoders need nvcc; files that another compiler compiles can use those of a file that
/// nvcc compiles, which instantiates `open_source`, if PVM_GPU_PICTURES and PVM_GPU_VIDEOS
/// say which these are (0 or 1).
template <bool Pictures, bool Videos>
struct GpuDecoders {
  static constexpr bool pictures = Pictures;
  static constexpr bool videos = Videos;
};
#if defined(PVM_GPU_PICTURES)  // and PVM_GPU_VIDEOS: whether another file of the program has them
using GpuDecoding = GpuDecoders<PVM_GPU_PICTURES != 0, PVM_GPU_VIDEOS != 0>;
#elif defined(__CUDACC__) && defined(PVM_NVJPEG) && defined(PVM_NVDEC)
using GpuDecoding = GpuDecoders<true, true>;
#elif defined(__CUDACC__) && defined(PVM_NVJPEG)
using GpuDecoding = GpuDecoders<true, false>;
#elif defined(__CUDACC__) && defined(PVM_NVDEC)
using GpuDecoding = GpuDecoders<false, true>;
#else
using GpuDecoding = GpuDecoders<false, false>;
#endif

namespace detail {

/// Parses all of `text` as a decimal number; false if it is none.
template <class Number>
bool parse_whole(std::string_view text, Number& number) {
  const char* const last = text.data() + text.size();
  const auto [end, fault] = std::from_chars(text.data(), last, number);
  return fault == std::errc{} && end == last;
}

inline AnySource open_synthetic(std::string_view seed) {
  SyntheticOptions options;
  if (!seed.empty() && !parse_whole(seed.substr(1), options.seed)) {
    throw Error(Fault::usage, pvm::quote("synthetic" + std::string(seed)) +
                                  " has no number for a seed; write it as synthetic:7");
  }
  return Synthetic(options);
}

/// Opens camera `number`; `path` is that number as the user wrote it. If there is no such camera
/// but a file of that name, the error says how to name the file.
inline AnySource open_camera(int number, const std::string& path) {
  try {
    return Camera(number);
  } catch (const Error& error) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) throw;
    throw Error(error.fault(), std::string(error.what()) + " (The file or directory of that name " +
                                   "is " + pvm::quote("./" + path) + ".)");
  }
}

inline bool has_images(const std::filesystem::path& directory) {
  std::error_code fault;
  for (std::filesystem::directory_iterator entry(directory, fault), end; !fault && entry != end;
       entry.increment(fault)) {
    if (is_image_name(entry->path().filename().string())) return true;
  }
  return false;
}

/// The paths in `directory` for which `wanted(entry)` is true, in natural order. Throws
/// Fault::source if the directory cannot be read.
template <class Wanted>
std::vector<std::string> paths_in(const std::filesystem::path& directory, Wanted wanted) {
  std::vector<std::string> paths;
  std::error_code fault;
  for (std::filesystem::directory_iterator entry(directory, fault), end; !fault && entry != end;
       entry.increment(fault)) {
    if (wanted(*entry)) paths.push_back(entry->path().string());
  }
  if (fault) {
    throw Error(Fault::source, "the directory " + pvm::quote(directory.string()) +
                                   " cannot be read: " + fault.message());
  }
  std::sort(paths.begin(), paths.end(), natural_less);
  return paths;
}

inline bool is_sequence(const std::filesystem::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  std::error_code ignored;
  if (entry.is_directory(ignored)) return !is_litter(name) && has_images(entry.path());
  return is_zip_name(name) || is_video_name(name);
}

/// Logs a warning that `what` are decoded on the CPU, unless `warned` is set already: once for
/// each kind, however many files there are.
inline void warn_decoding_on_cpu(std::atomic<bool>& warned, const char* what,
                                 const std::string& why) {
  if (warned.exchange(true)) return;
  log(Severity::warning, std::string(what) + " are decoded on the CPU: " + why);
}
inline void warn_pictures_on_cpu(const std::string& why) {
  static std::atomic<bool> warned = false;
  warn_decoding_on_cpu(warned, "pictures", why);
}
inline void warn_videos_on_cpu(const std::string& why) {
  static std::atomic<bool> warned = false;
  warn_decoding_on_cpu(warned, "videos", why);
}

/// Opens a zip or a directory of pictures.
template <class Store, class Gpu>
AnySource open_pictures(const std::string& path, [[maybe_unused]] Decode decode) {
  if constexpr (Gpu::pictures) {
#if defined(__CUDACC__) && defined(PVM_NVJPEG)
    try {
      if (decode != Decode::cpu) return GpuPictures<Store>(path);
    } catch (const Error& error) {
      if (error.fault() != Fault::device) throw;
      warn_pictures_on_cpu(error.what());
    }
#endif
  } else if (decode == Decode::gpu) {
    warn_pictures_on_cpu("this program was built without nvJPEG");
  }
  return PictureReader<Store>(path);
}

/// Opens a video.
template <class Gpu>
AnySource open_video_source(const std::string& path, [[maybe_unused]] Decode decode) {
  if constexpr (Gpu::videos) {
#if defined(__CUDACC__) && defined(PVM_NVDEC)
    try {
      if (decode != Decode::cpu) return GpuVideo(path);
    } catch (const Error& error) {
      if (error.fault() != Fault::device) throw;
      warn_videos_on_cpu(error.what());
    }
#endif
  } else if (decode == Decode::gpu) {
    warn_videos_on_cpu("this program was built without FFmpeg and CUDA");
  }
  return Video(path);
}

}  // namespace detail

/// Whether `open_source` opens `path` as a collection of pictures: it is a directory, or a zip
/// archive by its content or name. Streams of one such collection share its decoder.
inline bool holds_pictures(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ||
         is_zip_name(std::filesystem::path(path).filename().string()) || has_zip_magic(path);
}

/// Opens what `path` names: `synthetic` or `synthetic:SEED` for generated frames; a number or
/// /dev/videoN for a camera; a directory of pictures; a zip archive (known by its content or name);
/// anything else is opened as a video. Throws Fault::source if it does not exist or cannot be read,
/// Fault::usage for a malformed seed.
template <class Gpu = GpuDecoding>
AnySource open_source(const std::string& path, Decode decode = Decode::automatic) {
  constexpr std::string_view synthetic = "synthetic";
  if (path == synthetic || path.starts_with("synthetic:")) {
    return detail::open_synthetic(std::string_view(path).substr(synthetic.size()));
  }
  int camera = 0;
  if (detail::parse_whole(path, camera) && camera >= 0) return detail::open_camera(camera, path);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw Error(Fault::source, pvm::quote(path) + " does not exist; name a zip, a video, a " +
                                   "directory of pictures, a camera, or synthetic");
  }
  if (path.starts_with("/dev/video")) return Camera(path);
  if (std::filesystem::is_fifo(path, ignored) || std::filesystem::is_socket(path, ignored)) {
    throw Error(Fault::source, pvm::quote(path) + " is a pipe, which cannot be played again; " +
                                   "write what comes from it to a file first");
  }
  if (const std::string why = why_not_readable(path); !why.empty()) {
    throw Error(Fault::source, pvm::quote(path) + " cannot be opened: " + why);
  }
  if (std::filesystem::is_directory(path, ignored)) {
    return detail::open_pictures<DirectoryStore, Gpu>(path, decode);
  }
  if (holds_pictures(path)) return detail::open_pictures<ZipStore, Gpu>(path, decode);
  return detail::open_video_source<Gpu>(path, decode);
}

#if defined(PVM_GPU_PICTURES)
extern template AnySource open_source<GpuDecoding>(const std::string&, Decode);
#endif

/// The paths that `path` stands for: a directory without pictures in it for the zips, videos and
/// directories of pictures in it, in natural order; anything else, and a directory with none of
/// these, for itself.
inline std::vector<std::string> sequences_in(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored) || detail::has_images(path)) return {path};
  auto paths = detail::paths_in(path, detail::is_sequence);
  if (paths.empty()) paths.push_back(path);
  return paths;
}

/// An opener that calls `open_source(path, decode)`, for `deal` and `Sequences`.
template <class Gpu = GpuDecoding>
Opener opener(std::string path, Decode decode = Decode::automatic) {
  return {[path, decode] { return open_source<Gpu>(path, decode); }, path};
}

/// The paths of the sequences of data set `name` in `directory` (empty: the current one), in
/// natural order. If DIRECTORY/NAME is a directory: the zips, videos and directories of pictures in
/// it, or the directory itself if it has none of these but holds pictures. If it is a file: that
/// file. Otherwise: the zips in DIRECTORY whose names begin with NAME. Throws Fault::source if
/// there are none or a directory cannot be read.
inline std::vector<std::string> find_dataset(const std::string& directory,
                                             const std::string& name) {
  const std::filesystem::path root = directory.empty() ? "." : directory;
  std::error_code ignored;
  if (!std::filesystem::is_directory(root, ignored)) {
    throw Error(Fault::source, pvm::quote(directory) + " is not a directory; data sets are " +
                                   "looked for in one");
  }
  const std::filesystem::path inside = name.empty() ? root : root / name;
  std::vector<std::string> paths;
  if (std::filesystem::is_directory(inside, ignored)) {
    paths = detail::paths_in(inside, detail::is_sequence);
    if (paths.empty() && detail::has_images(inside)) paths.push_back(inside.string());
  } else if (std::filesystem::exists(inside, ignored)) {
    paths.push_back(inside.string());
  } else {
    paths = detail::paths_in(root, [&name](const std::filesystem::directory_entry& entry) {
      const std::string file = entry.path().filename().string();
      return file.starts_with(name) && is_zip_name(file);
    });
  }
  if (paths.empty()) {
    throw Error(Fault::source, "no data set " + pvm::quote(name) + " in " + pvm::quote(directory) +
                                   ": neither a directory of that name with zips, videos or " +
                                   "directories of pictures, nor zips that begin with it");
  }
  return paths;
}

}  // namespace pvm::inline v0::io
