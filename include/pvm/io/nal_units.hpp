// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Where in an H.264 or HEVC stream decoding may begin as if nothing had been before.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::io {

enum class NalCodec { h264, hevc };

/// What a packet holds that matters for that.
struct NalFacts {
  bool refresh = false;     ///< an IDR picture: none behind it refers to one before it
  bool parameters = false;  ///< parameter sets, which later pictures may need

  NalFacts& operator|=(const NalFacts& other) {
    refresh = refresh || other.refresh;
    parameters = parameters || other.parameters;
    return *this;
  }
};

namespace detail {

inline NalFacts nal_facts(NalCodec codec, std::uint8_t first) {
  if (codec == NalCodec::h264) {
    const int type = first & 31;
    return {type == 5, type == 7 || type == 8};  // IDR slice; SPS, PPS
  }
  const int type = (first >> 1) & 63;
  return {type == 19 || type == 20, type >= 32 && type <= 34};  // IDR; VPS, SPS, PPS
}

/// Units that begin with their length in `length_bytes` bytes, as in mp4.
inline NalFacts nal_facts_by_length(NalCodec codec, std::span<const std::uint8_t> packet,
                                    std::size_t length_bytes) {
  NalFacts facts;
  for (std::size_t at = 0; at + length_bytes < packet.size();) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < length_bytes; ++i) length = length << 8 | packet[at + i];
    at += length_bytes;
    facts |= nal_facts(codec, packet[at]);
    if (length > packet.size() - at) break;  // damaged
    at += length;
  }
  return facts;
}

/// Units behind start codes 0 0 1 ("Annex B").
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

/// How many bytes tell the length of a unit, by the stream's header; 0 where units lie behind
/// start codes.
inline std::size_t nal_length_bytes(NalCodec codec, std::span<const std::uint8_t> header) {
  const std::size_t at = codec == NalCodec::h264 ? 4 : 21;
  if (header.size() <= at || header[0] != 1) return 0;
  return std::size_t{1} + (header[at] & 3);
}

inline NalFacts nal_facts(NalCodec codec, std::span<const std::uint8_t> packet,
                          std::size_t length_bytes) {
  return length_bytes > 0 ? detail::nal_facts_by_length(codec, packet, length_bytes)
                          : detail::nal_facts_by_code(codec, packet);
}

/// Cuts a stream into segments that can be decoded apart from one another: at IDR pictures that
/// bring along whatever parameter sets the stream has shown since its header.
class NalSegments {
 public:
  NalSegments(NalCodec codec, std::span<const std::uint8_t> header)
      : codec_(codec), length_bytes_(nal_length_bytes(codec, header)) {}

  /// To be asked of every packet, in order: whether a segment begins with it.
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
  /// Packets: to begin a segment, FFmpeg makes NVDEC's decoder anew, which takes a GPU the time of
  /// a hundred pictures.
  static constexpr int shortest = 250;

  NalCodec codec_;
  std::size_t length_bytes_;
  bool parameters_ = false;  // met in packets
  int packets_ = 0;
};

}  // namespace pvm::inline v0::io
