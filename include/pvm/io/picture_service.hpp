// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What all readers of one file of pictures share: the open file, the decoder, and the frames that
/// are on their way.

#include <algorithm>
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
#include <pvm/io/decode_pool.hpp>
#include <pvm/io/image_list.hpp>
#include <pvm/io/resize.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/usage.hpp>

namespace pvm::inline v0::io {

/// Makes frames of pictures on the thread that has read them. What a decoder of pictures is:
/// `expect` says that a picture is about to be read; `decode`, once for each of these, makes a
/// frame of its bytes (none at all where it could not be read) and calls `done(readable, failure,
/// seconds)`, at once or later, on any thread.
class CpuPictureDecoder {
 public:
  static constexpr const char* id = "";  ///< its frames' mark, see `replay_id`
  static constexpr const char* stage_name = "decode and resize";
  static constexpr std::size_t ahead = 32;  ///< what it needs to be busy
  /// How many pictures should be in work at once.
  static std::size_t in_work(std::size_t threads) { return 2 * threads; }

  /// Called once a file is open. `read(i)` gives the bytes of its picture `i`.
  template <class Read>
  void prepare(std::size_t /*pictures*/, const Read& /*read*/) {}
  void expect() noexcept {}

  template <class Done>
  void decode(std::vector<std::uint8_t>& bytes, const FrameShape& shape,
              std::span<std::uint8_t> pixels, const Done& done) noexcept {
    Stopwatch watch;
    bool readable = false;
    std::exception_ptr failure;
    try {
      readable = decode_image(bytes, shape, pixels);
    } catch (...) {
      failure = std::current_exception();
    }
    done(readable, failure, watch.lap());
  }
};

namespace detail {

/// An open file for several threads: handles that are lent to those that read. At first there is
/// one; threads of a pool open others, which takes milliseconds with a large file, so that no
/// picture waits for it.
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

  /// Opens all that there may be, before they are needed.
  void open_all() {
    const std::lock_guard lock(mutex_);
    while (open_ < most_) open_another();
  }

  /// Replaces `bytes` by the content of `file`; by nothing where it cannot be read.
  void read(const StoredFile& file, std::vector<std::uint8_t>& bytes) {
    const Borrowed store(*this);
    if (!store.handle->read(file, bytes)) bytes.clear();
  }

 private:
  struct Borrowed {
    explicit Borrowed(StoreHandles& from) : handles(from), handle(from.take()) {}
    ~Borrowed() { handles.give_back(std::move(handle)); }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;

    StoreHandles& handles;
    std::unique_ptr<Store> handle;
  };

  void open_another() {  // under the lock
    pool_.submit([this] { open_one(); });
    ++open_;
    ++opening_;
  }
  void open_one() noexcept {
    std::unique_ptr<Store> store;
    try {
      store = std::make_unique<Store>(path_);
    } catch (const std::exception&) {  // it is gone or another by now: those open will do
    }
    const std::lock_guard lock(mutex_);
    if (store) {
      idle_.push_back(std::move(store));  // has room
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
      idle_.push_back(std::move(store));  // has room
    }
    returned_.notify_one();
  }

  const std::filesystem::path path_;
  DecodePool& pool_;
  std::mutex mutex_;  // over what follows
  std::vector<std::unique_ptr<Store>> idle_;
  std::size_t open_ = 1;     // or being opened
  std::size_t opening_ = 0;  // of these
  std::size_t most_;
  std::condition_variable returned_;
};

/// Decodes the pictures that readers ask for, those that are needed first before others, on the
/// threads of the DecodePool. A frame that several readers have ahead of them is decoded once.
/// Memory: the frames that readers have ahead, and the bytes of the pictures in work. Its readers
/// may be used on different threads.
template <FileStore Store, class Decoder>
class PictureService {
 public:
  struct Frame {
    std::size_t index = 0;
    FrameShape shape{};
    std::vector<std::uint8_t> pixels{};
    bool readable = false;
    std::exception_ptr failure{};  ///< instead of a frame

    std::size_t queues = 0;  // how often it is in readers' queues
    void* owner = nullptr;   // the reader it was begun for, while it is in its queue
    bool done = false;
    bool awaited = false;
  };

  /// Where a reader stands. The service's own, but for making one.
  struct Reader {
    std::size_t at = 0;                          // the picture that is handed on next
    std::size_t ahead = Decoder::ahead;          // most frames in its queue
    std::deque<std::shared_ptr<Frame>> queue{};  // from `at` on, picture by picture
    std::size_t ready = 0;                       // of those it owns
    std::uint64_t handed = 0;                    // frames it has handed on
    bool once = false;                           // see `expect_once`
    std::size_t asked_again = 0;                 // in a row, in spite of that
    StageUsage reading{.name = "read"};
    StageUsage decoding{.name = Decoder::stage_name};
  };

