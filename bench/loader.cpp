// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Measures how many frames per second can be read from files, for each of the ways to read them.
///     bench_loader [FILE ...] [--side N] [--seconds N] [--json OUT]
///
/// Without a file, zips of JPEGs and Motion JPEG videos of four sizes are generated.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <opencv2/videoio.hpp>

#include <pvm/core/printable.hpp>
#include <pvm/io/open.hpp>
#include <pvm/io/prefetch.hpp>

#include "command_line.hpp"
#include "generated.hpp"

namespace {

using namespace pvm_bench;

namespace io = pvm::io;
namespace fs = std::filesystem;

struct Options {
  std::vector<std::string> files;
  int side = 60;
  double seconds = 2;
  std::string json;
};

/// A way to read files. `open` opens a path and returns a function that reads the next frame, or
/// null if this way cannot read the file.
struct Way {
  std::string name;
  std::function<std::function<void()>(const std::string&)> open;
};

struct Measured {
  std::string way;
  double frames_per_second = 0;
  double videos_per_second = 0;  ///< whole passes per second
};

bool is_video(const std::string& path) {
  return !fs::is_directory(path) && !io::is_zip_name(path) && !io::has_zip_magic(path);
}

/// Whether an open source decodes on a GPU.
bool is_gpu(const io::AnySource& source) { return source.replay_id().starts_with("GPU "); }

/// The baseline without this library's decoders: decodes and resizes one picture after another with
/// OpenCV.
template <class Store>
std::function<void()> plain_pictures(const std::string& path, io::FrameShape shape) {
  struct State {
    Store store;
    std::vector<io::StoredFile> files;
    std::vector<std::uint8_t> bytes, pixels;
    std::size_t next = 0;
  };
  auto state = std::make_shared<State>(State{Store(path), {}, {}, {}});
  for (auto& file : state->store.files()) {
    if (io::is_image_name(file.name)) state->files.push_back(std::move(file));
  }
  return [state, shape] {
    const auto& file = state->files[state->next++ % state->files.size()];
    if (!state->store.read(file, state->bytes)) return;
    const cv::Mat picture = cv::imdecode(state->bytes, cv::IMREAD_COLOR);
    cv::Mat frame;
    cv::resize(picture, frame, {shape.width, shape.height}, 0, 0, cv::INTER_CUBIC);
  };
}

/// The same for videos.
std::function<void()> plain_video(const std::string& path, io::FrameShape shape) {
  ::setenv("OPENCV_FFMPEG_CAPTURE_OPTIONS", "threads;1", 1);
  auto capture = std::make_shared<cv::VideoCapture>(path);
  return [capture, path, shape] {
    cv::Mat picture, frame;
    if (!capture->read(picture)) {
      ::setenv("OPENCV_FFMPEG_CAPTURE_OPTIONS", "threads;1", 1);
      capture->open(path);
      capture->read(picture);
    }
    cv::resize(picture, frame, {shape.width, shape.height}, 0, 0, cv::INTER_CUBIC);
  };
}

template <class S>
std::function<void()> frames_of(S source, io::FrameShape shape) {
  auto held = std::make_shared<S>(std::move(source));
  auto pixels = std::make_shared<std::vector<std::uint8_t>>(shape.size());
  return [held, pixels, shape] { held->next(shape, *pixels); };
}

/// Makes a source read ahead, as `io::deal` does.
io::AnySource ahead_of(io::AnySource source) {
  constexpr std::size_t frames = 128;
  if (source.read_ahead(frames)) return source;
  return io::Prefetch(std::move(source), frames);
}

std::vector<Way> ways(io::FrameShape shape) {
  std::vector<Way> all;
  all.push_back({"OpenCV, one thread", [shape](const std::string& path) {
                   if (is_video(path)) return plain_video(path, shape);
                   return fs::is_directory(path) ? plain_pictures<io::DirectoryStore>(path, shape)
                                                 : plain_pictures<io::ZipStore>(path, shape);
                 }});
  all.push_back({"in turn", [shape](const std::string& path) {
                   ::unsetenv("OPENCV_FFMPEG_CAPTURE_OPTIONS");
                   if (is_video(path)) return frames_of(io::Video(path), shape);
                   return fs::is_directory(path) ? frames_of(io::ImageDirectory(path), shape)
                                                 : frames_of(io::Zip(path), shape);
                 }});
  all.push_back({"cpu", [shape](const std::string& path) {
                   ::unsetenv("OPENCV_FFMPEG_CAPTURE_OPTIONS");
                   return frames_of(ahead_of(io::open_source(path, io::Decode::cpu)), shape);
                 }});
  if (io::GpuDecoding::pictures || io::GpuDecoding::videos) {
    all.push_back({"gpu", [shape](const std::string& path) -> std::function<void()> {
                     auto source = io::open_source(path, io::Decode::gpu);
                     if (!is_gpu(source)) return nullptr;
                     return frames_of(ahead_of(std::move(source)), shape);
                   }});
  }
  return all;
}

/// Frames per second, measured over `seconds` after a warm-up that fills queues and caches.
double measure(const std::function<void()>& next, double seconds) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < 50; ++i) next();
  const auto start = Clock::now();
  std::chrono::duration<double> passed{};
  std::uint64_t frames = 0;
  while (passed.count() < seconds) {
    for (int i = 0; i < 10; ++i) next();
    frames += 10;
    passed = Clock::now() - start;
  }
  return static_cast<double>(frames) / passed.count();
}

