// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The shared part behind all PictureReaders of one zip or directory: the open file, the decoder,
/// and the frames that are queued or being decoded.
///
/// Each reader has a queue of the next frames it will deliver. `take` refills the queue, which adds
/// frames that are not known yet to a priority queue (`wanted_`). `dispatch` moves them from there
/// to the DecodePool, where `make` reads the file and passes its bytes to the decoder; the decoder
/// calls `finish`, which wakes the reader that waits in `take`. A frame that several readers have
/// in their queues is one shared Frame object and is decoded once.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/trace.hpp>
#include <pvm/io/decode_pool.hpp>
#include <pvm/io/image_list.hpp>
#include <pvm/io/memory_gate.hpp>
#include <pvm/io/resize.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/stoppable_wait.hpp>
#include <pvm/io/usage.hpp>

namespace pvm::inline v0::io {

/// Decodes pictures on the CPU, on the thread that has read them.
///
/// It is also the reference for the interface of a picture decoder: `expect` announces that a
/// picture is about to be read. One call of `decode` follows each `expect`; it turns the picture's
/// bytes (empty if the picture could not be read) into a frame and then calls `done(size, failure,
/// seconds)`, immediately or later, on any thread. `size` is that of the picture, false if it is
/// not readable; `seconds` is the time spent decoding.
class CpuPictureDecoder {
 public:
  /// Prefix of `replay_id`, different for decoders whose frames differ.
  static constexpr const char* id = "";
  static constexpr const char* stage_name = "decode and resize";
  static constexpr std::size_t ahead = 32;  ///< frames a reader reads ahead by default
  /// How many pictures should be read or decoded at once, given `threads` threads in the pool.
  static std::size_t in_work(std::size_t threads) { return 2 * threads; }

  /// Called once after a file was opened. `read(i)` returns the bytes of its picture `i`, where i <
  /// `pictures`.
  template <class Read>
  void prepare(std::size_t /*pictures*/, const Read& /*read*/) {}
  void expect() noexcept {}

  template <class Done>
  void decode(std::vector<std::uint8_t>& bytes, const FrameShape& shape,
              std::span<std::uint8_t> pixels, const Done& done) noexcept {
    trace::Span span(stage_name);
    trace::pass_flow(trace::take_carried_flow());
    PictureSize size;
    std::exception_ptr failure;
    try {
      size = decode_image(bytes, shape, pixels);
    } catch (...) {
      failure = std::current_exception();
    }
    done(size, failure, span.end());
  }
};

namespace detail {

/// A pool of open handles of one file, so that several threads can read it at once; each read
/// borrows a handle. It starts with one handle. Pool threads open further ones, up to `most`, in
/// the background: opening a large zip takes milliseconds, and no picture should wait for that.
template <FileStore Store>
class StoreHandles {
 public:
  StoreHandles(std::filesystem::path path, Store first, std::size_t most, DecodePool& pool)
      : path_(std::move(path)), pool_(pool), most_(most) {
    idle_.reserve(most);
    idle_.push_back(std::make_unique<Store>(std::move(first)));
  }
  ~StoreHandles() {
    std::unique_lock lock(mutex_);
    returned_.wait(lock, [this] { return opening_ == 0; });
  }
  StoreHandles(const StoreHandles&) = delete;
  StoreHandles& operator=(const StoreHandles&) = delete;

  /// Begins to open all handles that are allowed, before they are needed.
  void open_all() {
    const std::lock_guard lock(mutex_);
    while (open_ < most_) open_another();
  }

  /// Replaces `bytes` by the content of `file`, or clears it if the file cannot be read. Waits if
  /// other threads hold too many bytes; the result must be kept as long as these ones are.
  MemoryGate::Hold read(const StoredFile& file, std::vector<std::uint8_t>& bytes) {
    const Borrowed store(*this);
    MemoryGate::Hold hold;
    if constexpr (requires { store.handle->size(file); }) {
      hold = MemoryGate::reading().enter(
          std::min<std::uint64_t>(store.handle->size(file), most_frame_bytes));
    }
    if (!store.handle->read(file, bytes)) bytes.clear();
    return hold;
  }

