// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// PictureReader: pictures decoded ahead, for one reader and for several of the same file.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include <pvm/io/deal.hpp>
#include <pvm/io/image_dir.hpp>
#include <pvm/io/jpeg_batches.hpp>
#include <pvm/io/picture_reader.hpp>
#include <pvm/io/zip.hpp>

#include "io_helpers.hpp"
#include "oriented_files.hpp"

using namespace pvm_test;

namespace {

using Zips = io::PictureReader<io::ZipStore>;
using Directories = io::PictureReader<io::DirectoryStore>;

Entries with_bad_ones(int frames, const std::vector<std::size_t>& bad) {
  Entries entries = numbered(frames);
  for (const std::size_t i : bad) entries[i].second = bytes_of("text");
  return entries;
}

/// A FileStore with pictures in memory. Counts reads, and how many were in progress at once.
class CountingStore {
 public:
  struct Shelf {
    Entries entries;
    std::atomic<int> reads = 0, at_once = 0, most_at_once = 0, open = 0;
    bool uneven = false;  ///< of ten pictures, reading the earlier ones takes longer

    int take_reads() { return reads.exchange(0); }
  };
  static Shelf& shelf() {
    static Shelf shelf;
    return shelf;
  }
  static void fill(Entries entries, bool uneven = false) {
    shelf().entries = std::move(entries);
    shelf().reads = shelf().most_at_once = 0;
    shelf().uneven = uneven;
  }

  explicit CountingStore(const std::filesystem::path&) { ++shelf().open; }
  [[nodiscard]] std::vector<io::StoredFile> files() const {
    std::vector<io::StoredFile> files;
    for (const auto& [name, bytes] : shelf().entries) files.push_back({name, files.size()});
    return files;
  }
  bool read(const io::StoredFile& file, Bytes& bytes) {
    ++shelf().reads;
    const int now = ++shelf().at_once;
    for (int most = shelf().most_at_once; now > most;) {
      if (shelf().most_at_once.compare_exchange_weak(most, now)) break;
    }
    bytes = shelf().entries[file.id].second;
    if (shelf().uneven) {
      std::this_thread::sleep_for(std::chrono::microseconds(100 * (9 - file.id % 10)));
    }
    --shelf().at_once;
    return true;
  }
};

using Counted = io::PictureReader<CountingStore>;

/// A decoder that fails for files of `fails_at` bytes.
class FailingDecoder : public io::CpuPictureDecoder {
 public:
  static inline std::size_t fails_at = 0;

  template <class Done>
  void decode(Bytes& bytes, const io::FrameShape& shape, std::span<std::uint8_t> pixels,
              const Done& done) noexcept {
    if (bytes.size() != fails_at) return CpuPictureDecoder::decode(bytes, shape, pixels, done);
    done(io::PictureSize{},
         std::make_exception_ptr(pvm::Error(pvm::Fault::device, "the device is gone")), 0.0);
  }
};

/// A JpegBatches device that decodes on the CPU. It refuses batches that have a picture of a
/// certain width, can fail, and notices if it is used by two threads in a way that is not allowed.
class FakeDevice {
 public:
  static inline std::atomic<int> batches = 0, pictures = 0, most = 0;
  static inline std::atomic<bool> fails = false, shared = false, readable = true;
  static inline int refuses_width = -1;
  static inline std::chrono::milliseconds pause{};

