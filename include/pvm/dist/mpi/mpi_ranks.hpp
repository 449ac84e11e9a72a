// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Ranks that MPI starts and connects.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sched.h>
#include <unistd.h>

#include <pvm/core/need_mpi.hpp>

#include <mpi.h>

#include <pvm/core/error.hpp>
#include <pvm/dist/communicator.hpp>
#include <pvm/dist/lifeline.hpp>

namespace pvm::inline v0::dist {

namespace detail {

/// Calls `late` unless this object is destroyed within `seconds`.
class Deadline {
 public:
  Deadline(double seconds, Lifeline::Lost late)
      : thread_([this, seconds, late = std::move(late)] {
          std::unique_lock lock(mutex_);
          const std::chrono::duration<double> wait(seconds);
          if (!over_.wait_for(lock, wait, [this] { return is_over_; }) && late) {
            late("the ranks do not all start within " + std::to_string(static_cast<int>(seconds)) +
                 " seconds: all must run the same pvm, and their hosts must reach each other");
          }
        }) {}
  ~Deadline() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    over_.notify_one();
    thread_.join();
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;  // last, because it uses the others
};

}  // namespace detail

/// A Communicator over MPI, with a Lifeline. One object at a time, and one in the life of a
/// process; the thread that constructs it must call all its functions.
class MpiRanks {
 public:
  /// Initialises MPI. `lost`: see Lifeline; it is also called if the ranks do not start. Throws
  /// Error (rank).
  explicit MpiRanks(Lifeline::Lost lost, const Patience& patience = {}) {
    const detail::Deadline deadline(25, lost);
    int level = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_dup(MPI_COMM_WORLD, &all_);
    MPI_Comm_set_errhandler(all_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(all_, &rank_);
    MPI_Comm_size(all_, &size_);
    find_cores();
    lifeline_.emplace(*this, place(), pulse_, std::move(lost), patience);
  }
  /// Finalises MPI, for which all ranks come together, unless one was lost.
  ~MpiRanks() {
    const bool lost = lifeline_ && lifeline_->is_lost();
    lifeline_.reset();
    if (lost) return;
    MPI_Comm_free(&all_);
    MPI_Finalize();
  }
  MpiRanks(const MpiRanks&) = delete;
  MpiRanks& operator=(const MpiRanks&) = delete;

  /// The repeated all-gather: persistent messages between all pairs of ranks.
  class Gather {
   public:
    Gather(MpiRanks& ranks, std::span<std::byte> bytes, const std::vector<std::size_t>& starts)
        : ranks_(ranks) {
      const auto part = [&](int r) {
        const auto i = static_cast<std::size_t>(r);
        return bytes.subspan(starts[i], starts[i + 1] - starts[i]);
      };
      const auto own = part(ranks.rank_);
      for (int r = 0; r < ranks.size_; ++r) {
        if (r == ranks.rank_) continue;
        requests_.emplace_back();
        MPI_Recv_init(part(r).data(), count(part(r).size()), MPI_BYTE, r, tag, ranks.all_,
                      &requests_.back());
      }
      for (int i = 1; i < ranks.size_; ++i) {  // not all to the same rank first
        const int r = (ranks.rank_ + i) % ranks.size_;
        requests_.emplace_back();
        MPI_Send_init(own.data(), count(own.size()), MPI_BYTE, r, tag, ranks.all_,
                      &requests_.back());
      }
    }
    ~Gather() {
      for (MPI_Request& request : requests_) MPI_Request_free(&request);
    }
    Gather(const Gather&) = delete;
    Gather& operator=(const Gather&) = delete;

    void start() noexcept { MPI_Startall(static_cast<int>(requests_.size()), requests_.data()); }
    void progress() noexcept {
      int done = 0;
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
    }
    [[nodiscard]] bool finish() noexcept { return ranks_.wait(requests_); }

   private:
    static constexpr int tag = 1;
    MpiRanks& ranks_;
    std::vector<MPI_Request> requests_;
  };

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] int cores() const noexcept { return cores_; }
  /// Who waits lets others have the core if there are more threads than cores.
  void expect_threads(int threads) noexcept { crowded_ = threads > cores_; }

  void broadcast(std::span<std::byte> bytes) {
    for_pieces(bytes, [&](std::span<std::byte> piece, MPI_Request& request) {
      return MPI_Ibcast(piece.data(), count(piece.size()), MPI_BYTE, 0, all_, &request);
    });
  }
  void send(int to, std::span<const std::byte> bytes) {
    for_pieces(bytes, [&](std::span<const std::byte> piece, MPI_Request& request) {
      return MPI_Isend(piece.data(), count(piece.size()), MPI_BYTE, to, 0, all_, &request);
    });
  }
  void receive(int from, std::span<std::byte> bytes) {
    for_pieces(bytes, [&](std::span<std::byte> piece, MPI_Request& request) {
      return MPI_Irecv(piece.data(), count(piece.size()), MPI_BYTE, from, 0, all_, &request);
    });
  }
  void wait_until(const std::function<bool()>& done) {
    if (!wait_for(done)) lost();
  }
  void check() {
    lifeline_->check();
    if (!fault_.empty()) throw Error(Fault::rank, fault_);
  }
  /// Ends the run on all ranks, because this one has failed: see Lifeline::fail.
  void fail(const std::string& sentence) { lifeline_->fail(sentence); }

