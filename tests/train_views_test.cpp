// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// What others look at: event files of TensorBoard, pictures in a terminal.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <opencv2/core.hpp>

#include <pvm/io/preview.hpp>
#include <pvm/io/synthetic.hpp>
#include <pvm/io/terminal_picture.hpp>
#include <pvm/train/tensorboard.hpp>
#include <pvm/train/trainer.hpp>

#include "catch.hpp"
#include "train_helpers.hpp"

namespace io = pvm::io;
using namespace train_test;

namespace {

template <class T>
T number_at(const std::string& bytes, std::size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// The records of an event file; checks their lengths and checksums.
std::vector<std::string> records_of(const std::string& bytes) {
  const auto unmasked = [](std::uint32_t crc) {
    const std::uint32_t turned = crc - 0xA282EAD8U;
    return turned >> 17 | turned << 15;
  };
  std::vector<std::string> records;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto length = number_at<std::uint64_t>(bytes, at);
    REQUIRE(at + 16 + length <= bytes.size());
    CHECK(unmasked(number_at<std::uint32_t>(bytes, at + 8)) ==
          pvm::detail::crc32c(bytes.substr(at, 8)));
    records.push_back(bytes.substr(at + 12, length));
    CHECK(unmasked(number_at<std::uint32_t>(bytes, at + 12 + length)) ==
          pvm::detail::crc32c(records.back()));
    at += 16 + length;
  }
  return records;
}

}  // namespace

TEST_CASE("Event files have what metrics have", "[train][views]") {
  CHECK(pvm::detail::crc32c("123456789") == 0xE3069283U);  // the check value of CRC-32C
  CHECK(pvm::detail::varint(300) == "\xAC\x02");
  const TempDir dir;
  io::Synthetic source;
  pvm::Trainer<> trainer(tiny_spec());
  trainer.fit(source, pvm::Steps{250}, pvm::TensorBoard{dir / "events", 100});
  trainer.fit(source, pvm::Steps{260}, pvm::TensorBoard{dir / "events", 100});
  const auto files = names_in(dir / "events");
  REQUIRE(files.size() == 2);
  for (const auto& name : files) CHECK(name.find("tfevents") != std::string::npos);
  const auto records = records_of(read_file(dir / "events" / *files.begin()));
  REQUIRE(records.size() == 4);
  CHECK(records[0].find("brain.Event:2") != std::string::npos);
  const std::size_t steps[] = {100, 200, 250};
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string& record = records[i + 1];
    CHECK(record[0] == 0x09);  // field 1, a double: the time
    CHECK(record.substr(9, 1) + pvm::detail::varint(steps[i]) ==
          record.substr(9, 1 + pvm::detail::varint(steps[i]).size()));
    for (const char* tag : {"fps", "loss", "mse", "psnr", "persistence/mse", "persistence/psnr"}) {
      CHECK(record.find(tag) != std::string::npos);
    }
  }
  CHECK(error_of([&] {
          write_file(dir / "file", "x");
          trainer.fit(source, pvm::Steps{270}, pvm::TensorBoard{dir / "file"});
        }).find("it is a file; name a directory") != std::string::npos);
}

TEST_CASE("A terminal's pictures are half blocks of the right colours", "[train][views]") {
  cv::Mat picture(4, 4, CV_8UC3, cv::Scalar(10, 20, 30));
  picture.rowRange(2, 4).setTo(cv::Scalar(255, 0, 0));
  const std::string text = io::terminal_pictures({{"left", picture}, {"right picture", picture}},
                                                 {.columns = 9, .true_colour = true});
  const std::string upper = "\033[38;2;30;20;10m\033[48;2;30;20;10m\u2580";
  const std::string lower = "\033[38;2;0;0;255m\033[48;2;0;0;255m\u2580";
  const auto four = [](const std::string& one) { return one + one + one + one + "\033[0m"; };
  CHECK(text == "left righ\n" + four(upper) + " " + four(upper) + "\n" + four(lower) + " " +
                    four(lower) + "\n");
  // White, whatever the alpha is.
  for (const cv::Mat& white :
       {cv::Mat(8, 8, CV_8UC1, cv::Scalar(255)), cv::Mat(8, 8, CV_8UC2, cv::Scalar(255, 9)),
        cv::Mat(8, 8, CV_8UC4, cv::Scalar(255, 255, 255, 9))}) {
    CHECK(io::terminal_pictures({{"x", white}}, {.columns = 4}).find("\033[38;5;231m") !=
          std::string::npos);
  }
}

TEST_CASE("A preview in a terminal shows every picture", "[train][views]") {
  const TempDir dir;
  std::FILE* const terminal = std::fopen((dir / "terminal").c_str(), "w");
  REQUIRE(terminal != nullptr);
  io::Synthetic source;
  pvm::Trainer<> trainer(tiny_spec());
  trainer.fit(source, pvm::Steps{250}, io::Preview{terminal, 100});
  std::fclose(terminal);
  const std::string text = read_file(dir / "terminal");
  for (const char* step : {"step 100\n", "step 200\n", "step 250\n"}) {
    CHECK(text.find(step) != std::string::npos);
  }
  CHECK(text.find("prediction") != std::string::npos);
  CHECK(text.find("\u2580") != std::string::npos);
}
