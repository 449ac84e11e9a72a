// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Generates the pictures that benchmarks read if no file is given.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include <unistd.h>

#include <opencv2/core.hpp>

#include <pvm/io/synthetic.hpp>
#include <pvm/io/write_zip.hpp>

namespace pvm_bench {

/// The path of a temporary directory for this process, which is removed with this object. The
/// caller creates it.
class Scratch {
 public:
  explicit Scratch(const std::string& prefix)
      : path_(std::filesystem::temp_directory_path() / (prefix + std::to_string(::getpid()))) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// A generated frame with noise added, so that JPEGs of it are about as large as a camera's.
inline cv::Mat generated_picture(int frame, cv::Size size) {
  cv::Mat picture(size, CV_8UC3);
  pvm::io::Synthetic source({.seed = 7, .frames = 100});
  source.seek({0, static_cast<std::uint64_t>(frame % 100), 0});
  source.next({size.height, size.width, 3}, {picture.data, picture.total() * picture.elemSize()});
  cv::Mat grain(size, CV_8UC3);
  cv::setRNGSeed(frame);
  cv::randn(grain, 12, 4);
  picture += grain;
  return picture;
}

/// Writes `count` entries 0.jpg, 1.jpg, ... into a zip; entry i is jpegs[i % jpegs.size()]. Also
/// writes each element of `jpegs` as a file into the directory `files`.
inline void write_jpegs(const std::string& zip, const std::filesystem::path& files,
                        const std::vector<std::vector<std::uint8_t>>& jpegs, std::size_t count) {
  pvm::io::detail::ZipWriter archive(zip);
  for (std::size_t i = 0; i < count; ++i) {
    const auto& jpeg = jpegs[i % jpegs.size()];
    const auto file = files / (std::to_string(i % jpegs.size()) + ".jpg");
    if (i < jpegs.size()) {
      std::ofstream(file, std::ios::binary)
          .write(reinterpret_cast<const char*>(jpeg.data()),
                 static_cast<std::streamsize>(jpeg.size()));
    }
    archive.add_part(std::to_string(i) + ".jpg", file, 0, jpeg.size());
  }
  archive.close();
}

}  // namespace pvm_bench
