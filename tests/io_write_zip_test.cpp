// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

#include <pvm/io/deal.hpp>
#include <pvm/io/open.hpp>
#include <pvm/io/synthetic.hpp>
#include <pvm/io/write_zip.hpp>
#include <pvm/io/zip.hpp>

#include "io_helpers.hpp"

using namespace pvm_test;

TEST_CASE("a sequence written is the sequence read", "[io]") {
  const TempDir dir;
  const Messages messages;
  io::Synthetic source({.seed = 1, .frames = 20});
  io::write_published_zip(dir / "ball.zip", source, square, 20);
  CHECK(files_in(dir.path()) == 1);
  CHECK(source.position() == io::Position{0, 0, 1});

  io::Zip zip(dir / "ball.zip");
  CHECK(zip.length() == 20);
  for (int i = 0; i < 20; ++i) {
    const Frame wanted = read(source, square);
    const Frame written = read(zip, square);
    CHECK(written.starts == wanted.starts);
    REQUIRE(written.label.state == io::LabelState::present);
    CHECK(std::abs(written.label.box.x - wanted.label.box.x) <= 0.5F);
    CHECK(std::abs(written.label.box.width - wanted.label.box.width) <= 0.5F);
    double error = 0;
    for (std::size_t k = 0; k < square.size(); ++k) {
      error += std::pow(double(written.pixels[k]) - double(wanted.pixels[k]), 2);
    }
    CHECK(error / double(square.size()) < 60.0);
  }
  CHECK(messages.count() == 0);
}

TEST_CASE("the same sequence is written as the same file, in the published layout", "[io]") {
  const TempDir dir;
  for (const std::string name : {"a.zip", "b.zip"}) {
    io::Synthetic source;
    io::write_published_zip(dir / name, source, square, 3);
  }
  const Bytes bytes = read_file(dir / "a.zip");
  CHECK(bytes == read_file(dir / "b.zip"));
  const std::string text(bytes.begin(), bytes.end());
  for (const auto* name : {"0000.jpg", "0001.jpg", "0002.jpg", "labels.txt"}) {
    CHECK(contains(text, name));
  }

  write_zip(dir / "plain.zip", numbered(2));
  io::Zip unlabelled(dir / "plain.zip");
  io::write_published_zip(dir / "c.zip", unlabelled, small_shape, 2);
  const Bytes plain = read_file(dir / "c.zip");
  CHECK_FALSE(contains({plain.begin(), plain.end()}, "labels.txt"));

  const io::FrameShape grey{.height = 20, .width = 20, .channels = 1};
  io::Synthetic source;
  io::write_published_zip(dir / "grey.zip", source, grey, 2);
  CHECK(io::Zip(dir / "grey.zip").length() == 2);
}

TEST_CASE("a failure leaves nothing behind", "[io]") {
  const TempDir dir;
  const Messages messages;
  io::Synthetic source;
  write_file(dir / "there.zip", bytes_of("mine"));
  const auto overwrite = [&] { io::write_published_zip(dir / "there.zip", source, square, 2); };
  CHECK(contains(failure(pvm::Fault::usage, overwrite), "exists already"));
  CHECK(read_file(dir / "there.zip") == bytes_of("mine"));
  CHECK(source.position().frame == 0);

  write_zip(dir / "bad.zip", {{"0.jpg", bytes_of("text")}});
  io::Zip bad(dir / "bad.zip");
  const auto unreadable = [&] { io::write_published_zip(dir / "x.zip", bad, square, 2); };
  CHECK_FALSE(failure(pvm::Fault::source, unreadable).empty());
  const auto nowhere = [&] { io::write_published_zip(dir / "no" / "x.zip", source, square, 2); };
  CHECK(contains(failure(pvm::Fault::source, nowhere), "cannot be written"));
  const auto none = [&] { io::write_published_zip(dir / "x.zip", source, square, 0); };
  CHECK_FALSE(failure(pvm::Fault::usage, none).empty());
  const auto shapeless = [&] { io::write_published_zip(dir / "x.zip", source, {-1, 2, 3}, 1); };
  CHECK_FALSE(failure(pvm::Fault::usage, shapeless).empty());
  CHECK(files_in(dir.path()) == 2);
}

TEST_CASE("a file that appears while a zip is written is kept", "[io]") {
  const TempDir dir;
  io::Synthetic source;
  const auto act = [&] {
    io::write_published_zip(dir / "a.zip", source, square, 3,
                            [&](std::uint64_t) { write_file(dir / "a.zip", bytes_of("mine")); });
  };
  CHECK(contains(failure(pvm::Fault::source, act), "has come meanwhile"));
  CHECK(read_file(dir / "a.zip") == bytes_of("mine"));
  CHECK(files_in(dir.path()) == 1);
}

TEST_CASE("a zip that is written keeps all three states, and its boxes fit its frames", "[io]") {
  const TempDir dir;
  const Messages messages;
  Entries entries = numbered(8);  // 32 x 24 pixels
  entries.emplace_back("labels.txt", bytes_of("4,6,8,12\n-1,-1,-1,-1\n?,?,?,?\n0.2,0.2,0.1,0.1\n"
                                              "-0.5,3,4,6\n-7,-2,30,40\n31,23,1,1\n0,0,32,24\n"));
  write_zip(dir / "a.zip", entries);
  using Label = io::Label;
  const io::FrameShape wide{.height = 12, .width = 64, .channels = 3};
  const std::vector<Label> wanted = {Label::present({8, 3, 16, 6}),
                                     Label::absent(),
                                     {},
                                     Label::present({0, 0, 1, 1}),
                                     Label::present({0, 2, 7, 3}),
                                     Label::present({-14, -1, 60, 20}),
                                     Label::present({62, 12, 2, 1}),
                                     Label::present({0, 0, 64, 12})};
  io::Zip zip(dir / "a.zip");
  io::write_published_zip(dir / "b.zip", zip, wide, std::nullopt);
  io::Zip written(dir / "b.zip");
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    INFO(i);
    CHECK(read(written, wide).label == wanted[i]);
  }
  // The same through the readers that decode ahead, and through streams that share a file.
  auto streams = io::deal({io::opener((dir / "b.zip").string())}, 2);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    INFO(i);
    CHECK(read(streams[0], wide).label == wanted[i]);
    CHECK(read(streams[1], wide).label == wanted[(i + 4) % wanted.size()]);
  }
  CHECK(messages.count() == 0);
}
