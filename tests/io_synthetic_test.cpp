// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

#include <cmath>

#include <pvm/io/synthetic.hpp>

#include "io_helpers.hpp"

using namespace pvm_test;

namespace {

std::uint64_t digest(const Bytes& bytes) {  // FNV-1a
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001B3ULL;
  return hash;
}

double squared_error(const Bytes& a, const Bytes& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(double(a[i]) - double(b[i]), 2);
  return sum / double(a.size());
}

}  // namespace

TEST_CASE("generated frames are the same everywhere", "[io]") {
  io::Synthetic source({.seed = 7, .frames = 100});
  const auto frames = read_many(source, 201, square);
  CHECK(frames[0].pixels == frames[100].pixels);
  CHECK(frames[17].pixels == frames[117].pixels);
  CHECK(frames[0].pixels != frames[1].pixels);
  CHECK(frames[100].starts);
  CHECK_FALSE(frames[99].starts);
  CHECK(source.position() == io::Position{0, 1, 2});

  io::Synthetic other({.seed = 8, .frames = 100});
  CHECK(read(other, square).pixels != frames[0].pixels);

  io::Synthetic standard;
  CHECK(digest(read(standard, square).pixels) == 0x3CAD2E75AD8506DCULL);
  CHECK(standard.length() == 1000);
  CHECK(contains(standard.name(), "synthetic"));
}

TEST_CASE("generated frames continue wherever they are told to", "[io]") {
  check_resume([] { return io::Synthetic({.seed = 1, .frames = 9}); }, 20, square);
}

TEST_CASE("the ball moves one to two pixels a frame and lies in its box", "[io]") {
  io::Synthetic source;
  const auto frames = read_many(source, 1001, square);
  for (std::size_t i = 0; i < 1000; ++i) {
    REQUIRE(frames[i].label.state == io::LabelState::present);
    const io::Box& box = frames[i].label.box;
    CHECK(box.width == 15.0F);
    CHECK((box.x >= 0 && box.y >= 0 && box.x + box.width <= 60 && box.y + box.height <= 60));
    const io::Box& next = frames[i + 1].label.box;
    const float moved = std::hypot(next.x - box.x, next.y - box.y);
    CHECK(moved < 2.0F);
    CHECK(moved > 0.1F);
    const auto column = static_cast<std::size_t>(box.x + box.width / 2);
    const auto row = static_cast<std::size_t>(box.y + box.height / 2);
    CHECK(frames[i].pixels[(row * 60 + column) * 3 + 1] == 210);
  }
}

TEST_CASE("what the ball did last predicts what it does next", "[io]") {
  io::Synthetic source;
  const auto frames = read_many(source, 200, square);
  int even = 0;
  double repeated = 0;
  for (std::size_t i = 0; i + 2 < 200; ++i) {
    const io::Box &a = frames[i].label.box, &b = frames[i + 1].label.box,
                  &c = frames[i + 2].label.box;
    even += std::hypot(c.x - 2 * b.x + a.x, c.y - 2 * b.y + a.y) < 0.05F ? 1 : 0;
    repeated += squared_error(frames[i].pixels, frames[i + 2].pixels) / 198;
  }
  CHECK(even > 175);      // all but the bounces
  CHECK(repeated > 100);  // so that repeating a frame is a poor prediction of the next but one
}

TEST_CASE("every shape and length is generated", "[io]") {
  for (const io::FrameShape shape : {io::FrameShape{1, 1, 1}, io::FrameShape{2, 300, 3},
                                     io::FrameShape{300, 2, 1}, io::FrameShape{120, 120, 3}}) {
    for (const std::uint64_t frames : {1ULL, 2ULL, 3ULL, 0xFFFFFFFFULL}) {
      io::Synthetic source({.seed = 3, .frames = frames});
      read_many(source, 4, shape);
      source.seek({0, frames - 1, 0});
      read_many(source, 2, shape);
    }
  }
  io::Synthetic source;
  const auto colour = read(source, square);
  const auto small = read(source, small_shape);
  CHECK(small.pixels.size() == small_shape.size());
  CHECK(failure(pvm::Fault::usage, [] { io::Synthetic({.seed = 0, .frames = 0}); }) != "");
}
