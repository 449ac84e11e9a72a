// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Compares videos decoded on a GPU with the same videos decoded on the CPU. Without a GPU the test
// cases print SKIPPED.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <pvm/io/gpu/video.hpp>
#include <pvm/io/open.hpp>
#include <pvm/io/prefetch.hpp>
#include <pvm/io/video.hpp>

#include "gpu_helpers.hpp"
#include "io_helpers.hpp"

using namespace pvm_test;

namespace {

const std::filesystem::path clips = PVM_CLIPS;
constexpr io::FrameShape shape{.height = 60, .width = 60, .channels = 3};

/// The frames of a source until it fails or has delivered `most` frames.
struct Played {
  std::vector<Frame> frames;
  std::vector<io::Position> after;
  std::string failure;
};

template <class S>
Played play(S source, int most, const io::FrameShape& wanted = shape) {
  Played played;
  try {
    for (int i = 0; i < most; ++i) {
      played.frames.push_back(read(source, wanted));
      played.after.push_back(source.position());
    }
  } catch (const pvm::Error& error) {
    played.failure = error.what();
  }
  return played;
}

/// Checks that everything is the same except the values of the pixels.
void check_same_order(const Played& gpu, const Played& cpu) {
  CHECK(gpu.failure == cpu.failure);
  CHECK(gpu.after == cpu.after);
  REQUIRE(gpu.frames.size() == cpu.frames.size());
  for (std::size_t i = 0; i < gpu.frames.size(); ++i) {
    CHECK(gpu.frames[i].starts == cpu.frames[i].starts);
  }
}

void check_near(const Played& gpu, const Played& cpu, const std::string& what) {
  check_same_order(gpu, cpu);
  const Difference d = difference(gpu.frames, cpu.frames);
  std::printf("%s: %zu frames, at most %d, above 2: %.4f %%\n", what.c_str(), gpu.frames.size(),
              d.most, 100 * d.share_above_2);
  INFO(what << ": most " << d.most << ", above 2: " << 100 * d.share_above_2 << " %");
  CHECK(d.share_above_2 <= 0.001);
}

/// Bytes of the clip with some of its middle overwritten.
Bytes damaged(const std::string& clip) {
  Bytes bytes = read_file(clips / clip);
  const auto middle = bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 2);
  std::fill(middle, middle + 400, std::uint8_t{0x55});
  return bytes;
}

}  // namespace

TEST_CASE("the GPU's video frames are the CPU's within 2 grey levels", "[gpu]") {
  if (skip_without_gpu()) return;
  const Messages messages;
  for (const char* clip : {"closed.mp4", "open.mkv", "full.mp4", "hevc.mp4", "vp9.mkv"}) {
    for (const io::FrameShape wanted : {shape, io::FrameShape{96, 80, 1}}) {
      const auto cpu = play(io::Video(clips / clip), 330, wanted);
      for (const std::size_t decoders : {1U, 3U}) {
        const auto gpu = play(io::GpuVideo(clips / clip, decoders), 330, wanted);
        check_near(gpu, cpu, std::string(clip) + ", " + std::to_string(decoders) + " decoders");
      }
    }
  }
  CHECK(messages.count("decoded on the CPU") == 0);
}

TEST_CASE("how many decoders a video has changes nothing", "[gpu]") {
  if (skip_without_gpu()) return;
  for (const char* clip : {"closed.mp4", "open.mkv", "hevc.mp4"}) {
    const auto one = play(io::GpuVideo(clips / clip, 1), 900);
    CHECK(play(io::GpuVideo(clips / clip, 4), 900).frames == one.frames);
  }
}