 private:
  /// A handle borrowed for the lifetime of this object.
  struct Borrowed {
    explicit Borrowed(StoreHandles& from) : handles(from), handle(from.take()) {}
    ~Borrowed() { handles.give_back(std::move(handle)); }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;

    StoreHandles& handles;
    std::unique_ptr<Store> handle;
  };

  void open_another() {  // the caller holds mutex_
    pool_.submit([this] { open_one(); });
    ++open_;
    ++opening_;
  }
  void open_one() noexcept {
    std::unique_ptr<Store> store;
    try {
      store = std::make_unique<Store>(path_);
    } catch (const std::exception&) {  // the file has been removed or replaced: use what is open
    }
    const std::lock_guard lock(mutex_);
    if (store) {
      idle_.push_back(std::move(store));  // does not allocate: `most` were reserved
    } else {
      most_ = --open_;
    }
    --opening_;
    returned_.notify_all();
  }

  std::unique_ptr<Store> take() {
    std::unique_lock lock(mutex_);
    if (idle_.empty() && open_ < most_) open_another();
    returned_.wait(lock, [this] { return !idle_.empty(); });
    auto store = std::move(idle_.back());
    idle_.pop_back();
    return store;
  }

  void give_back(std::unique_ptr<Store> store) noexcept {
    {
      const std::lock_guard lock(mutex_);
      idle_.push_back(std::move(store));  // does not allocate: `most` were reserved
    }
    returned_.notify_one();
  }

  const std::filesystem::path path_;
  DecodePool& pool_;
  std::mutex mutex_;                          // guards the members below
  std::vector<std::unique_ptr<Store>> idle_;  // handles that are not borrowed
  std::size_t open_ = 1;                      // handles open or being opened
  std::size_t opening_ = 0;                   // handles being opened
  std::size_t most_;                          // upper limit of open_
  std::condition_variable returned_;
};

/// Decodes the pictures that readers ask for on the threads of the DecodePool, the most urgent
/// first. A frame that is in the queues of several readers is decoded once. Memory: the frames in
/// the readers' queues, and the bytes of the pictures being read or decoded. Its readers may be
/// used on different threads.
template <FileStore Store, class Decoder>
class PictureService {
 public:
  struct Frame {
    std::size_t index = 0;  ///< of its picture in `list()`
    FrameShape shape{};
    std::vector<std::uint8_t> pixels{};
    PictureSize size{};            ///< of the picture, false if it is not readable
    std::exception_ptr failure{};  ///< set if making the frame failed; `take` throws it

    std::size_t queues = 0;  // number of readers' queues that hold it
    void* owner = nullptr;   // the Reader that requested it, while it is in that reader's queue
    bool done = false;       // decoded, or failed
    bool awaited = false;    // a reader waits for it in `take`
    std::uint64_t flow = 0;  // of the frame in a trace
  };

  /// The state of one reader. PictureReader holds it, but only the service accesses its members.
  struct Reader {
    std::size_t at = 0;                          // index of the picture it delivers next
    std::size_t ahead = Decoder::ahead;          // most frames in its queue
    std::deque<std::shared_ptr<Frame>> queue{};  // frames of consecutive pictures from `at` on
    std::size_t ready = 0;                       // frames it owns that are done
    std::uint64_t delivered = 0;                 // number of frames it has delivered
    bool delivers_once = false;                  // see `io::expect_once`
    std::size_t asked_again = 0;  // times in a row that a delivered frame was asked for again
                                  // although `delivers_once` is set
    StageUsage reading{.name = "read"};
    StageUsage decoding{.name = Decoder::stage_name};
  };

