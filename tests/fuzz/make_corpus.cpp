// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Writes the inputs that fuzzing begins with, except those that it has found:
///     make_corpus tests/fuzz/corpus model_zoo/tiny.json

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zip.h>
#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>

#include <pvm/engine/host/engine.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/model/json.hpp>

#include "small_network.hpp"

namespace fs = std::filesystem;
using namespace std::string_literals;
using Bytes = std::vector<std::uint8_t>;

namespace {

fs::path root;

Bytes bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

void write(const fs::path& name, const Bytes& bytes) {
  fs::create_directories((root / name).parent_path());
  std::ofstream file(root / name, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  if (!file) throw std::runtime_error((root / name).string() + " cannot be written");
}

Bytes read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_specs(const std::string& tiny) {
  write("spec/tiny.json", bytes_of(tiny));
  pvm::Spec spec = pvm::parse_spec(tiny, "tiny");
  spec.input_channels = 1;
  spec.learning_rule = "adam";
  write("spec/all_keys.json", bytes_of(pvm::to_json_text(spec, 1)));
  write("spec/numbers.json",
        bytes_of(R"({"layer_shapes":["4",2],"steps":"1e9","momentum":1e-400})"));
  write("spec/deep.json", bytes_of("{\"layer_shapes\":" + std::string(80, '[')));
}

void write_labels() {
  write("labels/boxes.txt", bytes_of("1,2,3,4\n-1,-1,-1,-1\n?,?,?,?\n5.5;6\t7,8\n0,0,1,1\n"));
  write("labels/odd.txt",
        bytes_of("\xEF\xBB\xBF"s + "1e38,2,nan,4\r\n-1\r\n\r\n1,2,3,4,5\n-0.6,0,0.2,1"));
}

Bytes encoded(const std::string& extension, const std::vector<int>& options = {},
              int channels = 3) {
  cv::Mat picture(12, 16, channels == 3 ? CV_8UC3 : CV_8UC1);
  for (int i = 0; i < 12 * 16 * channels; ++i)
    picture.data[i] = static_cast<std::uint8_t>(i * i / 7);
  Bytes bytes;
  cv::imencode(extension, picture, bytes, options);
  return bytes;
}

/// Inserts `more` behind the first `at` bytes.
Bytes with(Bytes bytes, std::size_t at, std::string_view more) {
  bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), more.begin(), more.end());
  return bytes;
}

void write_images() {
  // A directory of one entry, the orientation 6.
  const std::string exif = "MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"s;
  const std::string segment = "\xFF\xE1"s + '\0' + static_cast<char>(exif.size() + 8) + "Exif\0\0"s;
  write("image/baseline.jpg", with(encoded(".jpg"), 2, segment + exif));
  write("image/progressive.jpg", encoded(".jpg", {cv::IMWRITE_JPEG_PROGRESSIVE, 1}));
  write("image/grey.jpg", encoded(".jpg", {cv::IMWRITE_JPEG_RST_INTERVAL, 1}, 1));
  const std::string chunk = "\0\0\0"s + static_cast<char>(exif.size()) + "eXIf" + exif + "sum.";
  write("image/extras.png", with(encoded(".png"), 33, chunk));
  write("image/grey.png", encoded(".png", {}, 1));
  write("image/strips.tiff", encoded(".tiff", {cv::IMWRITE_TIFF_COMPRESSION, 5}));
  write("image/lossy.webp", encoded(".webp", {cv::IMWRITE_WEBP_QUALITY, 50}));
  write("image/lossless.webp", encoded(".webp", {cv::IMWRITE_WEBP_QUALITY, 101}));
  write("image/small.bmp", encoded(".bmp"));
  write("image/small.ppm", encoded(".ppm"));
  write("image/small.pgm", bytes_of("P5 # grey\n4 2\n65535\n" + std::string(16, 'x')));
}

/// See nal.cpp.
void write_nal() {
  const auto packets = [](std::string start, std::string packet) {
    packet.insert(packet.begin(), static_cast<char>(packet.size()));
    for (int i = 0; i < 255; ++i) start += packet;
    return bytes_of(start);
  };
  const std::string avcc = "\x06\x01\x64\0\x1F\xFF\xE1"s;
  write("nal/by_length", packets("\0"s + avcc, "\0\0\0\x02\x67\x64\0\0\0\x03\x65\x88\x84"s));
  write("nal/by_code", packets("\0\0"s, "\0\0\0\x01\x67\x64\0\0\x01\x65\x88"s));
  const std::string hvcc = "\x16\x01" + std::string(21, '\x03');
  write("nal/hevc", packets("\x01" + hvcc, "\0\0\0\x02\x40\x01\0\0\0\x02\x26\x01"s));
}