 private:
  [[nodiscard]] static int count(std::size_t bytes) { return static_cast<int>(bytes); }

  [[nodiscard]] static std::string place() {
    char name[256] = "";
    static_cast<void>(::gethostname(name, sizeof name - 1));
    return "process " + std::to_string(::getpid()) + " on " + name;
  }

  /// The cores that this process may use, divided by the ranks that may use the same ones.
  void find_cores() {
    cpu_set_t own;
    CPU_ZERO(&own);
    ::sched_getaffinity(0, sizeof own, &own);
    MPI_Comm host = MPI_COMM_NULL;
    MPI_Comm_split_type(all_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host);
    int on_host = 1;
    MPI_Comm_size(host, &on_host);
    std::vector<cpu_set_t> sets(static_cast<std::size_t>(on_host));
    MPI_Allgather(&own, sizeof own, MPI_BYTE, sets.data(), sizeof own, MPI_BYTE, host);
    MPI_Comm_free(&host);
    const auto same = std::count_if(
        sets.begin(), sets.end(), [&](const cpu_set_t& set) { return CPU_EQUAL(&set, &own) != 0; });
    cores_ = CPU_COUNT(&own) / static_cast<int>(std::max<std::ptrdiff_t>(1, same));
  }

  /// Calls start(piece, request) for the pieces that one message may have, and waits for each.
  template <class Byte, class Start>
  void for_pieces(std::span<Byte> bytes, Start start) {
    constexpr std::size_t most = std::size_t{1} << 30;
    while (!bytes.empty()) {
      const std::size_t size = std::min(bytes.size(), most);
      MPI_Request request = MPI_REQUEST_NULL;
      note(start(bytes.first(size), request));
      if (!fault_.empty() || !wait(std::span(&request, 1))) return lost();
      bytes = bytes.subspan(size);
    }
  }
  void note(int result) {
    if (result == MPI_SUCCESS || !fault_.empty()) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(result, text, &length);
    fault_ = "a message between ranks has failed (" + std::string(text) +
             "); the run ends, and goes on from its last checkpoint with -L";
  }
  [[noreturn]] void lost() {
    check();
    throw Error(Fault::rank, "another rank was lost; the run goes on from its last checkpoint");
  }

  /// Tells the lifeline, during its lifetime, that this rank waits, and then that it need not.
  class Waiting {
   public:
    explicit Waiting(Pulse& pulse) : pulse_(pulse) {
      pulse_.waiting.store(true, std::memory_order_relaxed);
    }
    ~Waiting() {
      pulse_.served.fetch_add(1, std::memory_order_relaxed);
      pulse_.waiting.store(false, std::memory_order_relaxed);
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Pulse& pulse_;
  };

  /// Waits until `done` returns true. False if the run is lost.
  template <class Done>
  [[nodiscard]] bool wait_for(Done done) {
    const Waiting waiting(pulse_);
    for (std::uint64_t tries = 0; !done(); ++tries) {
      if (!fault_.empty() || (lifeline_ && lifeline_->is_lost())) return false;
      rest(tries);
    }
    return true;
  }
  /// Waits for all of `requests`. False if the run is lost. Not MPI_Waitall: that would wait for a
  /// lost rank for ever, and use a core meanwhile.
  [[nodiscard]] bool wait(std::span<MPI_Request> requests) noexcept {
    return wait_for([&] {
      int done = 0;
      const int result = MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                                     MPI_STATUSES_IGNORE);
      if (result != MPI_SUCCESS) note(result);
      return done != 0 && result == MPI_SUCCESS;
    });
  }
  /// Passes time after `tries` looks in vain: at first none, for what comes at once, then more.
  void rest(std::uint64_t tries) const noexcept {
    constexpr std::uint64_t looks = 5'000, yields = 50;
    if (tries < (crowded_ ? yields : looks)) {
      if (crowded_) ::sched_yield();
      return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(tries < 100'000 ? 20 : 200));
  }

  MPI_Comm all_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1, cores_ = 1;
  bool crowded_ = false;
  Pulse pulse_;
  std::string fault_;  // what MPI has said, if it has failed
  std::optional<Lifeline> lifeline_;
};

static_assert(Communicator<MpiRanks>);

}  // namespace pvm::inline v0::dist