std::uint64_t frames_in(const std::string& path) {
  auto source = io::open_source(path);
  return source.count_frames().value_or(0);
}

/// Generates a zip and a video of each size in `directory`; returns their paths.
std::vector<std::string> generate(const fs::path& directory) {
  constexpr int frames = 100;
  // More than are read ahead, so that each is decoded again on every pass.
  constexpr std::size_t files = 600;
  std::vector<std::string> paths;
  for (const cv::Size size : {cv::Size{320, 240}, {640, 480}, {1280, 720}, {1920, 1080}}) {
    const std::string name = std::to_string(size.width) + "x" + std::to_string(size.height);
    const fs::path pictures = directory / ("pictures_" + name);
    fs::create_directories(pictures);
    cv::VideoWriter video((directory / (name + ".avi")).string(),
                          cv::VideoWriter::fourcc('M', 'J', 'P', 'G'), 25, size);
    std::vector<std::vector<std::uint8_t>> jpegs;
    for (int i = 0; i < frames; ++i) {
      const cv::Mat picture = generated_picture(i, size);
      jpegs.emplace_back();
      cv::imencode(".jpg", picture, jpegs.back());
      if (video.isOpened()) video.write(picture);
    }
    const std::string zip = (directory / (name + ".zip")).string();
    write_jpegs(zip, pictures, jpegs, files);
    paths.push_back(zip);
    if (video.isOpened()) paths.push_back((directory / (name + ".avi")).string());
  }
  return paths;
}

/// Which way `open_source` chooses by default, and why.
std::string choice(const std::string& path) {
  if (is_gpu(io::open_source(path))) {
    return is_video(path) ? "gpu: there is one, and its decoders take this video side by side"
                          : "gpu: there is one, and nvJPEG decodes pictures by the batch";
  }
  if (is_video(path)) return "cpu: a video is decoded in order, on one thread that reads ahead";
  return "cpu: pictures are decoded on " +
         std::to_string(std::max(1U, std::thread::hardware_concurrency())) + " threads";
}

nlohmann::ordered_json run(const std::string& path, const Options& options) {
  const io::FrameShape shape{options.side, options.side, 3};
  const auto frames = frames_in(path);
  std::vector<Measured> results;
  for (const Way& way : ways(shape)) {
    const auto next = way.open(path);
    if (!next) continue;  // this way cannot read the file
    const double rate = measure(next, options.seconds);
    results.push_back({way.name, rate, frames > 0 ? rate / static_cast<double>(frames) : 0});
  }
  std::printf("%s: %llu frames\n", pvm::printable(fs::path(path).filename().string()).c_str(),
              static_cast<unsigned long long>(frames));
  nlohmann::ordered_json json{{"file", path}, {"frames", frames}, {"side", options.side}};
  for (const Measured& m : results) {
    const double factor = m.frames_per_second / results.front().frames_per_second;
    std::printf("  %-20s %10.0f frames/s %10.2f videos/s %8.2f x OpenCV\n", m.way.c_str(),
                m.frames_per_second, m.videos_per_second, factor);
    json["ways"].push_back({{"name", m.way},
                            {"frames_per_second", m.frames_per_second},
                            {"videos_per_second", m.videos_per_second},
                            {"times_opencv", factor}});
  }
  json["auto"] = choice(path);
  std::printf("  auto takes %s\n", choice(path).c_str());
  return json;
}

void describe(CLI::App& app, Options& options) {
  app.add_option("file", options.files,
                 "zips, directories of pictures, videos (default: generated)")
      ->check(CLI::ExistingPath);
  app.add_option("--side", options.side, "of the frames asked for (default 60, small.json's)")
      ->check(CLI::Range(1, 65'536));
  app.add_option("--seconds", options.seconds, "how long each way is measured (default 2)")
      ->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "the rates as JSON");
}

void run_all(Options options) {
  cv::setNumThreads(1);  // the library has its own threads, and the baseline is to use only one
  const Scratch scratch("pvm_bench_loader_");
  if (options.files.empty()) options.files = generate(scratch.path());
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const std::string& path : options.files) json.push_back(run(path, options));
  if (!options.json.empty()) std::ofstream(options.json) << json.dump(2) << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Frames a second out of files, by every way to read them", "bench_loader"};
  describe(app, options);
  return run_app(app, argc, argv, [&] { run_all(options); });
}
