// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Reads a video file with several of a GPU's hardware decoders at once.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/trace.hpp>
#include <pvm/engine/cuda/device/gpus.hpp>
#include <pvm/io/byte_queue.hpp>
#include <pvm/io/gpu/nvdec.hpp>
#include <pvm/io/orientation.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/usage.hpp>

namespace pvm::inline v0::io {

/// The frames of a file from its beginning, over and over, in the order in which a single decoder
/// would deliver them. A GPU's decoder works on one picture at a time, so the file is cut into
/// segments that can be decoded independently (`NalSegments`), and decoder k decodes segments k, k
/// + decoders, ...
///
/// One thread reads packets and deals them to the decoders. Each decoder has a lane: a thread of
/// its own between a queue of packets and a queue of frames. `next` takes from the queues of frames
/// in turn, a segment from each. Memory: each lane queues up to 32 MiB of packets and 16 MiB of
/// frames.
class GpuVideoReader {
 public:
  /// `trouble`: damage, a picture of another size, a file that cannot be read any more.
  enum class Kind { frame, segment_end, file_end, trouble };
  struct Item {
    Kind kind = Kind::trouble;
    std::vector<std::uint8_t> pixels{};  ///< for Kind::frame: `shape.size()` bytes
  };

  /// `orientation`: how the stored pictures must be turned. `decoders`: how many to use, at least
  /// 1; a file that cannot be cut gets one. Throws Fault::device if the GPU cannot or should not
  /// decode this file, Fault::memory.
  GpuVideoReader(std::string path, const FrameShape& shape, const Orientation& orientation,
                 std::size_t decoders)
      : path_(std::move(path)), packets_(path_), shape_(shape) {
    detail::check_decoding(pvm::detail::gpu_of_thread(&device_), "looking for a GPU");
    const std::size_t used = packets_.segments() ? decoders : 1;
    for (std::size_t i = 0; i < used; ++i) {
      lanes_.push_back(std::make_unique<Lane>(packets_.parameters(), device_, shape, orientation));
    }
    try {
      for (auto& lane : lanes_) lane->thread = std::thread([this, &lane] { decode(*lane); });
      thread_ = std::thread([this] { deal(); });
    } catch (const std::system_error& fault) {
      stop();
      throw Error(Fault::memory, std::string("no thread can be started to decode a video (") +
                                     fault.what() + "); use --decode cpu");
    }
  }
  ~GpuVideoReader() { stop(); }
  GpuVideoReader(const GpuVideoReader&) = delete;
  GpuVideoReader& operator=(const GpuVideoReader&) = delete;

  /// The next item: a frame; the end of the file, after which the file begins again; or trouble,
  /// after which `next` must not be called any more.
  Item next() {
    for (;;) {
      auto item = lanes_[turn_]->frames.take();
      if (!item) return {};
      if (item->kind == Kind::frame || item->kind == Kind::trouble) return std::move(*item);
      turn_ = (turn_ + 1) % lanes_.size();
      if (item->kind == Kind::file_end) return std::move(*item);
    }
  }

  /// Seconds of work so far, summed over all decoders.
  [[nodiscard]] double busy() const {
    const std::lock_guard lock(mutex_);
    return busy_;
  }

 private:
  /// A packet to be decoded; or, if `packet` is null, the end of a segment or file, or trouble.
  struct Work {
    detail::Ffmpeg<AVPacket> packet;
    Kind end = Kind::segment_end;  ///< which of these, if `packet` is null
  };

  struct Lane {
    Lane(const AVCodecParameters& parameters, int device, const FrameShape& shape,
         const Orientation& orientation)
        : session(parameters, device, shape, orientation) {}
    NvdecSession session;
    ByteQueue<Work> work{std::size_t{32} << 20};
    ByteQueue<Item> frames{std::size_t{16} << 20};
    std::thread thread;
  };

  void stop() {
    for (auto& lane : lanes_) {
      lane->work.close();
      lane->frames.close();
    }
    if (thread_.joinable()) thread_.join();
    for (auto& lane : lanes_) {
      if (lane->thread.joinable()) lane->thread.join();
    }
  }

  /// The reading thread: reads the file over and over and deals its segments to the lanes in turn.
  void deal() noexcept {
    trace::name_thread("read video");
    std::size_t turn = 0;
    try {
      while (deal_pass(turn)) {
        if (!lanes_[turn]->work.put({nullptr, Kind::file_end}, 0)) return;
        turn = (turn + 1) % lanes_.size();
        if (!reopen()) break;
      }
    } catch (const std::exception&) {  // the file is gone, or no memory is left
    }
    static_cast<void>(lanes_[turn]->work.put({nullptr, Kind::trouble}, 0));
  }

  /// Deals out the file once, beginning with lane `turn`, which becomes the lane of the last
  /// segment. False if reading fails or finds damage, or this object is being destroyed.
  bool deal_pass(std::size_t& turn) {
    auto segments = packets_.segments();
    bool good = true;
    while (auto packet = packets_.next(good)) {
      if ((packet->flags & AV_PKT_FLAG_CORRUPT) != 0) return false;
      const auto bytes = static_cast<std::size_t>(packet->size);
      if (segments && segments->begins({packet->data, bytes})) {
        if (!lanes_[turn]->work.put({nullptr, Kind::segment_end}, 0)) return false;
        turn = (turn + 1) % lanes_.size();
      }
      if (!lanes_[turn]->work.put({std::move(packet)}, bytes)) return false;
    }
    return good;
  }

  /// Opens the file again. False if its codec or size has changed.
  bool reopen() {
    VideoPackets again(path_);
    const AVCodecParameters &was = packets_.parameters(), &is = again.parameters();
    const bool same =
        is.codec_id == was.codec_id && is.width == was.width && is.height == was.height;
    packets_ = std::move(again);
    return same;
  }

  /// A lane's thread.
  void decode(Lane& lane) noexcept {
    trace::name_thread("decode video");
    try {
      detail::check_decoding(cudaSetDevice(device_), "choosing the GPU");
      while (const auto work = lane.work.take()) {
        trace::Span span("decode");
        const bool good = pass_on(lane, *work);
        const double seconds = span.end();
        {
          const std::lock_guard lock(mutex_);
          busy_ += seconds;
        }
        if (!good) break;
      }
    } catch (const std::exception&) {
    }
    static_cast<void>(lane.frames.put({}, 0));  // an Item of Kind::trouble
  }

  /// Decodes a packet and queues the frames that are ready. False if the lane's thread must end.
  bool pass_on(Lane& lane, const Work& work) {
    if (work.end == Kind::trouble || !lane.session.send(work.packet.get())) return false;
    for (;;) {
      Item item{Kind::frame};
      const auto got = lane.session.receive(item.pixels);
      if (got == NvdecSession::Got::trouble) return false;
      if (got == NvdecSession::Got::nothing) break;
      if (!lane.frames.put(std::move(item), shape_.size())) return false;
    }
    if (work.packet) return true;
    lane.session.restart();
    return lane.frames.put({work.end}, 0);
  }

  const std::string path_;
  VideoPackets packets_;  // used by thread_ only, once it runs
  FrameShape shape_;
  int device_ = 0;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::size_t turn_ = 0;      // the lane whose frames are next
  mutable std::mutex mutex_;  // guards busy_
  double busy_ = 0;
  std::thread thread_;  // reads the packets
};

}  // namespace pvm::inline v0::io