  /// Throws Fault::source where `path` cannot be opened or holds no pictures, and what the decoder
  /// throws.
  explicit PictureService(const std::filesystem::path& path) : PictureService(path, Store(path)) {}
  ~PictureService() {
    std::unique_lock lock(mutex_);
    wanted_ = {};
    idle_.wait(lock, [this] { return in_work_ == 0; });
  }
  PictureService(const PictureService&) = delete;
  PictureService& operator=(const PictureService&) = delete;

  [[nodiscard]] const std::shared_ptr<const PictureList>& list() const noexcept { return list_; }

  /// A new reader, at the first picture.
  std::shared_ptr<Reader> add() {
    auto reader = std::make_shared<Reader>();
    reader->reading.threads = reader->decoding.threads = pool_->size();
    reader->decoding.capacity = reader->ahead;
    const std::lock_guard lock(mutex_);
    ++standing_[0];
    return reader;
  }

  void remove(Reader& reader) noexcept {
    const std::lock_guard lock(mutex_);
    drop_queue(reader);
    --standing_[reader.at];
  }

  /// The frame of the picture where `reader` stands, which moves on. Throws what has failed
  /// instead of it, again and again until `seek`.
  std::shared_ptr<const Frame> take(const std::shared_ptr<Reader>& shared,
                                    const FrameShape& shape) {
    Reader& reader = *shared;
    std::unique_lock lock(mutex_);
    drop_others(reader, shape);
    notice_if_asked_again(reader);
    refill(shared, shape);
    const auto frame = reader.queue.front();
    reader.decoding.queued += static_cast<double>(reader.ready);
    if (!frame->done) {
      Stopwatch watch;
      frame->awaited = true;
      ready_.wait(lock, [&frame] { return frame->done; });
      reader.decoding.waiting += watch.lap();
    }
    if (frame->failure) std::rethrow_exception(frame->failure);
    reader.queue.pop_front();
    leave(reader, *frame);
    if (reader.once) handed_on_[frame->index] = true;
    ++reader.handed;
    stand(reader, following(reader.at));
    return frame;
  }

  void seek(Reader& reader, std::size_t index) {
    const std::lock_guard lock(mutex_);
    drop_queue(reader);
    reader.asked_again = 0;
    stand(reader, index);
  }

  /// Begins to read ahead.
  void prepare(const std::shared_ptr<Reader>& reader, const FrameShape& shape) {
    const std::lock_guard lock(mutex_);
    drop_others(*reader, shape);
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
    handed_on_.assign(handed_on_.size(), false);
    reader.once = once;
    reader.asked_again = 0;
  }

  [[nodiscard]] std::vector<StageUsage> usage(const Reader& reader) const {
    const std::lock_guard lock(mutex_);
    return {reader.reading, reader.decoding};
  }

 private:
  struct Wanted {
    std::uint64_t step = 0;   // how many frames its reader hands on before it
    std::uint64_t order = 0;  // of asking, among the same steps
    std::shared_ptr<Frame> frame{};
    std::shared_ptr<Reader> reader{};
    bool operator<(const Wanted& other) const {  // the less, the later
      return step != other.step ? step > other.step : order > other.order;
    }
  };

  PictureService(const std::filesystem::path& path, Store store)
      : list_(std::make_shared<const PictureList>(list_pictures(store, path))),
        handles_(path, std::move(store), std::min(pool_->size(), most_handles), *pool_),
        standing_(list_->pictures.size()),
        handed_on_(list_->pictures.size()) {
    decoder_.prepare(list_->pictures.size(), [this](std::size_t i) {
      std::vector<std::uint8_t> bytes;
      handles_.read(list_->pictures[i], bytes);
      return bytes;
    });
  }

  [[nodiscard]] std::size_t following(std::size_t index) const {
    return index + 1 == list_->pictures.size() ? 0 : index + 1;
  }

  void stand(Reader& reader, std::size_t index) {
    --standing_[reader.at];
    ++standing_[index];
    reader.at = index;
  }

  /// Its readers were not to be asked twice for a frame. Where that happens all the same it is
  /// no use to leave frames out when reading ahead.
  void notice_if_asked_again(Reader& reader) {
    const bool again = reader.once && reader.queue.empty() && handed_on_[reader.at];
    reader.asked_again = again ? reader.asked_again + 1 : 0;
    if (reader.asked_again > 1) reader.once = false;
  }