  /// Throws Fault::source if `path` cannot be opened or holds no pictures, and whatever the
  /// decoder's constructor or `prepare` throws.
  explicit PictureService(const std::filesystem::path& path) : PictureService(path, Store(path)) {}
  ~PictureService() {
    std::unique_lock lock(mutex_);
    wanted_ = {};
    idle_.wait(lock, [this] { return in_work_ == 0; });
  }
  PictureService(const PictureService&) = delete;
  PictureService& operator=(const PictureService&) = delete;

  [[nodiscard]] const std::shared_ptr<const PictureList>& list() const noexcept { return list_; }

  /// Adds a reader that stands at the first picture.
  std::shared_ptr<Reader> add() {
    auto reader = std::make_shared<Reader>();
    reader->reading.threads = reader->decoding.threads = pool_->size();
    reader->decoding.capacity = reader->ahead;
    const std::lock_guard lock(mutex_);
    ++readers_at_[0];
    return reader;
  }

  void remove(Reader& reader) noexcept {
    const std::lock_guard lock(mutex_);
    drop_queue(reader);
    --readers_at_[reader.at];
  }

  /// Returns the frame of the picture at which the reader stands and moves the reader on by one.
  /// Waits until the frame is decoded. If making the frame failed, throws that failure, and throws
  /// it again on every call until `seek`. Throws Stopped if `asked` tells so while it waits.
  std::shared_ptr<const Frame> take(const std::shared_ptr<Reader>& shared, const FrameShape& shape,
                                    const std::atomic<bool>* asked) {
    Reader& reader = *shared;
    std::unique_lock lock(mutex_);
    drop_other_shape(reader, shape);
    notice_if_asked_again(reader);
    refill(shared, shape);
    const auto frame = reader.queue.front();
    reader.decoding.queued += static_cast<double>(reader.ready);
    if (!frame->done) {
      trace::Span span("wait for frames");
      frame->awaited = true;
      wait_unless_stopped(ready_, lock, asked, [&frame] { return frame->done; });
      reader.decoding.waiting += span.end();
    }
    if (frame->failure) std::rethrow_exception(frame->failure);
    reader.queue.pop_front();
    release(reader, *frame);
    if (reader.delivers_once) delivered_[frame->index] = true;
    ++reader.delivered;
    move_to(reader, following(reader.at));
    return frame;
  }

  void seek(Reader& reader, std::size_t index) {
    const std::lock_guard lock(mutex_);
    drop_queue(reader);
    reader.asked_again = 0;
    move_to(reader, index);
  }

  /// Starts reading ahead, without waiting for a frame.
  void prepare(const std::shared_ptr<Reader>& reader, const FrameShape& shape) {
    const std::lock_guard lock(mutex_);
    drop_other_shape(*reader, shape);
    refill(reader, shape);
  }

  void read_ahead(Reader& reader, std::size_t frames) {
    const std::lock_guard lock(mutex_);
    reader.ahead = reader.decoding.capacity = std::max<std::size_t>(1, frames);
    ahead_ += frames;
    if (ahead_ >= many_ahead) handles_.open_all();
  }

  void expect_once(Reader& reader, bool once) {
    const std::lock_guard lock(mutex_);
    delivered_.assign(delivered_.size(), false);
    reader.delivers_once = once;
    reader.asked_again = 0;
  }

  [[nodiscard]] std::vector<StageUsage> usage(const Reader& reader) const {
    const std::lock_guard lock(mutex_);
    return {reader.reading, reader.decoding};
  }

 private:
  /// A frame to be decoded. All readers of a batch deliver one frame per step, so the frame whose
  /// reader delivers the fewest frames before it is the most urgent.
  struct Wanted {
    std::uint64_t step = 0;                      // number of frames its reader delivers before it
    std::uint64_t order = 0;                     // request number: breaks ties between equal steps
    std::shared_ptr<Frame> frame{};              // where the pixels go
    std::shared_ptr<Reader> reader{};            // the reader it is decoded for
    bool operator<(const Wanted& other) const {  // less: decoded later
      return step != other.step ? step > other.step : order > other.order;
    }
  };

