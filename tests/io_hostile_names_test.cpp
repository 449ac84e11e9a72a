// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Names of files and of zip members that would be commands to a terminal, lines of a log, or
/// paths: they are shown as text, and only where they are is read.

#include <filesystem>
#include <string>
#include <vector>

#include <pvm/core/printable.hpp>
#include <pvm/io/image_dir.hpp>
#include <pvm/io/open.hpp>
#include <pvm/io/zip.hpp>

#include "io_helpers.hpp"

using namespace pvm_test;

namespace {

/// Each is one component of a path.
const std::vector<std::string> hostile = {"\x1b[31mRED\x1b]0;owned\x07",
                                          "a\nwarning: fake",
                                          "b\r\x7f\t",
                                          "\u202egnp\u2066",
                                          "csi \xc2\x9b",
                                          "not utf-8 \xff\xfe",
                                          "..\\..\\up",
                                          "it's %s %n",
                                          std::string(240, 'n')};

/// What is said is one line, of letters only, and not long.
void check_said(const std::vector<std::string>& lines) {
  CHECK_FALSE(lines.empty());
  for (const std::string& line : lines) {
    INFO(pvm::printable(line));
    CHECK_FALSE(line.empty());
    CHECK(line == pvm::printable(line));
    CHECK(line.size() < 450);
    CHECK(line.find(std::string(121, 'n')) == std::string::npos);
  }
}

/// The message of the pvm::Error that `f` throws.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const pvm::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("names in a directory are shown as text", "[io]") {
  for (const std::string& name : hostile) {
    INFO(pvm::quote(name));
    const TempDir dir;
    const auto inside = dir / name;
    std::filesystem::create_directory(inside);
    write_file(inside / "0.jpg", encoded(picture(0)));
    write_file(inside / (name + ".jpg"), bytes_of("no picture"));
    write_file(inside / (name + ".txt"), bytes_of("1e38,1,1,1\n"));
    const Messages messages;
    {
      io::ImageDirectory source(inside);
      CHECK(numbers_of(read_many(source, 2), 1) == std::vector{0, 0});
      CHECK(source.skipped() == 1);
      auto opened = io::open_source(inside.string());
      (void)read(opened);
    }
    CHECK(messages.count("as a picture") > 0);
    CHECK(messages.count("not x,y,w,h") > 0);
    check_said(messages.texts());

    write_file(inside / "more.txt", bytes_of("1,1,1,1\n"));
    write_file(inside / (name + ".zip"), bytes_of("no zip"));
    write_file(inside / (name + ".avi"), bytes_of("no video"));
    io::ImageDirectory unlabelled(inside);
    CHECK(messages.count("which one has the labels") == 1);
    check_said(messages.texts());
    check_said({error_of([&] { (void)io::open_source((inside / (name + ".zip")).string()); }),
                error_of([&] { (void)io::open_source((inside / (name + ".avi")).string()); }),
                error_of([&] { (void)io::open_source((inside / name).string()); }),
                error_of([&] { (void)io::find_dataset((dir / "x").string(), name); }),
                error_of([&] { (void)io::find_dataset(inside.string(), name + "x"); })});
  }
}

TEST_CASE("names in a zip are shown as text, and name nothing outside of it", "[io]") {
  std::vector<std::string> names = hostile;
  names.insert(names.end(), {"../../outside", "/outside", "C:\\outside", "a/../../outside",
                             "./\x1b[2J", std::string(10'000, 'n'),
                             std::string(5'000, 'n') + "/\x07" + std::string(5'000, 'n')});
  for (const std::string& name : names) {
    INFO(pvm::quote(name));
    const TempDir dir;
    write_file(dir / "outside.jpg", encoded(picture(9)));
    std::filesystem::create_directory(dir / "in");
    const auto path = dir / "in" / "a.zip";
    write_zip(path, {{"0.jpg", encoded(picture(0))},
                     {name + ".jpg", bytes_of("no picture")},
                     {name + ".txt", bytes_of("nan,1,1,1\n?,?,?,?\n")}});
    const Messages messages;
    {
      io::Zip source(path);
      CHECK(numbers_of(read_many(source, 2), 10) == std::vector{0, 0});
      CHECK(source.skipped() == 1);
    }
    CHECK(messages.count("as a picture") == 1);
    CHECK(messages.count("not x,y,w,h") == 1);
    check_said(messages.texts());
    CHECK(files_in(dir / "in") == 1);
    CHECK(files_in(dir.path()) == 2);

    write_zip(dir / "locked.zip", {{name + ".jpg", encoded(picture(0))}}, Packing::encrypted);
    check_said({error_of([&] { const io::Zip locked(dir / "locked.zip"); })});
  }
}