  void stage(std::span<io::JpegItem> items, std::size_t place) {
    const Use use(stagers, places_.at(place));
    std::uint8_t* to = places_[place].bytes.data();
    for (io::JpegItem& item : items) {
      std::copy(item.bytes.begin(), item.bytes.end(), to);
      item.bytes = {to, item.bytes.size()};
      to += item.bytes.size();
    }
  }
  bool start(std::span<const io::JpegItem> items, std::size_t place, const io::FrameShape& shape) {
    const Use use(starters, places_.at(place));
    ++batches;
    pictures += static_cast<int>(items.size());
    most = std::max<int>(most, static_cast<int>(items.size()));
    Bytes& frames = places_[place].frames;
    frames.assign(items.size() * shape.size(), 0);
    const bool refused = std::any_of(items.begin(), items.end(), [](const io::JpegItem& item) {
      return item.facts.width == refuses_width;
    });
    if (fails) throw pvm::Error(pvm::Fault::device, "the device is gone");
    std::this_thread::sleep_for(pause);
    for (std::size_t i = 0; i < items.size() && !refused; ++i) {
      const auto frame = std::span(frames).subspan(i * shape.size(), shape.size());
      if (!io::decode_image(items[i].bytes, shape, frame)) readable = false;
    }
    return !refused;
  }
  std::span<const std::uint8_t> wait(std::size_t place) {
    const Use use(waiters, places_.at(place));
    std::this_thread::sleep_for(pause / 2);
    return places_[place].frames;
  }

 private:
  struct Place {
    Bytes bytes = Bytes(1 << 21), frames;
    std::atomic<int> users = 0;
  };
  /// Counts the threads in one of the functions and at one of the places.
  struct Use {
    Use(std::atomic<int>& users_, Place& place_) : users(users_), place(place_) {
      if (++users > 1 || ++place.users > 1) shared = true;
    }
    ~Use() { --users, --place.users; }
    std::atomic<int>& users;
    Place& place;
  };

  static inline std::atomic<int> stagers = 0, starters = 0, waiters = 0;
  std::array<Place, 2> places_;
};

using Batches = io::JpegBatches<FakeDevice>;

/// A decoder like GpuPictureDecoder, with one FakeDevice for all files.
class FakeGpuDecoder {
 public:
  static constexpr const char* id = "FAKE ";
  static constexpr const char* stage_name = "decode";
  static constexpr std::size_t ahead = 2 * Batches::batch;
  static std::size_t in_work(std::size_t) { return 3 * Batches::batch; }
  template <class Read>
  void prepare(std::size_t pictures, const Read& read) {
    batches_->warm_up(pictures, read);
  }
  void expect() noexcept { batches_->expect(); }
  template <class Done>
  void decode(Bytes& bytes, const io::FrameShape& shape, std::span<std::uint8_t> pixels,
              Done done) noexcept {
    batches_->decode(bytes, shape, pixels, done);
  }

 private:
  static Batches& all() {
    static Batches batches;
    return batches;
  }
  Batches* batches_ = &all();
};

template <class Store>
using FakeGpu = io::PictureReader<Store, FakeGpuDecoder>;

/// `count` readers of one source, spread over its pictures as `io::deal` does.
template <class S>
std::vector<S> spread(S first, std::size_t count, std::size_t ahead) {
  const auto pictures = static_cast<std::size_t>(*first.length());
  std::vector<S> readers;
  readers.push_back(std::move(first));
  for (std::size_t k = 1; k < count; ++k) {
    readers.push_back(readers.front().share());
    readers.back().seek({0, k * pictures / count, 0});
  }
  for (S& reader : readers) reader.read_ahead(ahead);
  return readers;
}

std::uint64_t decoded(const std::vector<io::StageUsage>& stages) {
  REQUIRE(stages.size() == 2);
  return stages[1].frames;
}

}  // namespace

TEST_CASE("pictures read ahead are those read in turn", "[io][pictures]") {
  const TempDir dir;
  const Messages messages;
  const Entries entries = with_bad_ones(11, {0, 4, 5, 10});
  write_zip(dir / "a.zip", entries, Packing::deflated);
  std::filesystem::create_directory(dir / "d");
  for (const auto& [name, bytes] : entries) write_file(dir / "d" / name, bytes);
  const auto compare = [](auto plain, auto ahead, std::size_t frames) {
    CHECK(io::read_ahead(ahead, frames));
    for (int i = 0; i < 60; ++i) {
      const bool same = read(ahead) == read(plain);
      CHECK(same);
      CHECK(ahead.position() == plain.position());
      CHECK(ahead.skipped() == plain.skipped());
      CHECK(ahead.length() == plain.length());
    }
  };
  for (const std::size_t frames : {1, 2, 5, 32}) {
    compare(io::Zip(dir / "a.zip"), Zips(dir / "a.zip"), frames);
    compare(io::ImageDirectory(dir / "d"), Directories(dir / "d"), frames);
    compare(io::Zip(dir / "a.zip"), FakeGpu<io::ZipStore>(dir / "a.zip"), frames);
  }
}