TEST_CASE("a video continues wherever it is told to on the GPU", "[gpu]") {
  if (skip_without_gpu()) return;
  check_resume([&] { return io::GpuVideo(clips / "full.mp4", 2); }, 12);
  io::GpuVideo video(clips / "full.mp4");
  CHECK_FALSE(video.length());
  const Frame first = read(video, shape);
  read_many(video, 9, shape);
  const Frame eleventh = read(video, shape);
  video.seek({0, 10, 3});
  CHECK(read(video, shape).pixels == eleventh.pixels);
  CHECK(video.position() == io::Position{0, 11, 3});
  video.seek({0, 0, 4});
  CHECK(read(video, shape) == first);
  CHECK(video.count_frames() == 50);
  CHECK(contains(failure(pvm::Fault::source, [&] { video.seek({0, 50, 0}); }), "50 frames"));

  io::GpuVideo beyond(clips / "full.mp4");
  beyond.seek({0, 70, 0});  // it is not known yet how many there are
  CHECK(contains(failure(pvm::Fault::source, [&] { read(beyond, shape); }), "50 frames"));
}

TEST_CASE("a video that changes its size ends on the GPU as on the CPU", "[gpu]") {
  if (skip_without_gpu()) return;
  const Messages messages;
  const auto gpu = play(io::GpuVideo(clips / "sizes.ts"), 200);
  CHECK(messages.count("decoded on the CPU") == 1);
  const auto cpu = play(io::Video(clips / "sizes.ts"), 200);
  CHECK(contains(cpu.failure, "changes its size"));
  check_near(gpu, cpu, "sizes.ts");
}

TEST_CASE("a damaged video has the same frames on the GPU", "[gpu]") {
  if (skip_without_gpu()) return;
  const TempDir dir;
  const Messages messages;
  for (const std::string clip : {"closed.mp4", "open.mkv", "sizes.ts"}) {
    write_file(dir / clip, damaged(clip));
    const auto gpu = play(io::GpuVideo(dir / clip), 170);
    const auto cpu = play(io::Video(dir / clip), 170);
    check_same_order(gpu, cpu);
    const Difference d = difference(gpu.frames, cpu.frames);
    std::printf("damaged %s: at most %d, above 2: %.4f %%\n", clip.c_str(), d.most,
                100 * d.share_above_2);
    const std::string half = "half_" + clip;
    write_file(dir / half, cut(read_file(clips / clip), 0.5));
    if (clip != "closed.mp4") {  // an mp4 without its end is no video
      check_same_order(play(io::GpuVideo(dir / half), 170), play(io::Video(dir / half), 170));
    }
  }
}

TEST_CASE("what is no video for the GPU is the CPU's", "[gpu]") {
  if (skip_without_gpu()) return;
  const TempDir dir;
  const Messages messages;
  write_video(dir / "a.avi", 7);
  const std::string path = (dir / "a.avi").string();
  CHECK(io::open_source(path, io::Decode::gpu).replay_id() == "file " + path);
  CHECK(io::open_source(path).replay_id() == "file " + path);
  CHECK(messages.count("videos are decoded on the CPU") == 1);
  CHECK(messages.count("mjpeg") == 1);
  const std::string clip = (clips / "closed.mp4").string();
  CHECK(io::open_source(clip).replay_id() == "GPU file " + clip);
  CHECK(io::open_source(clip, io::Decode::cpu).replay_id() == "file " + clip);

  write_file(dir / "sound.wav", silence());
  const auto sentence = [&](auto open) { return failure(pvm::Fault::source, open); };
  CHECK(sentence([&] { io::GpuVideo(dir / "sound.wav"); }) ==
        sentence([&] { io::Video(dir / "sound.wav"); }));
}

TEST_CASE("a GPU's video is read ahead, and left in the middle", "[gpu]") {
  if (skip_without_gpu()) return;
  const auto direct = play(io::GpuVideo(clips / "closed.mp4"), 100);
  const auto ahead = play(io::Prefetch(io::GpuVideo(clips / "closed.mp4"), 64), 100);
  CHECK(ahead.frames == direct.frames);
  for (int i = 0; i < 5; ++i) io::GpuVideo(clips / "closed.mp4", 8);  // opened and closed
}
