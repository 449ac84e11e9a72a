// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The concept of a communicator: how the processes of one run, the ranks, reach each other. And
/// the one for a single process.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::dist {

/// All functions are called by one thread of a rank at a time. Those that wait throw Error
/// (Fault::rank) if another rank was lost, except for the functions of a Gather, which say so by
/// their result.
///
/// `C::Gather(communicator, bytes, starts)` is an all-gather in place that is repeated: rank r has
/// the bytes from starts[r] up to starts[r + 1], and after `start()` and `finish()` all ranks have
/// all bytes. Every rank must make its Gathers in the same order.
template <class C>
concept Communicator = requires(C c, const C& unchanged, int other, std::span<std::byte> in,
                                std::span<const std::byte> out, int threads,
                                const std::function<bool()>& done, typename C::Gather& gather) {
  { unchanged.rank() } -> std::same_as<int>;
  { unchanged.size() } -> std::same_as<int>;
  { unchanged.cores() } -> std::same_as<int>;  // this rank's share of its host's; 0: less than one
  {c.expect_threads(threads)};                 // how many threads the rank computes with
  {c.broadcast(in)};                           // the bytes of rank 0
  {c.send(other, out)};                        // messages between two ranks keep their order
  {c.receive(other, in)};                      // of the size that was sent
  {c.wait_until(done)};                        // until done() returns true
  {c.check()};                                 // throws if a rank was lost
  {gather.start()};
  {gather.progress()};
  { gather.finish() } -> std::same_as<bool>;
};

/// One process: there is nobody to talk to.
class OneProcess {
 public:
  class Gather {
   public:
    Gather(OneProcess&, std::span<std::byte>, std::span<const std::size_t>) {}
    void start() noexcept {}
    void progress() noexcept {}
    [[nodiscard]] bool finish() noexcept { return true; }
  };

  [[nodiscard]] int rank() const noexcept { return 0; }
  [[nodiscard]] int size() const noexcept { return 1; }
  [[nodiscard]] int cores() const noexcept {
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  void expect_threads(int) noexcept {}
  void broadcast(std::span<std::byte>) noexcept {}
  void send(int, std::span<const std::byte>) noexcept {}
  void receive(int, std::span<std::byte>) noexcept {}
  void wait_until(const std::function<bool()>& done) {
    while (!done()) std::this_thread::yield();
  }
  void check() noexcept {}
};

static_assert(Communicator<OneProcess>);

/// The bytes of values that may be copied as bytes.
template <class T>
[[nodiscard]] std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span<T>(values));
}
template <class T>
[[nodiscard]] std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}
template <class T>
[[nodiscard]] std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span<T, 1>(&value, 1));
}

/// Makes `values` of all ranks those of rank 0, of any length.
template <Communicator C, class T>
void broadcast_all(C& ranks, std::vector<T>& values) {
  std::uint64_t count = values.size();
  ranks.broadcast(bytes_of(count));
  values.resize(count);
  ranks.broadcast(bytes_of(values));
}

/// Sends bytes with their number before them, and receives such a message.
template <Communicator C, class T>
void send_bytes(C& ranks, int to, const std::vector<T>& values) {
  std::uint64_t count = values.size();
  ranks.send(to, bytes_of(count));
  ranks.send(to, bytes_of(values));
}
template <Communicator C, class T>
void receive_bytes(C& ranks, int from, std::vector<T>& values) {
  std::uint64_t count = 0;
  ranks.receive(from, bytes_of(count));
  values.resize(count);
  ranks.receive(from, bytes_of(values));
}

/// The lowest rank whose `text` is not that of rank 0, or -1: the same result on all ranks, which
/// must all call it.
template <Communicator C>
[[nodiscard]] int differing_rank(C& ranks, const std::string& text) {
  const std::vector<char> mine(text.begin(), text.end());
  int differing = -1;
  if (ranks.rank() != 0) send_bytes(ranks, 0, mine);
  for (int r = ranks.size() - 1; ranks.rank() == 0 && r > 0; --r) {
    std::vector<char> theirs;
    receive_bytes(ranks, r, theirs);
    if (theirs != mine) differing = r;
  }
  ranks.broadcast(bytes_of(differing));
  return differing;
}

}  // namespace pvm::inline v0::dist