TEST_CASE("a reader of pictures continues wherever it is told to", "[io][pictures]") {
  const TempDir dir;
  const Messages messages;
  write_zip(dir / "a.zip", with_bad_ones(6, {2, 5}));
  check_resume([&] { return Zips(dir / "a.zip"); }, 12);
  Zips zip(dir / "a.zip");
  read_many(zip, 2);
  CHECK(zip.skipped() == 0);  // however far it has run ahead
  read(zip);
  CHECK(zip.skipped() == 1);
  zip.seek({0, 1, 0});
  CHECK(numbers_of(read_many(zip, 3), 6) == std::vector{1, 3, 4});
  zip.seek_ahead({0, 3, 0});
  CHECK(numbers_of(read_many(zip, 3), 6) == std::vector{3, 4, 0});
  CHECK_FALSE(failure(pvm::Fault::source, [&] { zip.seek({0, 6, 0}); }).empty());
  const io::FrameShape grey{.height = 20, .width = 30, .channels = 1};
  io::Zip plain(dir / "a.zip");
  plain.seek({0, 3, 0});
  zip.seek({0, 3, 0});
  for (int i = 0; i < 20; ++i) {
    const io::FrameShape shape = i % 5 < 3 ? small_shape : grey;
    CHECK(read(zip, shape) == read(plain, shape));
  }
}

TEST_CASE("pictures are decoded side by side and handed on in order", "[io][pictures]") {
  CountingStore::fill(numbered(40), true);
  const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  {
    Counted ahead("shelf");
    ahead.read_ahead(8);
    for (int i = 0; i < 100; ++i) {
      CHECK(number_of(read(ahead), 40) == i % 40);
      CHECK(CountingStore::shelf().reads <= i + 1 + 8);  // bounded
    }
    const auto stages = ahead.usage();
    REQUIRE(stages.size() == 2);
    CHECK(stages[0].name == "read");
    CHECK(stages[1].frames >= 100);
    CHECK(stages[1].busy > 0);
    CHECK(stages[1].capacity == 8);
  }
  CHECK(CountingStore::shelf().at_once == 0);  // nothing is left behind
  CHECK(CountingStore::shelf().most_at_once <= cores);
  if (cores > 1) CHECK(CountingStore::shelf().most_at_once > 1);
}

TEST_CASE("what fails in decoding is thrown at its place", "[io][pictures]") {
  CountingStore::fill(numbered(9));
  CountingStore::shelf().entries[5].second.push_back(0);
  FailingDecoder::fails_at = CountingStore::shelf().entries[5].second.size();
  for (const std::size_t i : {0U, 1U, 2U, 3U, 4U, 6U, 7U, 8U}) {  // no other is as long
    if (CountingStore::shelf().entries[i].second.size() == FailingDecoder::fails_at) {
      CountingStore::shelf().entries[i].second.insert(
          CountingStore::shelf().entries[i].second.end(), 7, 0);
    }
  }
  io::PictureReader<CountingStore, FailingDecoder> ahead("shelf");
  CHECK(numbers_of(read_many(ahead, 5), 9) == std::vector{0, 1, 2, 3, 4});
  for (int i = 0; i < 2; ++i) {
    CHECK(contains(failure(pvm::Fault::device, [&] { read(ahead); }), "is gone"));
    CHECK(ahead.position().frame == 5);
  }
  ahead.seek({0, 6, 0});
  CHECK(numbers_of(read_many(ahead, 4), 9) == std::vector{6, 7, 8, 0});

  const TempDir dir;
  const Messages messages;
  write_zip(dir / "bad.zip", with_bad_ones(3, {0, 1, 2}));
  Zips bad(dir / "bad.zip");
  for (int i = 0; i < 3; ++i) {
    CHECK(contains(failure(pvm::Fault::source, [&] { read(bad); }), "none of the 3 pictures"));
  }
  CHECK(messages.count("is skipped") == 3);
}

