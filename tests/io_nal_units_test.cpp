// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include <pvm/io/byte_queue.hpp>
#include <pvm/io/nal_units.hpp>

#include "io_helpers.hpp"

using namespace pvm_test;

namespace {

constexpr std::uint8_t h264_slice = 0x41, h264_idr = 0x65, h264_sps = 0x67;
constexpr std::uint8_t hevc_slice = 0x02, hevc_idr = 0x26, hevc_cra = 0x2A, hevc_sps = 0x42;

/// A packet of units, each of which is its header byte and some bytes that contain no start code,
/// preceded by its length, or by a start code if `length_bytes` is 0.
Bytes packet(const std::vector<std::uint8_t>& units, std::size_t length_bytes) {
  Bytes bytes;
  for (const std::uint8_t unit : units) {
    if (length_bytes == 0) {
      bytes.insert(bytes.end(), {0, 0, 0, 1});
    } else {
      bytes.insert(bytes.end(), length_bytes, 0);
      bytes.back() = 4;
    }
    bytes.insert(bytes.end(), {unit, 9, 0, 3});
  }
  return bytes;
}

constexpr std::uint8_t avcc[] = {1, 100, 0, 40, 0xFF, 0};

/// The indices of the packets, out of 1,000, at which segments begin, if every 20th packet holds
/// `units` and all other packets hold the unit `other`.
std::vector<int> cuts(io::NalSegments segments, std::size_t length_bytes,
                      const std::vector<std::uint8_t>& units, std::uint8_t other) {
  std::vector<int> found;
  for (int i = 0; i < 1000; ++i) {
    const auto& held = i % 20 == 0 ? units : std::vector<std::uint8_t>{other};
    if (segments.begins(packet(held, length_bytes))) found.push_back(i);
  }
  return found;
}

}  // namespace

TEST_CASE("a stream is cut where decoding may begin", "[io]") {
  using io::NalCodec;
  using io::NalSegments;
  CHECK(io::nal_length_bytes(NalCodec::h264, avcc) == 4);
  CHECK(io::nal_length_bytes(NalCodec::h264, {}) == 0);
  const std::vector<int> wanted{260, 520, 780};
  CHECK(cuts(NalSegments(NalCodec::h264, avcc), 4, {h264_idr}, h264_slice) == wanted);
  CHECK(cuts(NalSegments(NalCodec::h264, {}), 0, {h264_sps, h264_idr}, h264_slice) == wanted);
  CHECK(cuts(NalSegments(NalCodec::hevc, {}), 0, {hevc_sps, hevc_idr}, hevc_slice) == wanted);
  // Pictures behind these may refer to earlier ones.
  CHECK(cuts(NalSegments(NalCodec::h264, avcc), 4, {h264_slice}, h264_slice).empty());
  CHECK(cuts(NalSegments(NalCodec::hevc, {}), 0, {hevc_cra}, hevc_slice).empty());
}

TEST_CASE("a stream is not cut behind parameters that are not repeated", "[io]") {
  io::NalSegments segments(io::NalCodec::h264, {});
  std::vector<int> found;
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::uint8_t> units{h264_slice};
    if (i % 300 == 0) units = {h264_idr};
    if (i == 0 || i == 350 || i == 900) units.push_back(h264_sps);
    if (segments.begins(packet(units, 0))) found.push_back(i);
  }
  CHECK(found == std::vector<int>{900});
}

TEST_CASE("damaged lengths end a packet", "[io]") {
  Bytes bytes = packet({h264_slice, h264_idr}, 4);
  bytes[3] = 200;
  CHECK_FALSE(io::nal_facts(io::NalCodec::h264, bytes, 4).refresh);
  CHECK_FALSE(io::nal_facts(io::NalCodec::h264, {}, 4).refresh);
  const Bytes nothing(64, 0);
  CHECK_FALSE(io::nal_facts(io::NalCodec::h264, nothing, 4).refresh);
}

TEST_CASE("a queue is bounded by bytes, and lets go when it is closed", "[io]") {
  io::ByteQueue<int> queue(10);
  CHECK(queue.put(1, 100));  // an empty one takes anything
  std::atomic<int> put = 0;
  std::thread writer([&] {
    for (int i = 2; queue.put(i, 4); ++i) put = i;
  });
  CHECK(queue.take() == 1);
  for (int i = 2; i < 50; ++i) {
    CHECK(queue.take() == i);
    CHECK(put.load() <= i + 3);  // two wait in the queue, and one for room
  }
  queue.close();
  writer.join();
  CHECK_FALSE(queue.take());
  CHECK_FALSE(queue.put(0, 0));
}
