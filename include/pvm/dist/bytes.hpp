// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Values as bytes in a message. Both ends are the same program.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::dist {

/// Writes values to bytes, or reads them in the same order.
class Bytes {
 public:
  std::vector<std::byte> all;

  template <class T>
  requires std::is_trivially_copyable_v<T>
  void put(const T& value) { append(&value, sizeof value); }
  template <class T>
  void put(const std::vector<T>& values) {
    put(static_cast<std::uint64_t>(values.size()));
    append(values.data(), values.size() * sizeof(T));
  }
  void put(const std::string& text) { put(std::vector<char>(text.begin(), text.end())); }

  template <class T>
  requires std::is_trivially_copyable_v<T>
  void get(T& value) { take(&value, sizeof value); }
  template <class T>
  void get(std::vector<T>& values) {
    std::uint64_t count = 0;
    get(count);
    values.resize(count);
    take(values.data(), count * sizeof(T));
  }
  void get(std::string& text) {
    std::vector<char> letters;
    get(letters);
    text.assign(letters.begin(), letters.end());
  }

 private:
  void append(const void* from, std::size_t count) {
    const auto* bytes = static_cast<const std::byte*>(from);
    all.insert(all.end(), bytes, bytes + count);
  }
  void take(void* to, std::size_t count) {
    if (count > 0) std::memcpy(to, all.data() + at_, count);
    at_ += count;
  }

  std::size_t at_ = 0;
};

}  // namespace pvm::inline v0::dist
