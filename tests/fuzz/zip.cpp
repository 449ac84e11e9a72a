// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Zips of pictures and labels, up to the bytes that a decoder would get.

#include <cstdint>
#include <vector>

#include <pvm/io/image_check.hpp>
#include <pvm/io/image_list.hpp>
#include <pvm/io/zip.hpp>

#include "fuzz.hpp"

namespace io = pvm::io;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile file;
  const std::string path = file.write(data, size);
  fuzz::expect([&] {
    io::ZipStore store(path);
    std::vector<std::uint8_t> bytes;
    for (const auto& entry : store.files()) {
      if (store.size(entry) > (1U << 24)) continue;  // takes its time, not more memory than it has
      if (store.read(entry, bytes)) io::whole_image(bytes);
    }
    const io::PictureList list = io::list_pictures(store, path);
    fuzz::require(!list.pictures.empty(), "a list of pictures is not empty");
    fuzz::require(list.labels.empty() || list.labels.size() == list.pictures.size(),
                  "one label for each picture, or none");
  });
  return 0;
}
