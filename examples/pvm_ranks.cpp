// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// The ranks of `pvm`, in a file of its own, which nvcc need not compile (and whose front end, of
/// CUDA 13.0, ends with an internal error).

#include "pvm_ranks.hpp"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <signal.h>
#include <unistd.h>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/printable.hpp>
#include <pvm/core/version.hpp>
#include <pvm/dist/launched.hpp>
#include <pvm/engine/host/simd.hpp>
#include <pvm/io/file_mark.hpp>

#if defined(PVM_MPI)
#include <pvm/dist/group.hpp>
#include <pvm/dist/mpi/mpi_ranks.hpp>
#endif

namespace ranks_of_run {

#if defined(PVM_MPI)

namespace {

using Group = pvm::dist::Group<pvm::dist::MpiRanks>;

/// Rank 0's, while the program runs as several ranks.
Group* group = nullptr;

/// Tells a file from others of its name: a model by all of its bytes, frames by their ends.
std::string mark_of(const std::string& path) {
  const std::string ends = pvm::io::file_mark(path);
  const bool is_model =
      path.ends_with(".json") || path.ends_with(".safetensors") || path.ends_with(".bin");
  if (!is_model || ends.empty()) return ends;
  std::ifstream file(path, std::ios::binary);
  pvm::io::detail::MarkHash hash;
  std::string bytes(1 << 20, '\0');
  std::uint64_t size = 0;
  while (file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())) || file.gcount() > 0) {
    const auto got = static_cast<std::size_t>(file.gcount());
    hash.add(std::string_view(bytes).substr(0, got));
    size += got;
  }
  return hash.text(size);
}

void say(const std::string& sentence) {
  if (!sentence.empty()) std::cerr << "pvm: " + pvm::printable(sentence) + '\n';
}

/// The sentence if a rank is another program, or was started otherwise than rank 0; else empty.
/// The same on all ranks.
std::string difference(pvm::dist::MpiRanks& ranks, int argc, char** argv) {
  std::string arguments;
  for (int i = 1; i < argc; ++i) arguments += argv[i] + std::string(1, '\0');
  const auto differs = [&](const std::string& text, const std::string& what) {
    const int rank = pvm::dist::differing_rank(ranks, text);
    return rank < 0 ? std::string() : "rank " + std::to_string(rank) + what;
  };
  std::string sentence = differs("pvm " + pvm::version_text(),
                                 " runs another version of pvm than rank 0; install the same "
                                 "one on all hosts");
  if (!sentence.empty()) return sentence;
  sentence = differs(pvm::io::file_mark("/proc/self/exe"),
                     " runs another build of pvm than rank 0, which may give other bits; install "
                     "the same one on all hosts");
  if (!sentence.empty()) return sentence;
  sentence = differs(pvm::simd::isa_name(),
                     " has a processor with other vector instructions than rank 0, which give "
                     "other bits; take hosts of one kind");
  if (!sentence.empty()) return sentence;
  return differs(arguments, " was started with other arguments than rank 0; give all the same");
}

/// What a rank other than 0 does: serves until rank 0 ends, and returns its exit code.
int serve(pvm::dist::MpiRanks& ranks) {
  // Rank 0 decides when a run ends, and needs this rank for its last checkpoint.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, stop_signal}) {
    ::signal(signal, SIG_IGN);
  }
  pvm::set_log_sink({});  // rank 0 says it
  std::string sentence;
  try {
    return Group(ranks).serve(mark_of);
  } catch (const std::bad_alloc&) {
    sentence = "there is not enough memory for this; use a smaller spec or batch";
  } catch (const std::exception& error) {
    sentence = error.what();
  }
  ranks.fail(sentence);
  ::_exit(1);
}

}  // namespace

int run(int argc, char** argv, int (*program)(int, char**)) {
  if (pvm::dist::launched_ranks() <= 1) return program(argc, argv);
  try {
    pvm::dist::MpiRanks ranks([](const std::string& sentence) {
      std::fflush(stdout);
      say(sentence);
      ::_exit(1);  // the other threads wait for what will never come
    });
    const std::string other = difference(ranks, argc, argv);
    if (!other.empty()) {
      if (ranks.rank() == 0) say(other);
      return 2;
    }
    if (ranks.rank() != 0) return serve(ranks);
    Group all(ranks);
    group = &all;
    const int code = program(argc, argv);
    group = nullptr;
    if (all.broken()) {  // the others wait, and some of their GPUs may for ever
      std::fflush(stdout);
      ranks.fail({});
      ::_exit(code);
    }
    all.end(code);
    return code;
  } catch (const pvm::Error& error) {
    say(error.what());
    return 1;
  }
}

pvm::EngineMaker* maker() { return group; }

void compare_files(const std::vector<std::string>& paths) {
  if (group != nullptr) group->compare_files(paths, mark_of);
}

#else

int run(int argc, char** argv, int (*program)(int, char**)) {
  if (pvm::dist::launched_ranks() <= 1) return program(argc, argv);
  // Each of them would train by itself, and write the same files.
  std::cerr << "pvm: this pvm was built without MPI, so ranks cannot share a network; start it "
               "without mpirun, or build it where MPI is (Debian: libopenmpi-dev)\n";
  return 2;
}
pvm::EngineMaker* maker() { return nullptr; }
void compare_files(const std::vector<std::string>&) {}

#endif

}  // namespace ranks_of_run
