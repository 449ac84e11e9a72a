// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How much memory the program uses.

#include <cstddef>
#include <cstdio>

#if defined(__linux__)
#include <unistd.h>
#endif

#include <pvm/core/config.hpp>

namespace pvm::inline v0 {

/// Bytes of the program that are in main memory now; 0 if the system does not say.
inline std::size_t resident_bytes() {
#if defined(__linux__)
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  unsigned long long all = 0, resident = 0;
  const int read = std::fscanf(file, "%llu %llu", &all, &resident);
  std::fclose(file);
  if (read != 2) return 0;
  return static_cast<std::size_t>(resident) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
#else
  return 0;
#endif
}

/// The most bytes of the program that have been in main memory at once; 0 if the system does not
/// say.
inline std::size_t peak_resident_bytes() {
#if defined(__linux__)
  std::FILE* const file = std::fopen("/proc/self/status", "re");
  if (file == nullptr) return 0;
  unsigned long long kilobytes = 0;
  char line[256];
  while (std::fgets(line, sizeof line, file) != nullptr &&
         std::sscanf(line, "VmHWM: %llu", &kilobytes) != 1) {
  }
  std::fclose(file);
  return static_cast<std::size_t>(kilobytes) * 1024;
#else
  return 0;
#endif
}

}  // namespace pvm::inline v0