  /// Whether another reader hands that frame on, or one has done so, and that is enough.
  [[nodiscard]] bool left_out(const Reader& reader, std::size_t index) const {
    return reader.once &&
           (handed_on_[index] || standing_[index] > 0 || on_the_way_.contains(index));
  }

  /// Many frames at a time, for the sake of decoders that like to have many.
  void refill(const std::shared_ptr<Reader>& shared, const FrameShape& shape) {
    Reader& reader = *shared;
    if (reader.queue.size() > reader.ahead / 2) return;
    std::size_t index = (reader.at + reader.queue.size()) % list_->pictures.size();
    while (reader.queue.empty() ||
           (reader.queue.size() < reader.ahead && !left_out(reader, index))) {
      want(shared, index, shape);
      index = following(index);
    }
    dispatch();
  }

  void want(const std::shared_ptr<Reader>& reader, std::size_t index, const FrameShape& shape) {
    auto& known = on_the_way_[index];
    auto frame = known;
    if (!frame || frame->shape != shape) {
      frame = known = std::make_shared<Frame>();
      frame->index = index;
      frame->shape = shape;
      frame->owner = reader.get();
      wanted_.push({reader->handed + reader->queue.size(), ++asked_, frame, reader});
    }
    ++frame->queues;
    reader->queue.push_back(frame);
  }

  /// Frames of another shape.
  void drop_others(Reader& reader, const FrameShape& shape) noexcept {
    if (!reader.queue.empty() && reader.queue.front()->shape != shape) drop_queue(reader);
  }

  void drop_queue(Reader& reader) noexcept {
    for (const auto& frame : reader.queue) leave(reader, *frame);
    reader.queue.clear();
  }

  void leave(Reader& reader, Frame& frame) noexcept {
    if (frame.owner == &reader) {
      frame.owner = nullptr;
      if (frame.done) --reader.ready;
    }
    if (--frame.queues > 0) return;
    const auto known = on_the_way_.find(frame.index);
    if (known != on_the_way_.end() && known->second.get() == &frame) on_the_way_.erase(known);
  }

  void dispatch() {
    while (in_work_ < Decoder::in_work(pool_->size()) && !wanted_.empty()) {
      Wanted wanted = wanted_.top();
      wanted_.pop();
      if (wanted.frame->queues == 0) continue;  // nobody asks for it any more
      ++in_work_;
      decoder_.expect();
      pool_->submit([this, wanted = std::move(wanted)] { make(wanted); });
    }
  }

  /// The service may be gone when it returns.
  void make(const Wanted& wanted) noexcept {
    thread_local std::vector<std::uint8_t> bytes;
    Stopwatch watch;
    std::exception_ptr unread;
    Frame& frame = *wanted.frame;
    try {
      frame.pixels.resize(frame.shape.size());
      handles_.read(list_->pictures[frame.index], bytes);
    } catch (...) {
      unread = std::current_exception();
      bytes.clear();
    }
    const double reading = watch.lap();
    decoder_.decode(bytes, frame.shape, frame.pixels,
                    [this, wanted, unread, reading](bool readable, std::exception_ptr failure,
                                                    double decoding) {
                      wanted.frame->readable = readable;
                      wanted.frame->failure = unread ? unread : failure;
                      finish(wanted, reading, decoding);
                    });
  }

  void finish(const Wanted& wanted, double reading, double decoding) noexcept {
    const std::lock_guard lock(mutex_);
    wanted.frame->done = true;
    if (wanted.frame->owner != nullptr) ++wanted.reader->ready;
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
  static constexpr std::size_t many_ahead = 128;  ///< frames for which all handles are needed

  std::shared_ptr<DecodePool> pool_ = DecodePool::shared();
  std::shared_ptr<const PictureList> list_;
  StoreHandles<Store> handles_;
  Decoder decoder_;
  mutable std::mutex
      mutex_;  // over what follows, the readers, and their frames until they are done
  std::vector<std::uint32_t> standing_;  // by picture: how many readers hand it on next
  std::vector<bool> handed_on_;          // by picture: to one who will not ask for it again
  std::unordered_map<std::size_t, std::shared_ptr<Frame>> on_the_way_;  // in somebody's queue
  std::priority_queue<Wanted> wanted_;                                  // not begun
  std::uint64_t asked_ = 0;
  std::size_t in_work_ = 0;
  std::size_t ahead_ = 0;  // frames that readers were told to have ahead, in all
  std::condition_variable ready_;
  std::condition_variable idle_;
};

}  // namespace detail

}  // namespace pvm::inline v0::io
