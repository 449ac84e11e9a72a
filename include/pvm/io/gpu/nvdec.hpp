// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Decodes a video on an NVIDIA GPU's hardware decoders (NVDEC) through FFmpeg. Must be compiled by
/// nvcc, in a program that links FFmpeg's libavformat, libavcodec and libavutil and defines
/// PVM_NVDEC.

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/hwcontext.h>
#include <libavutil/hwcontext_cuda.h>
}

#include <pvm/core/error.hpp>
#include <pvm/io/file_names.hpp>
#include <pvm/io/gpu/device_bytes.hpp>
#include <pvm/io/gpu/picture_kernel.cuh>
#include <pvm/io/nal_units.hpp>
#include <pvm/io/orientation.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0::io {

namespace detail {

struct FreeFfmpeg {
  void operator()(AVFormatContext* p) const noexcept { avformat_close_input(&p); }
  void operator()(AVCodecContext* p) const noexcept { avcodec_free_context(&p); }
  void operator()(AVCodecParameters* p) const noexcept { avcodec_parameters_free(&p); }
  void operator()(AVPacket* p) const noexcept { av_packet_free(&p); }
  void operator()(AVFrame* p) const noexcept { av_frame_free(&p); }
  void operator()(AVBufferRef* p) const noexcept { av_buffer_unref(&p); }
};
template <class T>
using Ffmpeg = std::unique_ptr<T, FreeFfmpeg>;

/// Throws Fault::device: the video should be decoded on the CPU instead.
[[noreturn]] inline void refuse_video(const std::string& why) {
  throw Error(Fault::device, "a video cannot be decoded on the GPU: " + why);
}
/// Takes ownership of what an FFmpeg allocation returned. Throws Fault::memory if it is null.
template <class T>
Ffmpeg<T> made_by_ffmpeg(T* made) {
  if (made == nullptr) throw Error(Fault::memory, "FFmpeg has no memory left to decode a video");
  return Ffmpeg<T>(made);
}

/// The CUDA driver context that the runtime uses on the current device. The driver function is
/// looked up through the runtime, so that a program need not link the driver.
inline CUcontext current_context() {
  check_decoding(cudaFree(nullptr), "looking for a GPU");  // creates the context
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &found, 4000, cudaEnableDefault, &result);
#else
  const cudaError_t error =
      cudaGetDriverEntryPoint("cuCtxGetCurrent", &found, cudaEnableDefault, &result);
#endif
  check_decoding(error, "asking the driver");
  CUcontext context = nullptr;
  const auto get_current = reinterpret_cast<CUresult (*)(CUcontext*)>(found);
  if (get_current == nullptr || get_current(&context) != CUDA_SUCCESS || context == nullptr) {
    refuse_video("the driver tells of no context");
  }
  return context;
}

}  // namespace detail

/// The packets of the first video stream of a file, which is the stream that OpenCV decodes.
class VideoPackets {
 public:
  /// Throws Fault::device if the file cannot be opened or should not be decoded on the GPU: codecs
  /// that do not specify the decoded pictures exactly, more than 8 bits, chroma other than 4:2:0,
  /// odd sides. Throws Fault::memory if FFmpeg has none left.
  explicit VideoPackets(const std::string& path) {
    AVFormatContext* opened = nullptr;
    const std::string file = detail::path_for_ffmpeg(path);
    if (avformat_open_input(&opened, file.c_str(), nullptr, nullptr) < 0) {
      detail::refuse_video("FFmpeg does not open " + pvm::quote(path));
    }
    format_.reset(opened);
    if (avformat_find_stream_info(opened, nullptr) < 0) {
      detail::refuse_video("FFmpeg finds no streams in " + pvm::quote(path));
    }
    for (unsigned i = 0; i < opened->nb_streams && stream_ == nullptr; ++i) {
      if (opened->streams[i]->codecpar->codec_type == AVMEDIA_TYPE_VIDEO) {
        stream_ = opened->streams[i];
      }
    }
    if (stream_ == nullptr) detail::refuse_video(pvm::quote(path) + " has no pictures");
    check();
  }

  [[nodiscard]] const AVCodecParameters& parameters() const noexcept { return *stream_->codecpar; }