TEST_CASE("readers of one file decode each picture once", "[io][pictures]") {
  for (const std::size_t count : {1U, 2U, 5U, 16U}) {
    for (const std::size_t ahead : {1U, 3U, 16U, 200U}) {
      INFO(count << " readers, " << ahead << " ahead");
      CountingStore::fill(numbered(80));
      auto readers = spread(Counted("shelf"), count, ahead);
      for (Counted& reader : readers) reader.expect_once(true);
      for (std::size_t i = 0; i < 80 / count; ++i) {
        for (std::size_t k = 0; k < count; ++k) {
          CHECK(number_of(read(readers[k]), 80) == static_cast<int>(k * 80 / count + i));
        }
      }
      std::uint64_t reported = 0;
      for (const Counted& reader : readers) reported += decoded(reader.usage());
      readers.clear();  // and with them what was ahead
      CHECK(CountingStore::shelf().reads == 80);
      CHECK(reported == 80);
    }
  }
}

TEST_CASE("readers that are asked again read ahead again", "[io][pictures]") {
  CountingStore::fill(numbered(60));
  auto readers = spread(Counted("shelf"), 3, 8);
  for (Counted& reader : readers) reader.expect_once(true);
  for (int i = 0; i < 20; ++i) {
    for (Counted& reader : readers) read(reader);
  }
  CHECK(CountingStore::shelf().take_reads() == 60);
  for (int i = 0; i < 100; ++i) {  // all the same
    for (int k = 0; k < 3; ++k) {
      const Frame frame = read(readers[static_cast<std::size_t>(k)]);
      CHECK(number_of(frame, 60) == (20 * k + 20 + i) % 60);
      CHECK(frame.starts == (number_of(frame, 60) == 0));
    }
  }
  CHECK(CountingStore::shelf().take_reads() <= 300 + 3 * 8);
  for (Counted& reader : readers) reader.expect_once(false);
  CHECK(number_of(read(readers[0]), 60) == 0);
}

TEST_CASE("readers at the same place share what is ahead", "[io][pictures]") {
  CountingStore::fill(numbered(30));
  auto readers = spread(Counted("shelf"), 4, 6);
  for (Counted& reader : readers) reader.seek({0, 7, 0});
  for (int i = 0; i < 20; ++i) {
    for (Counted& reader : readers) CHECK(number_of(read(reader), 30) == 7 + i);
  }
  // + 3: the first frame has left the first reader's queue before the three others ask for it.
  CHECK(CountingStore::shelf().reads <= 20 + 6 + 3);
  readers.erase(readers.begin());  // the others continue without the first
  CHECK(number_of(read(readers[2]), 30) == 27);
}

TEST_CASE("an unreadable picture is named once and counted by each reader", "[io][pictures]") {
  const TempDir dir;
  const Messages messages;
  write_zip(dir / "a.zip", with_bad_ones(10, {2, 6, 7}));
  auto readers = spread(Zips(dir / "a.zip"), 3, 4);
  for (Zips& reader : readers) reader.seek({});
  for (Zips& reader : readers) {
    CHECK(numbers_of(read_many(reader, 8), 10) == std::vector{0, 1, 3, 4, 5, 8, 9, 0});
    CHECK(reader.skipped() == 3);
  }
  CHECK(messages.count("is skipped") == 3);
  CHECK(messages.count("6.jpg") == 1);
}

TEST_CASE("readers of one file may be on different threads", "[io][pictures]") {
  const TempDir dir;
  write_zip(dir / "a.zip", numbered(25));
  const auto frames = [&] {
    io::Zip zip(dir / "a.zip");
    return read_many(zip, 25);
  }();
  const auto check = [&](auto first) {
    auto readers = spread(std::move(first), 4, 5);
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (std::size_t k = 0; k < readers.size(); ++k) {
      threads.emplace_back([&, k] {
        for (std::size_t i = 0; i < 60; ++i) {
          if (i % 20 == 10) readers[k].expect_once(i % 40 == 10);
          if (i % 7 == k) readers[k].seek({0, (5 * i + k) % 25, 0});
          if (i % 11 == k) readers[k] = readers[k].share();
          const auto at = static_cast<std::size_t>(readers[k].position().frame);
          Frame frame = read(readers[k]);
          wrong += frame.pixels == frames[at].pixels ? 0 : 1;
        }
      });
    }
    for (auto& thread : threads) thread.join();
    CHECK(wrong == 0);
  };
  check(Zips(dir / "a.zip"));
  check(FakeGpu<io::ZipStore>(dir / "a.zip"));
}