  PictureService(const std::filesystem::path& path, Store store)
      : list_(std::make_shared<const PictureList>(list_pictures(store, path))),
        handles_(path, std::move(store), std::min(pool_->size(), most_handles), *pool_),
        readers_at_(list_->pictures.size()),
        delivered_(list_->pictures.size()) {
    decoder_.prepare(list_->pictures.size(), [this](std::size_t i) {
      std::vector<std::uint8_t> bytes;
      static_cast<void>(handles_.read(list_->pictures[i], bytes));
      return bytes;
    });
  }

  [[nodiscard]] std::size_t following(std::size_t index) const {
    return index + 1 == list_->pictures.size() ? 0 : index + 1;
  }

  void move_to(Reader& reader, std::size_t index) {
    --readers_at_[reader.at];
    ++readers_at_[index];
    reader.at = index;
  }

  /// With `delivers_once` set, no frame should be asked for after some reader has delivered it. If
  /// that happens twice in a row, leaving frames out of reading ahead is pointless and is turned
  /// off.
  void notice_if_asked_again(Reader& reader) {
    const bool again = reader.delivers_once && reader.queue.empty() && delivered_[reader.at];
    reader.asked_again = again ? reader.asked_again + 1 : 0;
    if (reader.asked_again > 1) reader.delivers_once = false;
  }

  /// Whether this reader need not read picture `index` ahead, because a reader has delivered it or
  /// is going to, and one delivery is enough (see `io::expect_once`).
  [[nodiscard]] bool delivered_elsewhere(const Reader& reader, std::size_t index) const {
    return reader.delivers_once &&
           (delivered_[index] || readers_at_[index] > 0 || queued_.contains(index));
  }

  /// Fills the reader's queue, but only once it is at most half full: requests then come in groups,
  /// which suits decoders that work on batches.
  void refill(const std::shared_ptr<Reader>& shared, const FrameShape& shape) {
    Reader& reader = *shared;
    if (reader.queue.size() > reader.ahead / 2) return;
    std::size_t index = (reader.at + reader.queue.size()) % list_->pictures.size();
    while (reader.queue.empty() ||
           (reader.queue.size() < reader.ahead && !delivered_elsewhere(reader, index))) {
      enqueue(shared, index, shape);
      index = following(index);
    }
    dispatch();
  }

  /// Appends the frame of picture `index` to the reader's queue; requests it if no reader has it in
  /// its queue yet.
  void enqueue(const std::shared_ptr<Reader>& reader, std::size_t index, const FrameShape& shape) {
    auto& known = queued_[index];
    auto frame = known;
    if (!frame || frame->shape != shape) {
      frame = known = std::make_shared<Frame>();
      frame->index = index;
      frame->shape = shape;
      frame->owner = reader.get();
      wanted_.push({reader->delivered + reader->queue.size(), ++requests_, frame, reader});
    }
    ++frame->queues;
    reader->queue.push_back(frame);
  }

  /// Empties the reader's queue if its frames have another shape.
  void drop_other_shape(Reader& reader, const FrameShape& shape) noexcept {
    if (!reader.queue.empty() && reader.queue.front()->shape != shape) drop_queue(reader);
  }

  void drop_queue(Reader& reader) noexcept {
    for (const auto& frame : reader.queue) release(reader, *frame);
    reader.queue.clear();
  }

  /// Updates the counters for a frame that leaves the reader's queue, and forgets the frame once it
  /// is in no queue.
  void release(Reader& reader, Frame& frame) noexcept {
    if (frame.owner == &reader) {
      frame.owner = nullptr;
      if (frame.done) {
        --reader.ready;
        trace::frames_ready(-1);
      }
    }
    if (--frame.queues > 0) return;
    const auto known = queued_.find(frame.index);
    if (known != queued_.end() && known->second.get() == &frame) queued_.erase(known);
  }