  /// The next packet, or null at the end of the file, which sets `good` to true, and if reading
  /// fails, which sets it to false. Otherwise `good` is unchanged. Throws Fault::memory.
  detail::Ffmpeg<AVPacket> next(bool& good) {
    auto packet = detail::made_by_ffmpeg(av_packet_alloc());
    for (;;) {
      const int result = av_read_frame(format_.get(), packet.get());
      if (result == AVERROR(EAGAIN)) continue;
      if (result < 0) {
        good = result == AVERROR_EOF;
        return nullptr;
      }
      if (packet->stream_index == stream_->index) return packet;
      av_packet_unref(packet.get());
    }
  }

  /// An object that cuts this stream into segments; none if the codec does not allow that.
  [[nodiscard]] std::optional<NalSegments> segments() const {
    const AVCodecParameters& p = parameters();
    const std::span<const std::uint8_t> header(p.extradata,
                                               static_cast<std::size_t>(p.extradata_size));
    if (p.codec_id == AV_CODEC_ID_H264) return NalSegments(NalCodec::h264, header);
    if (p.codec_id == AV_CODEC_ID_HEVC) return NalSegments(NalCodec::hevc, header);
    return std::nullopt;
  }

 private:
  void check() const {
    const AVCodecParameters& p = parameters();
    const bool exact = p.codec_id == AV_CODEC_ID_H264 || p.codec_id == AV_CODEC_ID_HEVC ||
                       p.codec_id == AV_CODEC_ID_VP8 || p.codec_id == AV_CODEC_ID_VP9;
    if (!exact) {
      detail::refuse_video(std::string("its codec is ") + avcodec_get_name(p.codec_id) +
                           "; a GPU decodes H.264, HEVC, VP8 and VP9");
    }
    const bool plain = p.format == AV_PIX_FMT_YUV420P || p.format == AV_PIX_FMT_YUVJ420P;
    if (!plain || p.width % 2 != 0 || p.height % 2 != 0) {
      detail::refuse_video("its pictures are not of 8 bits, 4:2:0, with even sides");
    }
  }

  detail::Ffmpeg<AVFormatContext> format_;
  AVStream* stream_ = nullptr;
};

/// An open NVDEC decoder on a GPU, which also makes the frames. Used by one thread at a time.
class NvdecSession {
 public:
  enum class Got { frame, nothing, trouble };

  /// Decodes on CUDA device `device` and makes frames of `shape` from pictures that must be turned
  /// by `orientation`. Throws Fault::device if that is not possible, Fault::memory.
  NvdecSession(const AVCodecParameters& parameters, int device, const FrameShape& shape,
               const Orientation& orientation)
      : width_(parameters.width),
        height_(parameters.height),
        shape_(shape),
        orientation_(orientation) {
    detail::check_decoding(cudaSetDevice(device), "choosing the GPU");
    stream_ = detail::make_decoding_stream();
    try {
      open_device();
      open_codec(parameters);
    } catch (...) {
      (void)cudaStreamDestroy(stream_);
      throw;
    }
  }
  ~NvdecSession() {
    codec_.reset();  // before the stream it uses is destroyed
    device_.reset();
    (void)cudaStreamDestroy(stream_);
  }
  NvdecSession(const NvdecSession&) = delete;
  NvdecSession& operator=(const NvdecSession&) = delete;

  /// Passes a packet to the decoder, or null for the end of a segment. False if it is refused.
  /// After each call, `receive` must be called until it returns Got::nothing.
  bool send(const AVPacket* packet) { return avcodec_send_packet(codec_.get(), packet) >= 0; }

  /// Writes the next decoded frame to `pixels` (`shape.size()` bytes) if one is ready. Returns
  /// Got::trouble for any failure, and for a picture that is damaged or not of the format and size
  /// that the stream's parameters announced.
  Got receive(std::vector<std::uint8_t>& pixels) {
    const int result = avcodec_receive_frame(codec_.get(), frame_.get());
    if (result == AVERROR(EAGAIN) || result == AVERROR_EOF) return Got::nothing;
    if (result < 0 || !as_promised()) return Got::trouble;
    const bool made = make(pixels);
    av_frame_unref(frame_.get());
    return made ? Got::frame : Got::trouble;
  }

