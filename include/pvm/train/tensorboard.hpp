// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Writes measurements of a run as an event file of TensorBoard.

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <unistd.h>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/io/atomic_file.hpp>
#include <pvm/train/callback.hpp>
#include <pvm/train/trainer_base.hpp>

namespace pvm::inline v0 {

namespace detail {

/// CRC-32C (Castagnoli), as event files use it.
inline std::uint32_t crc32c(std::string_view bytes) noexcept {
  std::uint32_t crc = ~std::uint32_t{0};
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0x82F63B78U & (0U - (crc & 1U)));
  }
  return ~crc;
}

/// Little-endian bytes of a number.
template <class T>
std::string little_endian(T value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

/// A record of an event file: the length and the data, each with its masked checksum.
inline std::string event_record(std::string_view data) {
  const auto masked = [](std::string_view bytes) {
    const std::uint32_t crc = crc32c(bytes);
    return little_endian(((crc >> 15) | (crc << 17)) + 0xA282EAD8U);
  };
  const std::string length = little_endian(std::uint64_t{data.size()});
  return length + masked(length) + std::string(data) + masked(data);
}

// Fields of protocol buffers. `key`: the field's number times 8 plus the kind of its value.

inline std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(0x80 | (value & 0x7F));
  return bytes + static_cast<char>(value);
}
inline std::string double_field(int number, double value) {
  return static_cast<char>(number << 3 | 1) + little_endian(std::bit_cast<std::uint64_t>(value));
}
inline std::string float_field(int number, float value) {
  return static_cast<char>(number << 3 | 5) + little_endian(std::bit_cast<std::uint32_t>(value));
}
inline std::string text_field(int number, std::string_view text) {
  return static_cast<char>(number << 3 | 2) + varint(text.size()) + std::string(text);
}

}  // namespace detail

/// A callback that writes what `Metrics` measures as an event file in `directory`, at every
/// multiple of `every` steps (0 counts as 1) and at the end of the run: fps, loss, and mse and psnr
/// of the prediction and of repeating (persistence/...). Each `fit` begins a file of its own, as
/// TensorBoard expects it; of steps that are run again after a resume it shows the later file's.
class TensorBoard {
 public:
  explicit TensorBoard(std::filesystem::path directory, std::uint64_t every = 1000)
      : directory_(std::move(directory)), every_(std::max<std::uint64_t>(1, every)) {}

  /// Throws Error (Fault::usage) if the directory cannot be written.
  void begin(const Moment& moment) {
    last_step_ = moment.begin;
    last_seconds_ = 0;
    file_ = std::ofstream();
    std::error_code ignored;
    if (std::filesystem::exists(directory_, ignored) &&
        !std::filesystem::is_directory(directory_, ignored)) {
      refuse("it is a file; name a directory");
    }
    if (const auto why = io::why_not_writable(path()); !why.empty()) refuse(why);
  }
  [[nodiscard]] std::uint64_t next(std::uint64_t step) const { return next_multiple(step, every_); }
  void at(const Moment& moment) { append(moment); }
  void end(const Moment& moment) {
    if (moment.step != last_step_) append(moment);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Fault::usage,
                "events cannot be written to " + quote(directory_.string()) + ": " + why);
  }

  static double now() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
  /// A name that no other file has: TensorBoard takes those with `tfevents` in them.
  [[nodiscard]] std::filesystem::path path() const {
    for (auto second = static_cast<long long>(now());; ++second) {
      char name[80];
      std::snprintf(name, sizeof name, "events.out.tfevents.%010lld.pvm.%lld", second,
                    static_cast<long long>(::getpid()));
      std::error_code ignored;
      if (!std::filesystem::exists(directory_ / name, ignored)) return directory_ / name;
    }
  }

  void append(const Moment& moment) {
    if (!file_.is_open()) open();
    const double frames = static_cast<double>(moment.step - last_step_) * moment.trainer.batch();
    const std::pair<const char*, double> values[] = {
        {"fps", frames / (moment.seconds - last_seconds_)},
        {"loss", mean_loss(moment.score)},
        {"mse", prediction_mse(moment.score)},
        {"psnr", psnr(prediction_mse(moment.score))},
        {"persistence/mse", persistence_mse(moment.score)},
        {"persistence/psnr", psnr(persistence_mse(moment.score))}};
    std::string summary;
    for (const auto& [tag, value] : values) {
      if (!std::isfinite(value)) continue;  // nothing was measured
      summary += detail::text_field(
          1, detail::text_field(1, tag) + detail::float_field(2, static_cast<float>(value)));
    }
    constexpr char step_key = 2 << 3;
    file_ << detail::event_record(detail::double_field(1, now()) + step_key +
                                  detail::varint(moment.step) + detail::text_field(5, summary))
          << std::flush;
    if (!file_ && !std::exchange(failed_, true)) {
      log(Severity::warning, "events cannot be written to " + quote(directory_.string()) +
                                 "; the run goes on without them");
    }
    last_step_ = moment.step;
    last_seconds_ = moment.seconds;
  }
  /// Called only when there is something to write, so that a run that fails at once leaves nothing.
  void open() {
    const std::filesystem::path file = path();
    io::make_directories_of(file);
    file_.open(file, std::ios::binary);
    file_ << detail::event_record(detail::double_field(1, now()) +
                                  detail::text_field(3, "brain.Event:2"));
  }

  std::filesystem::path directory_;
  std::uint64_t every_;
  std::ofstream file_;
  std::uint64_t last_step_ = 0;
  double last_seconds_ = 0;
  bool failed_ = false;
};

static_assert(Callback<TensorBoard>);

}  // namespace pvm::inline v0