void write_zip(const fs::path& name, const std::vector<std::pair<std::string, Bytes>>& entries,
               zip_int32_t packing) {
  fs::create_directories((root / name).parent_path());
  fs::remove(root / name);
  zip_t* archive = zip_open((root / name).c_str(), ZIP_CREATE, nullptr);
  for (const auto& [entry, bytes] : entries) {
    zip_source_t* source = zip_source_buffer(archive, bytes.data(), bytes.size(), 0);
    const auto index = zip_file_add(archive, entry.c_str(), source, 0);
    if (index < 0) throw std::runtime_error(entry + " cannot be packed");
    zip_set_file_compression(archive, static_cast<zip_uint64_t>(index), packing, 0);
    zip_file_set_mtime(archive, static_cast<zip_uint64_t>(index), 1'000'000'000, 0);
  }
  if (zip_close(archive) != 0) throw std::runtime_error(name.string() + " cannot be written");
}

void write_zips() {
  const Bytes picture = encoded(".jpg");
  const Bytes labels = bytes_of("1,2,3,4\n-1,-1,-1,-1\n");
  write_zip("zip/stored.zip", {{"0.jpg", picture}, {"1.png", encoded(".png")}, {"l.txt", labels}},
            ZIP_CM_STORE);
  write_zip("zip/packed.zip", {{"a/2.bmp", encoded(".bmp")}, {"a/10.bmp", encoded(".bmp")}},
            ZIP_CM_DEFLATE);
  write_zip("zip/names.zip",
            {{"a\\0.jpg", picture}, {"../1.jpg", picture}, {"\n\x1B[2J.jpg", picture}},
            ZIP_CM_STORE);
}

void write_checkpoints(pvm::Spec spec) {
  pvm::HostEngine<> engine{spec, 1, {.threads = 1}};
  pvm::EngineState start;
  start.weights.assign(engine.connectome().weights, 0.01F);
  engine.restore(start);
  const pvm::FrameBlock block = engine.stage(20);
  for (std::size_t i = 0; i < block.pixels.size(); ++i)
    block.pixels[i] = static_cast<std::uint8_t>(i * i / 31);
  engine.run(block, pvm::Mode::learn);
  pvm::io::Checkpoint checkpoint{spec, engine.save(), {{{0, 20, 0}, 20, "frames.zip"}}};
  fs::create_directories(root / "checkpoint");
  pvm::io::save_checkpoint(root / "checkpoint/run.safetensors", checkpoint);

  const std::vector<float>& weights = checkpoint.state.weights;
  Bytes raw(weights.size() * sizeof(float));
  std::memcpy(raw.data(), weights.data(), raw.size());
  Bytes native(16);
  const std::uint32_t magic = 0x50564D43;
  const std::int64_t step = 20;
  const auto count = static_cast<std::int32_t>(weights.size());
  std::memcpy(native.data(), &magic, sizeof magic);
  std::memcpy(native.data() + 4, &step, sizeof step);
  std::memcpy(native.data() + 12, &count, sizeof count);
  native.insert(native.end(), raw.begin(), raw.end());
  write("checkpoint/native.bin", native);

  write_zip("checkpoint/original.zip", {{"x/pvm/weight_memory_main.npy", raw}}, ZIP_CM_STORE);
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
  Bytes claim = read(root / "checkpoint/original.zip");
  const auto directory = std::search(claim.begin(), claim.end(), "PK\1\2", "PK\1\2" + 4);
  std::copy_n("\xFF\xFF\xFF\x3F", 4, directory + 24);  // its size, once unpacked
  write("checkpoint/claims_a_gigabyte.zip", claim);
  header = "\x93NUMPY\x01\0"s + static_cast<char>(header.size()) + '\0' + header;
  write_zip("checkpoint/original_npy.zip", {{"pvm/weight_memory_main.npy", with(raw, 0, header)}},
            ZIP_CM_DEFLATE);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::runtime_error("make_corpus DIRECTORY TINY_SPEC");
  root = argv[1];
  std::ifstream file(argv[2]);
  const std::string tiny{std::istreambuf_iterator<char>(file), {}};
  write_specs(tiny);
  write_labels();
  write_images();
  write_nal();
  write_zips();
  write_checkpoints(fuzz::small_network());
} catch (const std::exception& error) {
  std::fprintf(stderr, "make_corpus: %s\n", error.what());
  return 1;
}
