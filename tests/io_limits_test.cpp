// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Small files that would take gigabytes or minutes, decoders that talk, and waiting for them.

#include <atomic>
#include <chrono>
#include <cstdio>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>

#include <opencv2/core.hpp>

#include <pvm/io/codec_messages.hpp>
#include <pvm/io/image_check.hpp>
#include <pvm/io/memory_gate.hpp>
#include <pvm/io/open.hpp>
#include <pvm/io/prefetch.hpp>
#include <pvm/io/resize.hpp>

#include "io_helpers.hpp"
#include "oriented_files.hpp"

using namespace pvm_test;

namespace {

std::string little(std::uint64_t value, std::size_t count) {
  return number_bytes(value, count, false);
}

/// The start of a TIFF with these entries, each of one 32-bit number.
Bytes tiff_of(const std::vector<std::pair<unsigned, std::uint64_t>>& entries) {
  std::string file = "II" + little(42, 2) + little(8, 4) + little(entries.size(), 2);
  for (const auto& [tag, value] : entries) {
    file += little(tag, 2) + little(4, 2) + little(1, 4) + little(value, 4);
  }
  return bytes_of(file + little(0, 4));
}

Bytes webp_of(const std::string& chunks) {
  return bytes_of("RIFF" + little(chunks.size() + 4, 4) + "WEBP" + chunks);
}
std::string webp_lossless(std::uint64_t width, std::uint64_t height) {
  return "VP8L" + little(6, 4) + '\x2F' + little((width - 1) | (height - 1) << 14, 4) + '\0';
}
std::string webp_canvas(std::uint64_t width, std::uint64_t height, char flags = 0) {
  return "VP8X" + little(10, 4) + flags + std::string(3, '\0') + little(width - 1, 3) +
         little(height - 1, 3);
}

/// A grey progressive JPEG with its first scan and `more` further ones.
Bytes progressive(unsigned side, int more) {
  const auto segment = [](char marker, const std::string& content) {
    return std::string("\xFF") + marker + number_bytes(content.size() + 2, 2, true) + content;
  };
  const auto table = [](char id, char value) {
    return std::string(1, id) + '\1' + std::string(15, '\0') + value;
  };
  std::string file = "\xFF\xD8" + segment('\xDB', '\0' + std::string(64, '\1'));
  file += segment('\xC2', '\x08' + number_bytes(side, 2, true) + number_bytes(side, 2, true) +
                              std::string("\1\1\x11\0", 4));
  file += segment('\xC4', table('\0', '\0')) + segment('\xC4', table('\x10', '\xE0'));
  const std::size_t blocks = std::size_t{(side + 7) / 8} * ((side + 7) / 8);
  file += segment('\xDA', std::string("\1\1\0\0\0\0", 6)) + std::string((blocks + 7) / 8, '\0');
  const std::string body(((blocks + 16383) / 16384 * 15 + 7) / 8, '\0');
  for (int i = 0; i < more; ++i) {
    const char band = static_cast<char>(1 + i % 63);
    file += segment('\xDA', std::string("\1\1\0", 3) + band + band + '\0') + body;
  }
  return bytes_of(file + "\xFF\xD9");
}

bool can_be_decoded(const Bytes& bytes) {
  Bytes pixels(small_shape.size());
  return static_cast<bool>(io::decode_image(bytes, small_shape, pixels));
}

/// A source whose second frame takes a minute, or as long as it is wanted.
class Hanging {
 public:
  explicit Hanging(std::shared_ptr<std::atomic<bool>> end) : end_(std::move(end)) {}
  io::FrameInfo next(io::FrameShape, std::span<std::uint8_t> pixels) {
    while (position_.frame > 0 && !*end_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::fill(pixels.begin(), pixels.end(), std::uint8_t{7});
    return {position_.frame++ == 0, {}};
  }
  [[nodiscard]] io::Position position() const { return position_; }
  void seek(const io::Position& position) { position_ = position; }
  [[nodiscard]] std::optional<std::uint64_t> length() const { return std::nullopt; }
  [[nodiscard]] std::uint64_t skipped() const { return 0; }
  [[nodiscard]] std::string name() const { return "hanging"; }

 private:
  std::shared_ptr<std::atomic<bool>> end_;
  io::Position position_;
};

/// A picture decoder that hangs at all pictures but the first.
struct HangingDecoder : io::CpuPictureDecoder {
  static inline std::atomic<bool> end = false;
  template <class Done>
  void decode(Bytes& bytes, const io::FrameShape& shape, std::span<std::uint8_t> pixels,
              const Done& done) noexcept {
    if (bytes != encoded(picture(0))) {
      while (!end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    io::CpuPictureDecoder::decode(bytes, shape, pixels, done);
  }
};

/// Whether `next` of a source that hangs throws Stopped soon after it is asked to, and not before.
template <class S>
void check_stops(S& source) {
  std::atomic<bool> asked = false;
  io::stop_when(source, &asked);
  const io::Position before = source.position();
  std::atomic<bool> stopped = false;
  std::thread reader([&] {
    try {
      read(source);
    } catch (const io::Stopped&) {
      stopped = true;
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  CHECK_FALSE(stopped);
  const auto start = std::chrono::steady_clock::now();
  asked = true;
  reader.join();
  CHECK(stopped);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(1));
  CHECK(source.position() == before);
  static_cast<void>(io::usage(source));  // does not wait for it either
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(1));
  io::stop_when(source, nullptr);
}

/// The process may open no file more during its lifetime.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    getrlimit(RLIMIT_NOFILE, &was_);
    rlimit none = was_;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreFiles() { setrlimit(RLIMIT_NOFILE, &was_); }
  NoMoreFiles(const NoMoreFiles&) = delete;
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;

 private:
  rlimit was_{};
};

}  // namespace

TEST_CASE("a picture's size is known before it is decoded", "[io][limits]") {
  const cv::Mat drawn = picture(1, 70, 50);
  for (const std::string extension : {".jpg", ".png", ".bmp", ".tif", ".webp", ".ppm"}) {
    const Bytes bytes = encoded(drawn, extension);
    if (bytes.empty()) continue;  // this OpenCV has no WebP
    const auto facts = io::image_facts(bytes);
    INFO(extension);
    REQUIRE(facts);
    CHECK(facts->width == 70);
    CHECK(facts->height == 50);
    CHECK(facts->orientation.upright());
    CHECK(can_be_decoded(bytes));
  }
}

TEST_CASE("files that claim too many pixels are refused in every format", "[io][limits]") {
  using Entries = std::vector<std::pair<unsigned, std::uint64_t>>;
  const Entries small = {{256, 100}, {257, 100}, {258, 8}, {259, 1}, {277, 1}};
  const auto with = [&small](Entries changes) {
    Entries all = small;
    for (const auto& change : changes) {
      bool replaced = false;
      for (auto& entry : all) {
        if (entry.first == change.first) entry = change, replaced = true;
      }
      if (!replaced) all.push_back(change);
    }
    return tiff_of(all);
  };
  CHECK(io::image_facts(tiff_of(small)));
  CHECK(io::image_facts(with({{322, 64}, {323, 64}})));
  const std::vector<Entries> bombs = {{{256, 32767}, {257, 32767}},
                                      {{256, 0xFFFF'FFFF}},
                                      {{257, 0}},
                                      {{322, 30000}, {323, 30000}},  // tiles
                                      {{322, 16}, {323, 1U << 27}},  // tiles, padded
                                      {{322, 16}},                   // a tile without height
                                      {{277, 60000}},                // samples of a pixel
                                      {{258, 4096}},                 // bits of a sample
                                      {{259, 34925}},                // LZMA
                                      {{256, 11000}, {257, 11000}, {258, 64}, {277, 4}}};
  for (const Entries& bomb : bombs) {
    CHECK_FALSE(io::image_facts(with(bomb)));
    CHECK_FALSE(can_be_decoded(with(bomb)));
  }
  CHECK_FALSE(io::image_facts(tiff_of({{257, 100}})));  // no width

  CHECK(io::image_facts(webp_of(webp_lossless(100, 100))));
  CHECK(io::image_facts(webp_of(webp_canvas(100, 100) + webp_lossless(100, 100))));
  CHECK_FALSE(io::image_facts(webp_of(webp_lossless(16384, 16384))));
  CHECK_FALSE(io::image_facts(webp_of(webp_canvas(1 << 24, 1 << 24) + webp_lossless(100, 100))));
  CHECK_FALSE(io::image_facts(webp_of(webp_canvas(100, 100) + webp_lossless(16000, 8000))));
  CHECK_FALSE(io::image_facts(webp_of(webp_canvas(16384, 16384, '\2'))));  // animated
  CHECK_FALSE(io::image_facts(webp_of("ICCP" + little(2, 4) + "xx")));

  CHECK_FALSE(io::image_facts(bytes_of("P6 20000 20000 255\n")));
  // A reader that takes the digits behind the # for a number sees another size.
  CHECK_FALSE(io::image_facts(bytes_of("P5 9#30000\n 9 255\n" + std::string(100, ' '))));
  CHECK_FALSE(io::image_facts(bytes_of("Pf\n9 9\n-1.0\n" + std::string(400, ' '))));
  for (const char* magic : {"GIF89a", "#?RADIANCE\n", "\x76\x2f\x31\x01", "\x59\xa6\x6a\x95",
                            "P3 1 1 255 1 1 1 ", "P7\n", "\xFF\x4F\xFF\x51"}) {
    CHECK_FALSE(io::image_facts(bytes_of(magic + std::string(100, ' '))));
  }
}

TEST_CASE("a JPEG of hundreds of scans is refused, one of ten is read", "[io][limits]") {
  CHECK(can_be_decoded(progressive(64, 9)));
  CHECK(io::image_facts(progressive(64, 99)));
  CHECK_FALSE(io::image_facts(progressive(64, 100)));
  CHECK_FALSE(can_be_decoded(progressive(64, 3000)));
  CHECK(io::image_facts(progressive(8000, 20)));
  CHECK_FALSE(io::image_facts(progressive(8000, 90)));  // fewer, but of 64 million pixels
  CHECK(can_be_decoded(encoded(picture(1), ".jpg")));
}

TEST_CASE("what decoders take is bounded for one picture and for all", "[io][limits]") {
  const auto grey = io::image_facts(progressive(8000, 9));
  REQUIRE(grey);
  CHECK(grey->decoding_bytes > 8000ULL * 8000 * (3 + 2));  // pixels, and coefficients of 16 bits
  CHECK(grey->decoding_bytes <= io::most_decoding_bytes);

  io::MemoryGate gate(100);
  std::atomic<int> used = 0, most = 0, done = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 200; ++k) {
        const int bytes = 10 + (i * 37 + k * 11) % 60;
        const auto hold = gate.enter(static_cast<std::uint64_t>(bytes));
        const int now = used += bytes;
        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        if (k % 16 == 0) std::this_thread::yield();
        used -= bytes;
        ++done;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(done == 1600);
  CHECK(most <= 100);
  const auto alone = gate.enter(1000);  // more than all: let in if nobody else is
  auto other = std::async(std::launch::async, [&] { static_cast<void>(gate.enter(1)); });
  CHECK(other.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  { const auto gone = std::move(const_cast<io::MemoryGate::Hold&>(alone)); }
  other.get();
}

TEST_CASE("chunks that do not change a PNG's pixels are left out", "[io][limits]") {
  const Bytes whole = encoded(picture(3), ".png");
  Bytes plain;
  Bytes expected(small_shape.size()), pixels(small_shape.size());
  REQUIRE(io::decode_image(whole, small_shape, expected));
  Bytes noisy = whole;
  for (int i = 0; i < 3; ++i) insert(noisy, 33, std::string("\0\0\0\4zTXtabcd\0\0\0\0", 16));
  CHECK(io::without_extras_of_png(noisy, plain));
  CHECK(plain.size() <= whole.size());
  const Messages messages;
  CHECK(io::decode_image(noisy, small_shape, pixels));
  CHECK(pixels == expected);
  CHECK(messages.count() == 0);
}

#if defined(__GLIBC__)
TEST_CASE("what codecs print goes to the log, and nothing else does", "[io][limits]") {
  std::FILE* const before = stderr;
  const Messages messages;
  {
    const io::CodecMessages to_the_log;
    std::fprintf(stderr, "libxyz warning: %s", "odd");
    std::fprintf(stderr, "\n");
    CHECK(messages.count() == 0);  // not from inside of the print
    std::thread([] { std::fprintf(stderr, "%s", ""); }).join();
    CHECK(stderr != before);
  }
  CHECK(stderr == before);
  CHECK(messages.count("libxyz warning: odd") == 1);
  {
    const io::CodecMessages to_the_log;
    std::fprintf(stderr, "libxyz warning: odd\n");
  }
  CHECK(messages.count("libxyz") == 1);  // the same text again
  Bytes damaged = encoded(picture(1, 64, 48), ".png");
  damaged[damaged.size() / 2] ^= 0x55;
  CHECK_FALSE(can_be_decoded(damaged));
  CHECK(stderr == before);
}
#endif

TEST_CASE("waiting for a decoder that hangs ends when it is asked to", "[io][limits]") {
  {
    const auto end = std::make_shared<std::atomic<bool>>(false);
    io::Prefetch source{Hanging{end}};
    read(source);
    check_stops(source);
    *end = true;
    CHECK(read(source).pixels[0] == 7);
  }
  const TempDir dir;
  write_zip(dir / "a.zip", numbered(5));
  HangingDecoder::end = false;
  io::AnySource source{io::PictureReader<io::ZipStore, HangingDecoder>(dir / "a.zip")};
  CHECK(number_of(read(source), 5) == 0);
  check_stops(source);
  HangingDecoder::end = true;
  CHECK(numbers_of(read_many(source, 4), 5) == std::vector{1, 2, 3, 4});
}

TEST_CASE("too many open files are named as that, wherever one is opened", "[io][limits]") {
  const TempDir dir;
  const Messages messages;
  write_zip(dir / "a.zip", numbered(2));
  write_video(dir / "a.avi", 2);
  std::filesystem::create_directory(dir / "d");
  for (int i = 0; i < 2; ++i) {
    write_file(dir / "d" / (std::to_string(i) + ".jpg"), encoded(picture(i)));
  }
  io::ImageDirectory pictures(dir / "d");
  io::Video video(dir / "a.avi");
  const auto opened = [&](const std::string& name) {
    return failure(pvm::Fault::source, [&] { io::open_source((dir / name).string()); });
  };
  const NoMoreFiles now;
  for (const char* name : {"a.zip", "a.avi", "d"}) {
    CHECK(contains(opened(name), "too many open files"));
  }
  CHECK(contains(open_failure<io::Zip>(dir / "a.zip"), "too many open files"));
  CHECK(contains(open_failure<io::Video>(dir / "a.avi"), "too many open files"));
  CHECK(contains(open_failure<io::ImageDirectory>(dir / "d"), "too many open files"));
  CHECK(contains(failure(pvm::Fault::source, [&] { read(pictures); }), "too many open files"));
  CHECK(pictures.skipped() == 0);
  CHECK(contains(failure(pvm::Fault::source, [&] { read_many(video, 5); }), "too many open files"));
}

TEST_CASE("a directory that vanishes is named as vanished", "[io][limits]") {
  const TempDir dir;
  const Messages messages;
  std::filesystem::create_directory(dir / "d");
  for (int i = 0; i < 3; ++i) {
    write_file(dir / "d" / (std::to_string(i) + ".jpg"), encoded(picture(i)));
  }
  io::ImageDirectory plain(dir / "d");
  auto ahead = io::open_source((dir / "d").string());
  CHECK(number_of(read(plain), 3) == 0);
  CHECK(number_of(read(ahead), 3) == 0);
  std::filesystem::remove_all(dir / "d");
  CHECK(contains(failure(pvm::Fault::source, [&] { read(plain); }), "has vanished"));
  ahead.seek({0, 2, 0});
  CHECK(contains(failure(pvm::Fault::source, [&] { read(ahead); }), "has vanished"));
  CHECK(messages.count() == 0);  // not one for each picture
}

TEST_CASE("ten unreadable pictures are named, the others counted", "[io][limits]") {
  const TempDir dir;
  const Messages messages;
  Entries entries = numbered(40);
  for (std::size_t i = 0; i < 30; ++i) entries[i].second = bytes_of("text");
  write_zip(dir / "a.zip", entries);
  {
    io::Zip zip(dir / "a.zip");
    read_many(zip, 25);
    CHECK(zip.skipped() == 30);
    CHECK(messages.count("is skipped") == 10);
    CHECK(messages.count("only counted") == 1);
    CHECK(messages.count() == 10);
  }
  CHECK(messages.count("20 more frames of") == 1);
  CHECK(messages.count("30 in all") == 1);
  CHECK(messages.count() == 11);
}

TEST_CASE("a zip with backslashes in its names is read like another", "[io][limits]") {
  const TempDir dir;
  const Messages messages;
  Entries entries;
  for (int i = 0; i < 3; ++i) {
    entries.emplace_back("seq\\" + std::to_string(i) + ".jpg", encoded(picture(i)));
    entries.emplace_back("__MACOSX\\seq\\._" + std::to_string(i) + ".jpg", bytes_of("junk"));
    entries.emplace_back("seq\\.hidden\\" + std::to_string(i) + ".jpg", bytes_of("junk"));
  }
  entries.emplace_back("seq\\labels.txt", bytes_of("1,2,3,4\n-1,-1,-1,-1\n5,6,7,8\n"));
  entries.emplace_back("__MACOSX\\seq\\._labels.txt", bytes_of("junk"));
  write_zip(dir / "a.zip", entries);
  io::Zip zip(dir / "a.zip");
  CHECK(zip.length() == 3);
  CHECK(numbers_of(read_many(zip, 3), 3) == std::vector{0, 1, 2});
  CHECK(messages.count() == 0);
}
