// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How an engine whose network several processes share, the ranks, reaches the others: what a
/// dist::Communicator offers, as one type, so that kernels are compiled without knowing what
/// connects the ranks. And what engines do with it, for which all ranks call the same function.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <pvm/core/error.hpp>

namespace pvm::inline v0 {

/// All functions are called by one thread of a rank at a time, and throw Error (Fault::rank) if
/// another rank was lost.
class OtherRanks {
 public:
  OtherRanks() = default;
  virtual ~OtherRanks() = default;
  OtherRanks(const OtherRanks&) = delete;
  OtherRanks& operator=(const OtherRanks&) = delete;

  [[nodiscard]] virtual int rank() const noexcept = 0;  ///< of this process, from 0
  [[nodiscard]] virtual int size() const noexcept = 0;  ///< how many ranks there are
  /// Makes `bytes` of all ranks those of rank 0.
  virtual void broadcast(std::span<std::byte> bytes) = 0;
  /// Messages between two ranks keep their order, and have the size with which they were sent.
  virtual void send(int to, std::span<const std::byte> bytes) = 0;
  virtual void receive(int from, std::span<std::byte> bytes) = 0;
  /// Waits until `done` returns true, for what other ranks have a part in but no message tells.
  virtual void wait_until(const std::function<bool()>& done) = 0;
};

namespace detail {

/// `value` of every rank, in the order of the ranks.
template <class T>
std::vector<T> of_all_ranks(OtherRanks& ranks, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(ranks.size()), value);
  const auto of = [&](int r) { return std::span(all).subspan(static_cast<std::size_t>(r), 1); };
  if (ranks.rank() != 0) ranks.send(0, std::as_bytes(of(ranks.rank())));
  for (int r = 1; ranks.rank() == 0 && r < ranks.size(); ++r) {
    ranks.receive(r, std::as_writable_bytes(of(r)));
  }
  ranks.broadcast(std::as_writable_bytes(std::span(all)));
  return all;
}

/// Returns when all ranks have called it.
inline void meet(OtherRanks& ranks) { static_cast<void>(of_all_ranks(ranks, std::uint8_t{0})); }

/// Completes `values` on rank 0. Every rank has some of them, and zero bits for those that others
/// have; what several ranks have must be the same. The other ranks keep theirs.
template <class T>
void merge_ranks(OtherRanks& ranks, std::span<T> values) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) == sizeof(std::uint32_t));
  constexpr std::size_t at_once = std::size_t{1} << 20;  // so that rank 0 needs little memory
  std::vector<std::uint32_t> theirs;
  for (std::size_t at = 0; at < values.size(); at += at_once) {
    const std::span<T> piece = values.subspan(at, std::min(at_once, values.size() - at));
    if (ranks.rank() != 0) {
      ranks.send(0, std::as_bytes(piece));
      continue;
    }
    theirs.resize(piece.size());
    for (int r = 1; r < ranks.size(); ++r) {
      ranks.receive(r, std::as_writable_bytes(std::span(theirs)));
      for (std::size_t i = 0; i < piece.size(); ++i) {
        piece[i] = std::bit_cast<T>(std::bit_cast<std::uint32_t>(piece[i]) | theirs[i]);
      }
    }
  }
}

/// Does `work`, which may throw Error, and throws on all ranks if it has thrown on one of them: the
/// sentence of the lowest one, with its number. What concerns lost ranks is thrown at once.
template <class Work>
void on_all_ranks(OtherRanks& ranks, Work work) {
  struct Outcome {
    Fault fault = Fault::memory;
    std::uint64_t length = 0;  // of the sentence; 0: all is well
  } own;
  std::string sentence;
  try {
    work();
  } catch (const Error& error) {
    if (error.fault() == Fault::rank) throw;
    sentence = error.what();
    own.fault = error.fault();
  } catch (const std::bad_alloc&) {
    sentence = "there is not enough memory for this; use a smaller spec or batch";
  }
  own.length = sentence.size();
  const std::vector<Outcome> all = of_all_ranks(ranks, own);
  const auto failed =
      std::find_if(all.begin(), all.end(), [](const Outcome& one) { return one.length > 0; });
  if (failed == all.end()) return;
  const auto rank = static_cast<int>(failed - all.begin());
  sentence.resize(failed->length);
  const std::span<char> letters(sentence);
  if (rank != 0 && rank == ranks.rank()) ranks.send(0, std::as_bytes(letters));
  if (rank != 0 && ranks.rank() == 0) ranks.receive(rank, std::as_writable_bytes(letters));
  ranks.broadcast(std::as_writable_bytes(letters));
  throw Error(failed->fault, (rank == 0 ? "" : "rank " + std::to_string(rank) + ": ") + sentence);
}

}  // namespace detail

}  // namespace pvm::inline v0
