// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Compares the frames that the kernel for a video's pictures makes on the emulated device with
// those that OpenCV makes, both from the same pictures decoded by FFmpeg.

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
}

#include <pvm/io/video.hpp>

#include "../io_helpers.hpp"
#include "../oriented_files.hpp"
#include "picture.hpp"

using namespace pvm_test;

namespace {

struct Free {
  void operator()(AVFormatContext* p) const { avformat_close_input(&p); }
  void operator()(AVCodecContext* p) const { avcodec_free_context(&p); }
  void operator()(AVPacket* p) const { av_packet_free(&p); }
  void operator()(AVFrame* p) const { av_frame_free(&p); }
};

/// Calls visit(const AVFrame&) for every picture of the file's first stream.
template <class Visit>
void decode(const std::filesystem::path& path, Visit visit) {
  AVFormatContext* opened = nullptr;
  if (avformat_open_input(&opened, path.c_str(), nullptr, nullptr) < 0) {
    throw std::runtime_error("avformat_open_input");
  }
  const std::unique_ptr<AVFormatContext, Free> format(opened);
  if (avformat_find_stream_info(opened, nullptr) < 0) throw std::runtime_error("no streams");
  const AVCodecParameters& parameters = *opened->streams[0]->codecpar;
  const AVCodec* const codec = avcodec_find_decoder(parameters.codec_id);
  const std::unique_ptr<AVCodecContext, Free> context(avcodec_alloc_context3(codec));
  if (avcodec_parameters_to_context(context.get(), &parameters) < 0 ||
      avcodec_open2(context.get(), codec, nullptr) < 0) {
    throw std::runtime_error("avcodec_open2");
  }
  const std::unique_ptr<AVPacket, Free> packet(av_packet_alloc());
  const std::unique_ptr<AVFrame, Free> frame(av_frame_alloc());
  const auto send = [&](const AVPacket* next) {
    if (avcodec_send_packet(context.get(), next) < 0) throw std::runtime_error("refused");
    while (avcodec_receive_frame(context.get(), frame.get()) == 0) visit(*frame);
  };
  while (av_read_frame(opened, packet.get()) == 0) {
    if (packet->stream_index == 0) send(packet.get());
    av_packet_unref(packet.get());
  }
  send(nullptr);
}

/// The picture in NV12, the layout in which NVDEC delivers it.
struct Planes {
  Bytes luma, chroma;
  VideoPicture picture;

  explicit Planes(const AVFrame& frame) {
    const auto plane = [&](int p, int x, int y) {
      return frame.data[p][y * frame.linesize[p] + x];
    };
    for (int y = 0; y < frame.height; ++y) {
      for (int x = 0; x < frame.width; ++x) luma.push_back(plane(0, x, y));
    }
    for (int y = 0; y < frame.height / 2; ++y) {
      for (int x = 0; x < frame.width / 2; ++x) {
        chroma.push_back(plane(1, x, y));
        chroma.push_back(plane(2, x, y));
      }
    }
    picture = {luma, chroma, frame.width, frame.height, frame.format == AV_PIX_FMT_YUVJ420P, {}};
  }
};

}  // namespace

TEST_CASE("the kernel makes OpenCV's frames of a video's pictures, within a grey level") {
  const std::string clip = GENERATE("closed.mp4", "full.mp4", "hevc.mp4", "vp9.mkv");
  const std::filesystem::path path = std::filesystem::path(PVM_CLIPS) / clip;
  for (const io::FrameShape shape : {io::FrameShape{60, 60, 3}, io::FrameShape{96, 80, 1},
                                     io::FrameShape{20, 20, 4}, io::FrameShape{20, 20, 2}}) {
    io::Video video(path);
    int frames = 0, most = 0;
    decode(path, [&](const AVFrame& picture) {
      if (++frames > 10) return;
      Bytes pixels(shape.size());
      make_frame_emulated(Planes(picture).picture, shape, pixels);
      const Frame expected = read(video, shape);
      for (std::size_t i = 0; i < pixels.size(); ++i) {
        most = std::max(most, std::abs(pixels[i] - expected.pixels[i]));
      }
    });
    INFO(clip << ", " << shape.channels << " channels");
    CHECK(frames > 10);
    CHECK(most <= 1);
  }
}

TEST_CASE("the kernel turns a video's pictures as the CPU does") {
  const TempDir dir;
  const std::filesystem::path path = dir / "turned.mp4";
  for (unsigned number = 1; number <= 8; ++number) {
    write_file(path,
               turned_mp4(read_file(std::filesystem::path(PVM_CLIPS) / "closed.mp4"), number));
    io::Video video(path);
    REQUIRE(video.orientation() == io::orientation_of_exif(number));
    const io::FrameShape shape{60, 40, 3};
    int frames = 0, most = 0;
    decode(path, [&](const AVFrame& picture) {
      if (++frames > 2) return;
      Bytes pixels(shape.size());
      Planes planes(picture);
      planes.picture.orientation = video.orientation();
      make_frame_emulated(planes.picture, shape, pixels);
      const Frame expected = read(video, shape);
      for (std::size_t i = 0; i < pixels.size(); ++i) {
        most = std::max(most, std::abs(pixels[i] - expected.pixels[i]));
      }
    });
    INFO("orientation " << number);
    CHECK(frames > 2);
    CHECK(most <= 1);
  }
}
