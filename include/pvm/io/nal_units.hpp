// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Finds the places in an H.264 or HEVC stream at which a fresh decoder may start: the packets that
/// need no earlier packet. Streams consist of NAL units, of which a packet holds one or more.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::io {

enum class NalCodec { h264, hevc };

/// What a packet contains that decides whether decoding may start with it.
struct NalFacts {
  bool refresh = false;     ///< an IDR picture: no later picture refers to one before it
  bool parameters = false;  ///< parameter sets, which later pictures may need

  NalFacts& operator|=(const NalFacts& other) {
    refresh = refresh || other.refresh;
    parameters = parameters || other.parameters;
    return *this;
  }
};

namespace detail {

/// The facts of one NAL unit, from its first header byte.
inline NalFacts nal_facts(NalCodec codec, std::uint8_t first) {
  if (codec == NalCodec::h264) {
    const int type = first & 31;
    return {type == 5, type == 7 || type == 8};  // IDR slice; SPS, PPS
  }
  const int type = (first >> 1) & 63;
  return {type == 19 || type == 20, type >= 32 && type <= 34};  // IDR; VPS, SPS, PPS
}

/// A packet whose units are each preceded by their length as a big-endian number of `length_bytes`
/// bytes, as in mp4.
inline NalFacts nal_facts_by_length(NalCodec codec, std::span<const std::uint8_t> packet,
                                    std::size_t length_bytes) {
  NalFacts facts;
  for (std::size_t at = 0; at + length_bytes < packet.size();) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < length_bytes; ++i) length = length << 8 | packet[at + i];
    at += length_bytes;
    facts |= nal_facts(codec, packet[at]);
    if (length > packet.size() - at) break;  // the packet is damaged
    at += length;
  }
  return facts;
}

/// A packet whose units are each preceded by the start code 0 0 1 ("Annex B").
inline NalFacts nal_facts_by_code(NalCodec codec, std::span<const std::uint8_t> packet) {
  NalFacts facts;
  for (std::size_t at = 0; at + 3 < packet.size(); ++at) {
    if (packet[at] != 0 || packet[at + 1] != 0 || packet[at + 2] != 1) continue;
    facts |= nal_facts(codec, packet[at + 3]);
    at += 2;
  }
  return facts;
}

}  // namespace detail

/// The number of bytes in which a unit's length is stored (1 to 4), from the stream's header
/// (`extradata`); 0 if units are preceded by start codes instead.
inline std::size_t nal_length_bytes(NalCodec codec, std::span<const std::uint8_t> header) {
  const std::size_t at = codec == NalCodec::h264 ? 4 : 21;
  if (header.size() <= at || header[0] != 1) return 0;
  return std::size_t{1} + (header[at] & 3);
}

/// The facts of all units of a packet. `length_bytes`: see `nal_length_bytes`.
inline NalFacts nal_facts(NalCodec codec, std::span<const std::uint8_t> packet,
                          std::size_t length_bytes) {
  return length_bytes > 0 ? detail::nal_facts_by_length(codec, packet, length_bytes)
                          : detail::nal_facts_by_code(codec, packet);
}

/// Cuts a stream into segments that can be decoded independently of one another: at IDR pictures
/// whose packet also contains parameter sets, or at any IDR picture as long as no packet has
/// contained parameter sets, so that those of the header still apply.
class NalSegments {
 public:
  NalSegments(NalCodec codec, std::span<const std::uint8_t> header)
      : codec_(codec), length_bytes_(nal_length_bytes(codec, header)) {}

  /// Whether a segment begins with this packet. Must be called for every packet, in order.
  bool begins(std::span<const std::uint8_t> packet) {
    const NalFacts facts = nal_facts(codec_, packet, length_bytes_);
    const bool whole = facts.refresh && (facts.parameters || !parameters_);
    parameters_ = parameters_ || facts.parameters;
    ++packets_;
    if (!whole || packets_ <= shortest) return false;
    packets_ = 0;
    return true;
  }

 private:
  /// Least number of packets in a segment. FFmpeg creates a new NVDEC decoder at the beginning of a
  /// segment, which takes a GPU as long as decoding a hundred pictures.
  static constexpr int shortest = 250;

  NalCodec codec_;
  std::size_t length_bytes_;
  bool parameters_ = false;  // a packet so far has contained parameter sets
  int packets_ = 0;          // packets of the current segment so far
};

}  // namespace pvm::inline v0::io