TEST_CASE("the streams of a batch share file, decoder and frames", "[io][pictures]") {
  CountingStore::fill(numbered(64));
  CountingStore::shelf().open = 0;
  auto streams = io::deal({[] { return Counted("shelf"); }}, 16);
  for (auto& stream : streams) stream.expect_once(true);
  for (int i = 0; i < 4; ++i) {
    for (std::size_t k = 0; k < 16; ++k) {
      const Frame frame = read(streams[k]);
      CHECK(number_of(frame, 64) == static_cast<int>(4 * k) + i);
      CHECK(frame.starts == (i == 0));
    }
  }
  CHECK(CountingStore::shelf().reads == 64);
  CHECK(CountingStore::shelf().open <=
        static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
}

TEST_CASE("streams that are prepared decode before they are read", "[io][pictures]") {
  CountingStore::fill(numbered(64));
  auto streams = io::deal({[] { return Counted("shelf"); }}, 16);
  for (auto& stream : streams) stream.expect_once(true);
  for (auto& stream : streams) io::prepare(stream, small_shape);
  const auto given_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (CountingStore::shelf().reads < 64 && std::chrono::steady_clock::now() < given_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(CountingStore::shelf().reads == 64);
  for (std::size_t k = 0; k < 16; ++k) {
    CHECK(streams[k].position().frame == 4 * k);
    const Frame frame = read(streams[k]);
    CHECK(number_of(frame, 64) == static_cast<int>(4 * k));
    CHECK(frame.starts);
  }
  const io::FrameShape other{.height = 20, .width = 30, .channels = 1};
  io::prepare(streams[0], other);  // another shape: the frames made for it are dropped
  CHECK(number_of(read(streams[0]), 64) == 1);
}

TEST_CASE("a file that is played once in a row of files is decoded once", "[io][pictures]") {
  CountingStore::fill(numbered(20));
  const io::Opener open = [] { return Counted("shelf"); };
  io::Sequences all({open, open, open});
  CHECK(number_of(read_many(all, 60).back(), 20) == 19);
  CHECK(CountingStore::shelf().reads == 60);
}

TEST_CASE("threads do not read far ahead of a slow device", "[io][pictures]") {
  constexpr std::size_t count = 2000;
  const Bytes jpeg = encoded(picture(1));
  FakeDevice::pause = std::chrono::milliseconds(1);
  FakeDevice::batches = FakeDevice::most = 0;
  std::atomic<int> next = 0, begun = 0, most = 0, made = 0;
  Batches batches;
  for (std::size_t i = 0; i < count; ++i) batches.expect();
  const auto work = [&] {
    while (next++ < static_cast<int>(count)) {
      Bytes bytes = jpeg;
      auto pixels = std::make_shared<Bytes>(small_shape.size());
      const int now = ++begun;
      for (int seen = most; now > seen;) {
        if (most.compare_exchange_weak(seen, now)) break;
      }
      batches.decode(bytes, small_shape, *pixels,
                     [&begun, &made, pixels](io::PictureSize size, std::exception_ptr, double) {
                       --begun;
                       made += size ? 1 : 0;
                     });
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) threads.emplace_back(work);
  for (auto& thread : threads) thread.join();
  CHECK(made == static_cast<int>(count));
  constexpr auto batch = static_cast<int>(Batches::batch);
  CHECK(most <= 4 * batch + 3 * batch + 6);  // waiting; in the three stages; being read
  CHECK(FakeDevice::most == batch);
  CHECK(FakeDevice::batches <= 2 + 2 * static_cast<int>(count) / batch);
  FakeDevice::pause = {};
}

TEST_CASE("JPEGs of all files go through one device in batches", "[io][pictures]") {
  const TempDir dir;
  const Messages messages;
  const auto make = [&](const std::string& name, int first) {
    Entries entries;
    for (int i = 0; i < 150; ++i) {
      const cv::Mat drawn = picture(first + i, i % 50 == 20 ? 48 : 64, 48);
      Bytes bytes = encoded(drawn);
      if (i % 30 == 3) bytes = cut(bytes, 0.6);
      if (i % 30 == 5) bytes = encoded(drawn, ".png");
      if (i % 30 == 9) bytes = bytes_of("text");
      entries.emplace_back(std::to_string(i) + ".jpg", bytes);
    }
    write_zip(dir / name, entries);
  };
  make("a.zip", 0);
  make("b.zip", 50);
  for (const int refused : {-1, 48}) {
    FakeDevice::refuses_width = refused;
    FakeDevice::batches = FakeDevice::pictures = FakeDevice::most = 0;
    std::vector<io::AnySource> plain, gpu;
    for (const char* name : {"a.zip", "b.zip"}) {
      auto readers = spread(FakeGpu<io::ZipStore>(dir / name), 3, 64);
      for (std::size_t k = 0; k < 3; ++k) {
        gpu.emplace_back(std::move(readers[k]));
        io::Zip zip(dir / name);
        zip.seek(gpu.back().position());
        plain.emplace_back(std::move(zip));
      }
    }
    for (auto& stream : gpu) stream.expect_once(true);
    for (int i = 0; i < 45; ++i) {
      for (std::size_t k = 0; k < gpu.size(); ++k) {
        const bool same = read(gpu[k]) == read(plain[k]);
        CHECK(same);
        CHECK(gpu[k].position() == plain[k].position());
        CHECK(gpu[k].skipped() == plain[k].skipped());
      }
    }
    std::uint64_t frames = 0;
    for (auto& stream : gpu) frames += decoded(stream.usage());
    CHECK(frames <= 300);
    CHECK(FakeDevice::most <= static_cast<int>(Batches::batch));
    CHECK(FakeDevice::batches > 0);
    if (refused < 0) CHECK(FakeDevice::batches <= 10 + FakeDevice::pictures / 10);
    CHECK(FakeDevice::readable);
    CHECK_FALSE(FakeDevice::shared);  // never used by two threads at once where not allowed
  }
  FakeDevice::refuses_width = -1;

  FakeGpu<io::ZipStore> failing(dir / "a.zip");
  FakeDevice::fails = true;
  CHECK(contains(failure(pvm::Fault::device, [&] { read(failing); }), "is gone"));
  FakeDevice::fails = false;
  failing.seek({0, 1, 0});
  CHECK(read(failing).pixels.size() == small_shape.size());
}

TEST_CASE("labels follow JPEGs that are turned, on a device, too", "[io][pictures]") {
  const TempDir dir;
  Entries entries;
  std::string labels;
  for (unsigned number = 1; number <= 8; ++number) {
    entries.emplace_back(std::to_string(number) + ".jpg", jpeg_with_exif(number));
    labels += "4,8,12,16\n";
  }
  entries.emplace_back("labels.txt", bytes_of(labels));
  write_zip(dir / "a.zip", entries);
  io::Zip plain(dir / "a.zip");
  FakeGpu<io::ZipStore> gpu(dir / "a.zip");
  for (unsigned number = 1; number <= 8; ++number) {
    INFO("orientation " << number);
    const Frame frame = read(plain);
    CHECK(frame == read(gpu));
    // The pictures are 48 x 32 as they are stored, and 32 x 48 as they are seen from number 5 on.
    const float x = 4.0F * 16 / (number < 5 ? 48 : 32), y = 8.0F * 12 / (number < 5 ? 32 : 48);
    CHECK(std::abs(frame.label.box.x - x) < 1e-5F);
    CHECK(std::abs(frame.label.box.y - y) < 1e-5F);
  }
}
