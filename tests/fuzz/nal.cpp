// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// NAL units: the first byte chooses the codec, the second the length of the stream's header; the
/// rest are packets, each behind a byte with its length.

#include <algorithm>
#include <cstdint>
#include <span>

#include <pvm/io/nal_units.hpp>

#include "fuzz.hpp"

namespace io = pvm::io;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::span<const std::uint8_t> bytes(data, size);
  const auto take = [&](std::size_t count) {
    const auto taken = bytes.first(std::min(count, bytes.size()));
    bytes = bytes.subspan(taken.size());
    return taken;
  };
  const auto number = [&] {
    const auto byte = take(1);
    return byte.empty() ? std::size_t{0} : std::size_t{byte[0]};
  };
  const auto codec = number() % 2 == 0 ? io::NalCodec::h264 : io::NalCodec::hevc;
  const auto header = take(number());
  fuzz::require(io::nal_length_bytes(codec, header) <= 4, "a length has at most 4 bytes");
  io::NalSegments segments(codec, header);
  int packets = 0, begun = 0;
  while (!bytes.empty()) {
    begun += segments.begins(take(number())) ? 1 : 0;
    ++packets;
  }
  fuzz::require(begun == 0 || packets > 250, "segments are long");
  return 0;
}