  /// Submits the most urgent frames to the pool, up to the number the decoder wants in work.
  void dispatch() {
    while (in_work_ < Decoder::in_work(pool_->size()) && !wanted_.empty()) {
      Wanted wanted = wanted_.top();
      wanted_.pop();
      if (wanted.frame->queues == 0) continue;  // it has left all queues: no longer needed
      ++in_work_;
      decoder_.expect();
      pool_->submit([this, wanted = std::move(wanted)] { make(wanted); });
    }
  }

  /// Reads and decodes a picture, on a pool thread. The service may have been destroyed by the time
  /// `decode` returns, so nothing may be accessed after it.
  void make(const Wanted& wanted) noexcept {
    thread_local std::vector<std::uint8_t> bytes;
    constexpr std::size_t most_kept = 8 << 20;
    MemoryGate::Hold hold;
    trace::Span span("read");
    std::exception_ptr unread;
    Frame& frame = *wanted.frame;
    try {
      frame.pixels.resize(frame.shape.size());
      hold = handles_.read(list_->pictures[frame.index], bytes);
    } catch (...) {
      unread = std::current_exception();
      bytes.clear();
    }
    frame.flow = trace::begin_flow();
    const double reading = span.end();
    trace::carry_flow(frame.flow);
    decoder_.decode(bytes, frame.shape, frame.pixels,
                    [this, wanted, unread, reading](PictureSize size, std::exception_ptr failure,
                                                    double decoding) {
                      wanted.frame->size = size;
                      wanted.frame->failure = unread ? unread : failure;
                      finish(wanted, reading, decoding);
                    });
    if (bytes.capacity() > most_kept) std::vector<std::uint8_t>().swap(bytes);
  }

  void finish(const Wanted& wanted, double reading, double decoding) noexcept {
    const std::lock_guard lock(mutex_);
    wanted.frame->done = true;
    if (wanted.frame->owner != nullptr) {
      ++wanted.reader->ready;
      trace::frames_ready(1);
    }
    wanted.reader->reading.busy += reading;
    ++wanted.reader->reading.frames;
    wanted.reader->decoding.busy += decoding;
    ++wanted.reader->decoding.frames;
    --in_work_;
    dispatch();
    if (wanted.frame->awaited) ready_.notify_all();
    if (in_work_ == 0) idle_.notify_all();
  }

  static constexpr std::size_t most_handles = 8;
  /// If readers read at least this many frames ahead in total, all handles are opened at once.
  static constexpr std::size_t many_ahead = 128;

  std::shared_ptr<DecodePool> pool_ = DecodePool::shared();
  std::shared_ptr<const PictureList> list_;
  StoreHandles<Store> handles_;
  Decoder decoder_;
  // Guards the members below, the Readers, and Frames that are not done. The fields `pixels`,
  // `size` and `failure` are written without it by the thread that makes the frame.
  mutable std::mutex mutex_;
  std::vector<std::uint32_t> readers_at_;  // for each picture: number of readers at it
  // For each picture: it was delivered by a reader with `delivers_once`.
  std::vector<bool> delivered_;
  // The frames that are in at least one queue, by the index of their picture.
  std::unordered_map<std::size_t, std::shared_ptr<Frame>> queued_;
  std::priority_queue<Wanted> wanted_;  // frames requested but not submitted to the pool yet
  std::uint64_t requests_ = 0;          // number of requests so far
  std::size_t in_work_ = 0;             // frames submitted to the pool and not done
  std::size_t ahead_ = 0;               // sum of all `read_ahead` requests, in frames
  std::condition_variable ready_;       // a frame that is awaited is done
  std::condition_variable idle_;        // in_work_ is 0
};

}  // namespace detail

}  // namespace pvm::inline v0::io
