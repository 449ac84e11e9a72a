// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The pictures of a zip or a directory, decoded on a GPU.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/io/decode_pool.hpp>
#include <pvm/io/gpu/jpeg_decoder.hpp>
#include <pvm/io/image_list.hpp>
#include <pvm/io/jpeg_header.hpp>
#include <pvm/io/request.hpp>
#include <pvm/io/resize.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/usage.hpp>

namespace pvm::inline v0::io {

/// Hands on what ImageList<Store> would, in the same order, within 2 grey levels of it. A batch of
/// pictures is read by the DecodePool's threads, each with a handle of its own, while the GPU
/// decodes the batch before. Pictures that are no plain JPEGs (`plain_jpeg`), and those that
/// nvJPEG refuses, are decoded on the CPU; so an unreadable one is named and skipped as ever. Model
/// of FrameSource.
template <FileStore Store>
class GpuPictures {
 public:
  /// Throws Fault::source like ImageList, Fault::device where no GPU can decode.
  explicit GpuPictures(const std::filesystem::path& path) : path_(path), list_(path) {
    stores_.resize(pool_->size());
    bool fresh = false;
    gpu_ = IdleJpegDecoders::take(fresh);
    if (fresh) try_out();
  }

  FrameInfo next(FrameShape shape, std::span<std::uint8_t> pixels) {
    check_request(shape, pixels);
    if (shape != shape_) {
      shape_ = shape;
      discard();
    }
    for (;;) {
      if (at_ == ready_.items.size()) turn();
      const Item& item = ready_.items[at_];
      const std::uint8_t* const from = ready_.frames.data() + at_++ * shape.size();
      if (const auto info = list_.settle({item.index, item.readable}, item.readable)) {
        std::copy_n(from, shape.size(), pixels.data());
        return *info;
      }
    }
  }

  [[nodiscard]] Position position() const { return list_.position(); }
  void seek(const Position& position) {
    list_.seek(position);
    discard();
  }
  [[nodiscard]] std::optional<std::uint64_t> length() const { return list_.length(); }
  [[nodiscard]] std::uint64_t skipped() const { return list_.skipped(); }
  [[nodiscard]] const std::string& name() const { return list_.name(); }
  /// Not the CPU's: its frames differ by a grey level or two.
  [[nodiscard]] std::string replay_id() const { return "GPU " + list_.replay_id(); }
  [[nodiscard]] Unreadable& unreadable() { return list_.unreadable(); }
  [[nodiscard]] std::vector<StageUsage> usage() const { return {reading_, decoding_}; }

 private:
  static constexpr std::size_t batch = 64;

  struct Item {
    std::size_t index = 0;
    std::vector<std::uint8_t> bytes;
    std::optional<PlainJpeg> facts;  ///< for the GPU
    bool readable = false;
  };
  struct Batch {
    std::vector<Item> items;
    std::vector<std::uint8_t> frames;  ///< [items][shape]
    std::vector<std::size_t> on_gpu;   ///< items that the GPU has in work
  };

  /// A first batch, so that what nvJPEG does once is not part of a run.
  void try_out() {
    shape_ = {.height = 16, .width = 16, .channels = 1};
    begin();
    discard();
    shape_ = {};
    reading_.frames = 0;
    reading_.busy = 0;
  }

  void discard() {
    if (!coming_.on_gpu.empty()) static_cast<void>(gpu_->wait());
    coming_ = {};
    ready_ = {};
    at_ = 0;
    next_ = static_cast<std::size_t>(list_.position().frame);
  }

  /// The batch that is coming becomes the one at hand, and the next one is begun.
  void turn() {
    if (coming_.items.empty()) begin();
    finish();
    std::swap(ready_, coming_);
    at_ = 0;
    begin();
  }