  /// Prepares for the next segment. Must be called after the end of each segment.
  void restart() { avcodec_flush_buffers(codec_.get()); }

 private:
  void open_device() {
    device_ = detail::made_by_ffmpeg(av_hwdevice_ctx_alloc(AV_HWDEVICE_TYPE_CUDA));
    auto* const context = reinterpret_cast<AVHWDeviceContext*>(device_->data);
    auto* const cuda = static_cast<AVCUDADeviceContext*>(context->hwctx);
    cuda->cuda_ctx = detail::current_context();
    cuda->stream = stream_;
    if (av_hwdevice_ctx_init(device_.get()) < 0) {
      detail::refuse_video("FFmpeg does not find the libraries of the driver");
    }
  }

  void open_codec(const AVCodecParameters& parameters) {
    const AVCodec* const codec = avcodec_find_decoder(parameters.codec_id);
    if (codec == nullptr) detail::refuse_video("FFmpeg has no decoder for it");
    codec_ = detail::made_by_ffmpeg(avcodec_alloc_context3(codec));
    frame_ = detail::made_by_ffmpeg(av_frame_alloc());
    bool opened = avcodec_parameters_to_context(codec_.get(), &parameters) >= 0;
    codec_->hw_device_ctx = av_buffer_ref(device_.get());
    codec_->get_format = choose_format;
    codec_->thread_count = 1;
    opened = opened && avcodec_open2(codec_.get(), codec, nullptr) >= 0;
    if (!opened) detail::refuse_video("FFmpeg does not open its decoder");
  }

  static AVPixelFormat choose_format(AVCodecContext* codec, const AVPixelFormat* offered) {
    const bool plain =
        codec->sw_pix_fmt == AV_PIX_FMT_YUV420P || codec->sw_pix_fmt == AV_PIX_FMT_YUVJ420P;
    for (; plain && *offered != AV_PIX_FMT_NONE; ++offered) {
      if (*offered == AV_PIX_FMT_CUDA) return *offered;
    }
    return AV_PIX_FMT_NONE;
  }

  [[nodiscard]] bool as_promised() const {
    const AVFrame& f = *frame_;
    return f.format == AV_PIX_FMT_CUDA && f.width == width_ && f.height == height_ &&
           f.crop_left == 0 && f.crop_top == 0 && f.decode_error_flags == 0 &&
           (f.flags & AV_FRAME_FLAG_CORRUPT) == 0;
  }

  /// Makes the frame of the picture in frame_ and copies it to `pixels`. False if CUDA fails.
  bool make(std::vector<std::uint8_t>& pixels) {
    const AVFrame& f = *frame_;
    const detail::Nv12 picture{f.data[0],
                               f.data[1],
                               f.linesize[0],
                               f.linesize[1],
                               width_,
                               height_,
                               codec_->sw_pix_fmt == AV_PIX_FMT_YUVJ420P,
                               orientation_};
    const std::size_t bytes = shape_.size();
    std::uint8_t* const made = made_.at_least(bytes);
    std::uint8_t* const pinned = pinned_.at_least(bytes);
    const bool good =
        detail::launch_frame(picture, made, shape_, stream_) == cudaSuccess &&
        cudaMemcpyAsync(pinned, made, bytes, cudaMemcpyDeviceToHost, stream_) == cudaSuccess &&
        cudaStreamSynchronize(stream_) == cudaSuccess;
    if (good) pixels.assign(pinned, pinned + bytes);
    return good;
  }

  const int width_, height_;
  const FrameShape shape_;
  const Orientation orientation_;
  cudaStream_t stream_ = nullptr;
  detail::Ffmpeg<AVBufferRef> device_;
  detail::Ffmpeg<AVCodecContext> codec_;
  detail::Ffmpeg<AVFrame> frame_;
  detail::GpuBytes<detail::FreeDevice> made_;    // the frame in device memory
  detail::GpuBytes<detail::FreePinned> pinned_;  // the frame in page-locked host memory
};

}  // namespace pvm::inline v0::io
