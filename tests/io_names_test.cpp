// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>

#include <pvm/io/file_names.hpp>
#include <pvm/io/labels.hpp>
#include <pvm/io/natural_order.hpp>

#include "io_helpers.hpp"

using namespace pvm_test;

TEST_CASE("names sort by the numbers in them", "[io]") {
  const std::vector<std::string> sorted{"",
                                        "1.jpg",
                                        "2.jpg",
                                        "10.jpg",
                                        "a",
                                        "a001",
                                        "a01",
                                        "a1",
                                        "a1b2c3",
                                        "a1b10",
                                        "a2",
                                        "a10",
                                        "b",
                                        "b99999999999999999999998",
                                        "b99999999999999999999999",
                                        "b100000000000000000000000"};
  std::vector<std::string> names(sorted.rbegin(), sorted.rend());
  std::sort(names.begin(), names.end(), io::natural_less);
  CHECK(names == sorted);
  for (const auto& a : sorted) {
    for (const auto& b : sorted) {
      CHECK(io::natural_less(a, b) + io::natural_less(b, a) == (a != b ? 1 : 0));
    }
  }
}

TEST_CASE("files are known by their names", "[io]") {
  CHECK(io::is_image_name("0000.jpg"));
  CHECK(io::is_image_name("dir.x/A.JPEG"));
  CHECK_FALSE(io::is_image_name("__MACOSX/0000.jpg"));
  CHECK_FALSE(io::is_image_name("a/._0000.jpg"));
  CHECK_FALSE(io::is_image_name(".cache/0000.jpg"));
  CHECK_FALSE(io::is_image_name("./a/__MACOSX/0000.jpg"));
  CHECK(io::is_image_name("./0000.jpg"));  // as some packers store them
  CHECK(io::is_image_name("../a/./0000.jpg"));
  CHECK_FALSE(io::is_image_name("..."));
  CHECK_FALSE(io::is_image_name("jpg"));
  CHECK_FALSE(io::is_image_name("dir.jpg/file"));
  CHECK(io::is_label_name("labels.txt"));
  CHECK(io::is_zip_name("green_ball.pkl.zip"));
  CHECK(io::is_video_name("a.AVI"));
}

TEST_CASE("a label is a box, absent, unlabelled, or malformed", "[io]") {
  CHECK(io::parse_label("1,2,3,4") == io::Label::present({1, 2, 3, 4}));
  CHECK(io::parse_label(" 1.5, -2 ,3\t4\r") == io::Label::present({1.5, -2, 3, 4}));
  CHECK(io::parse_label("1000000,-1000000,1e6,1e-3") ==
        io::Label::present({1e6F, -1e6F, 1e6F, 1e-3F}));
  for (const auto* none : {"-1,-1,-1,-1", "-1", "-1,0,0,0", "5,5,0,0", "-1.0,5,6,7"}) {
    INFO(none);
    CHECK(io::parse_label(none) == io::Label::absent());
  }
  CHECK(io::parse_label("?,?,?,?") == io::Label{});
  for (const auto* wrong : {"",
                            "1,2,3",
                            "1,2,3,4,5",
                            "a,b,c,d",
                            "1,2,3,nan",
                            "1,2,3,1e99",
                            "1,2,3,4x",
                            "1e38,2,3,4",
                            "1,2,3,1e38",
                            "1,-1e38,3,4",
                            "inf,1,1,1",
                            "1,1,-inf,1",
                            "nan,nan,nan,nan",
                            "-nan,1,2,3",
                            "-1,nan,1,1",
                            "-1,1e38,1,1",
                            "1000001,1,1,1",
                            "1,1,-3,4",
                            "1,1,3,-4",
                            "?",
                            "1,2,?,4",
                            "?,?,?,?,?",
                            "?,?,?,?x",
                            "1,2,3,1e-60",
                            "0x10,1,1,1",
                            "1e,1,1,1",
                            "1 2 3 4 5"}) {
    INFO(wrong);
    CHECK_FALSE(io::parse_label(wrong));
  }
  CHECK_FALSE(io::parse_label(std::string_view("1,2,3,4\0", 8)));
}

TEST_CASE("a label is written so that it is read back to its state", "[io]") {
  using io::Label;
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float inf = std::numeric_limits<float>::infinity();
  const auto written = [](const Label& label) {
    std::string line = io::detail::label_line(label);
    CHECK(line.ends_with('\n'));
    line.pop_back();
    return io::parse_label(line);
  };
  CHECK(written({}) == Label{});
  CHECK(written(Label::absent()) == Label::absent());
  CHECK(written(Label::present({5.4F, -2.6F, 7.5F, 0.2F})) == Label::present({5, -3, 8, 1}));
  CHECK(written(Label::present({-1, 2, 9, 9})) == Label::present({0, 2, 8, 9}));
  CHECK(written(Label::present({-1.2F, 2, 0.5F, 9})) == Label::present({0, 2, 1, 9}));
  // A label of a million, in a picture that was enlarged.
  const Label far = Label::present({1e6F, -1e6F, 1e6F, 3}).resized({4, 4}, {400, 400});
  CHECK(written(far) == Label::present({1e6F, -1e6F, 1e6F, 300}));
  CHECK(written(Label::present({3e38F, -3e38F, inf, 1})) == Label::present({1e6F, -1e6F, 1e6F, 1}));
  for (std::size_t i = 0; i < 4; ++i) {
    float box[4] = {1, 2, 3, 4};
    box[i] = nan;
    CHECK(written(Label::present({box[0], box[1], box[2], box[3]})) == Label{});
  }
}

TEST_CASE("labels keep to their frames, and one message says what is wrong", "[io]") {
  const Messages messages;
  using io::Label;
  const auto labels = io::parse_labels(
      "\xEF\xBB\xBF"
      "1,1,1,1\r\n-1,-1,-1,-1\r\n3,3,3,3\r\n\r\n",
      3, "x");
  CHECK(labels == std::vector<Label>{Label::present({1, 1, 1, 1}), Label::absent(),
                                     Label::present({3, 3, 3, 3})});
  CHECK(messages.count() == 0);

  CHECK(io::parse_labels("1,1,1,1\nwrong\n3,3,3,3", 3, "y") ==
        std::vector<Label>{Label::present({1, 1, 1, 1}), {}, Label::present({3, 3, 3, 3})});
  CHECK(messages.count("'y'") == 1);
  CHECK(io::parse_labels("1,1,1,1", 2, "short")[1] == Label{});
  CHECK(messages.count("1 lines for 2 frames") == 1);
  CHECK(io::parse_labels("1,1,1,1\n1,1,1,1", 1, "long").size() == 1);
  CHECK(io::parse_labels("", 2, "empty").size() == 2);
  CHECK(messages.count() == 4);
}