  /// Reads a batch, and has the GPU begin with it.
  void begin() {
    Stopwatch watch;
    coming_.items.resize(std::min(batch, list_.pictures().size()));
    coming_.frames.resize(coming_.items.size() * shape_.size());
    coming_.on_gpu.clear();
    for (Item& item : coming_.items) {
      item.index = next_;
      next_ = (next_ + 1) % list_.pictures().size();
    }
    on_all_threads(coming_.items.size(), [this](std::size_t thread, std::size_t i) {
      read(thread, coming_.items[i], frame(i));
    });
    std::vector<GpuJpegDecoder::Item> jobs;
    for (std::size_t i = 0; i < coming_.items.size(); ++i) {
      const Item& item = coming_.items[i];
      if (!item.facts) continue;
      coming_.on_gpu.push_back(i);
      jobs.push_back({item.bytes, *item.facts});
    }
    reading_.busy += watch.lap();
    reading_.frames += coming_.items.size();
    if (jobs.empty() || gpu_->start(jobs, shape_)) return;
    for (std::size_t k = 0; k < jobs.size(); ++k) decode_alone(coming_.on_gpu[k], jobs[k]);
    coming_.on_gpu.clear();
  }

  /// For pictures in a batch that was refused: whether one is decoded on the GPU must not depend
  /// on the pictures beside it.
  void decode_alone(std::size_t i, const GpuJpegDecoder::Item& job) {
    Item& item = coming_.items[i];
    if (gpu_->start({&job, 1}, shape_)) {
      const auto pixels = gpu_->wait();
      std::copy_n(pixels.data(), shape_.size(), frame(i).data());
      item.readable = true;
    } else {
      item.readable = decode_image(item.bytes, shape_, frame(i));
    }
  }

  void finish() {
    if (coming_.on_gpu.empty()) return;
    Stopwatch watch;
    const auto frames = gpu_->wait();
    for (std::size_t k = 0; k < coming_.on_gpu.size(); ++k) {
      const std::size_t i = coming_.on_gpu[k];
      std::copy_n(frames.data() + k * shape_.size(), shape_.size(), frame(i).data());
      coming_.items[i].readable = true;
    }
    decoding_.waiting += watch.lap();
    decoding_.frames += coming_.on_gpu.size();
    coming_.on_gpu.clear();
  }

  [[nodiscard]] std::span<std::uint8_t> frame(std::size_t i) {
    return std::span(coming_.frames).subspan(i * shape_.size(), shape_.size());
  }

  void read(std::size_t thread, Item& item, std::span<std::uint8_t> pixels) {
    item.facts.reset();
    item.readable = false;
    try {
      auto& store = stores_[thread];
      if (!store) store.emplace(path_);
      if (!store->read(list_.pictures()[item.index], item.bytes)) return;
    } catch (const Error&) {  // the file is gone
      return;
    }
    item.facts = plain_jpeg(item.bytes);
    if (!item.facts) item.readable = decode_image(item.bytes, shape_, pixels);
  }

  /// Calls act(thread, i) for all i below `count`, a thread of the pool for each `thread` number.
  template <class Act>
  void on_all_threads(std::size_t count, const Act& act) {
    std::atomic<std::size_t> next = 0;
    std::mutex mutex;
    std::condition_variable done;
    std::size_t working = std::min(count, stores_.size());
    for (std::size_t thread = working; thread-- > 0;) {
      pool_->submit([&, thread] {
        for (std::size_t i = next++; i < count; i = next++) act(thread, i);
        const std::lock_guard lock(mutex);
        if (--working == 0) done.notify_one();
      });
    }
    std::unique_lock lock(mutex);
    done.wait(lock, [&] { return working == 0; });
  }

  std::filesystem::path path_;
  ImageList<Store> list_;
  IdleJpegDecoders::Borrowed gpu_;
  std::shared_ptr<DecodePool> pool_ = DecodePool::shared();
  std::vector<std::optional<Store>> stores_;  // by thread
  FrameShape shape_{};
  Batch ready_, coming_;
  std::size_t at_ = 0;    // in ready_
  std::size_t next_ = 0;  // the picture to be read next
  StageUsage reading_{.name = "read", .threads = pool_->size()};
  StageUsage decoding_{.name = "decode and resize on the GPU"};
};

}  // namespace pvm::inline v0::io
