// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Compares pictures decoded on a GPU with the same pictures decoded on the CPU. Without a GPU the
// test cases print SKIPPED.

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include <pvm/io/deal.hpp>
#include <pvm/io/gpu/pictures.hpp>
#include <pvm/io/image_dir.hpp>
#include <pvm/io/open.hpp>
#include <pvm/io/prefetch.hpp>
#include <pvm/io/synthetic.hpp>
#include <pvm/io/zip.hpp>

#include "gpu_helpers.hpp"
#include "io_helpers.hpp"

using namespace pvm_test;

namespace {

/// A textured scene with a ball, and some grain.
cv::Mat scene(int frame, int width, int height) {
  cv::Mat drawn(height, width, CV_8UC3);
  io::Synthetic source({.seed = 5, .frames = 50});
  source.seek({0, static_cast<std::uint64_t>(frame % 50), 0});
  source.next({height, width, 3}, {drawn.data, drawn.total() * drawn.elemSize()});
  cv::Mat grain(height, width, CV_8UC3);
  cv::setRNGSeed(frame + 1);
  cv::randn(grain, 10, 4);
  return drawn + grain;
}

Bytes jpeg_of(const cv::Mat& drawn, int quality = 90) {
  Bytes bytes;
  cv::imencode(".jpg", drawn, bytes, {cv::IMWRITE_JPEG_QUALITY, quality});
  return bytes;
}

}  // namespace

TEST_CASE("the GPU's frames are the CPU's within 2 grey levels", "[gpu]") {
  if (skip_without_gpu()) return;
  const TempDir dir;
  const std::vector<std::pair<int, int>> sizes = {{640, 480}, {641, 479}, {320, 240},
                                                  {63, 49},   {48, 40},   {1280, 720}};
  for (const auto& [width, height] : sizes) {
    Entries entries;
    for (int i = 0; i < 20; ++i) {
      const cv::Mat drawn = scene(i, width, height);
      cv::Mat grey;
      cv::cvtColor(drawn, grey, cv::COLOR_BGR2GRAY);
      entries.emplace_back(std::to_string(i) + ".jpg", jpeg_of(i % 5 == 4 ? grey : drawn, 70 + i));
    }
    write_zip(dir / "a.zip", entries);
    for (const io::FrameShape shape : {io::FrameShape{60, 60, 3}, io::FrameShape{96, 80, 1},
                                       io::FrameShape{20, 20, 4}, io::FrameShape{20, 20, 2}}) {
      io::Zip cpu(dir / "a.zip");
      io::GpuPictures<io::ZipStore> gpu(dir / "a.zip");
      const Difference d = difference(read_many(gpu, 50, shape), read_many(cpu, 50, shape));
      INFO(width << " x " << height << ", " << shape.channels << " channels: most " << d.most
                 << ", above 2: " << 100 * d.share_above_2 << " %");
      std::printf("%d x %d, %d channels: at most %d, above 2: %.4f %%\n", width, height,
                  shape.channels, d.most, 100 * d.share_above_2);
      CHECK(d.share_above_2 <= 0.001);
      CHECK(gpu.position() == cpu.position());
    }
  }
}

TEST_CASE("what a GPU cannot decode the CPU does, or names it", "[gpu]") {
  if (skip_without_gpu()) return;
  const TempDir dir;
  const Messages messages;
  Entries entries;
  for (int i = 0; i < 90; ++i) {
    const cv::Mat drawn = picture(i, 64, 48);
    Bytes bytes = jpeg_of(drawn);
    if (i % 10 == 3) bytes = cut(bytes, 0.6);
    if (i % 10 == 5) cv::imencode(".png", drawn, bytes);
    if (i % 10 == 7) {
      cv::imencode(".jpg", drawn, bytes, {cv::IMWRITE_JPEG_PROGRESSIVE, 1});
    }
    if (i % 10 == 9) bytes = bytes_of("text");
    entries.emplace_back(std::to_string(i) + ".jpg", bytes);
  }
  write_zip(dir / "a.zip", entries);
  io::Zip cpu(dir / "a.zip");
  io::GpuPictures<io::ZipStore> gpu(dir / "a.zip");
  const auto a = read_many(gpu, 200);
  const auto b = read_many(cpu, 200);
  CHECK(difference(a, b).share_above_2 <= 0.001);
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i].starts == b[i].starts);
  CHECK(gpu.skipped() == 18);
  CHECK(cpu.skipped() == 18);
  CHECK(messages.count("is skipped") == 36);
  CHECK(gpu.position() == cpu.position());
  check_resume([&] { return io::GpuPictures<io::ZipStore>(dir / "a.zip"); }, 30);
}

TEST_CASE("a damaged scan is read on the GPU path as on the CPU", "[gpu]") {
  if (skip_without_gpu()) return;
  const TempDir dir;
  const Messages messages;
  Entries entries;
  for (int i = 0; i < 70; ++i) {
    Bytes bytes = jpeg_of(picture(i, 64, 48));
    if (i == 20) std::fill(bytes.end() - 200, bytes.end() - 60, std::uint8_t{0});
    entries.emplace_back(std::to_string(i) + ".jpg", bytes);
  }
  write_zip(dir / "a.zip", entries);
  io::Zip cpu(dir / "a.zip");
  io::GpuPictures<io::ZipStore> gpu(dir / "a.zip");
  auto a = read_many(gpu, 140);
  auto b = read_many(cpu, 140);
  CHECK(gpu.position() == cpu.position());  // nothing is lost beside it
  for (const std::size_t damaged : {90U, 20U}) {
    a.erase(a.begin() + static_cast<std::ptrdiff_t>(damaged));
    b.erase(b.begin() + static_cast<std::ptrdiff_t>(damaged));
  }
  CHECK(difference(a, b).share_above_2 <= 0.001);
}

TEST_CASE("readers of one file share the GPU's decoder and its frames", "[gpu]") {
  if (skip_without_gpu()) return;
  const TempDir dir;
  constexpr std::size_t frames = 640, streams = 64;
  Entries entries;
  for (std::size_t i = 0; i < frames; ++i) {
    entries.emplace_back(std::to_string(i) + ".jpg", jpeg_of(scene(static_cast<int>(i), 96, 64)));
  }
  write_zip(dir / "a.zip", entries);
  io::Zip cpu(dir / "a.zip");
  const auto wanted = read_many(cpu, static_cast<int>(frames));
  auto readers = io::deal({io::opener((dir / "a.zip").string(), io::Decode::gpu)}, streams);
  for (auto& reader : readers) reader.expect_once(true);
  std::vector<Frame> got(frames);
  for (std::size_t i = 0; i < frames / streams; ++i) {
    for (std::size_t k = 0; k < streams; ++k) got[k * frames / streams + i] = read(readers[k]);
  }
  CHECK(difference(got, wanted).share_above_2 <= 0.001);
  std::uint64_t decoded = 0;
  for (auto& reader : readers) decoded += reader.usage().at(1).frames;
  CHECK(decoded == frames);
}

TEST_CASE("open_source decodes on the GPU unless told not to", "[gpu]") {
  if (skip_without_gpu()) return;
  const TempDir dir;
  write_zip(dir / "a.zip", numbered(5));
  const std::string path = (dir / "a.zip").string();
  CHECK(io::open_source(path).replay_id() == "GPU file " + path);
  CHECK(io::open_source(path, io::Decode::gpu).replay_id() == "GPU file " + path);
  CHECK(io::open_source(path, io::Decode::cpu).replay_id() == "file " + path);
}
