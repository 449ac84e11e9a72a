// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Notices within seconds when a rank ends, stops or cannot be reached. Messages alone do not tell:
/// who waits for one cannot know whether it will come.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <pvm/core/error.hpp>
#include <pvm/dist/communicator.hpp>

namespace pvm::inline v0::dist {

/// How long ranks wait for each other, in seconds.
struct Patience {
  double beat = 0.5;       ///< between two signs of life
  double silence = 10;     ///< without a sign of life, after which a rank counts as lost
  double standstill = 15;  ///< for which all ranks wait and none gets anything
  double start = 15;       ///< until all ranks are connected
};

/// What a rank's thread of messages tells its lifeline.
struct Pulse {
  std::atomic<bool> waiting = false;      ///< whether it waits for another rank
  std::atomic<std::uint32_t> served = 0;  ///< how often it has got what it waited for
};

namespace detail {

/// A file descriptor that is closed.
class Socket {
 public:
  explicit Socket(int number = -1) : number_(number) {}
  Socket(Socket&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Socket() {
    if (number_ >= 0) ::close(number_);
  }
  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] bool is_open() const noexcept { return number_ >= 0; }

 private:
  int number_;
};

/// The addresses at which other processes may reach this one, IPv4 in network order: first the one
/// that reaches processes of the same host.
inline std::vector<std::uint32_t> own_addresses() {
  std::vector<std::uint32_t> all{htonl(INADDR_LOOPBACK)};
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return all;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    if ((one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    sockaddr_in address{};
    std::memcpy(&address, one->ifa_addr, sizeof address);
    all.push_back(address.sin_addr.s_addr);
  }
  ::freeifaddrs(list);
  return all;
}

inline sockaddr_in address_of(std::uint32_t host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = host;
  address.sin_port = port;
  return address;
}

/// Waits until `socket` is ready for `events`, for at most `seconds`.
inline bool ready(const Socket& socket, short events, double seconds) {
  pollfd one{socket.number(), events, 0};
  return ::poll(&one, 1, static_cast<int>(seconds * 1000)) == 1 && (one.revents & events) != 0;
}

/// A connection to `host`; not open if there is none within a second.
inline Socket connect_to(std::uint32_t host, std::uint16_t port) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return socket;
  const sockaddr_in address = address_of(host, port);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (::connect(socket.number(), generic, sizeof address) != 0) {
    int fault = 0;
    socklen_t size = sizeof fault;
    if (errno != EINPROGRESS || !ready(socket, POLLOUT, 1) ||
        ::getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &fault, &size) != 0 || fault != 0) {
      return Socket();
    }
  }
  return socket;
}

/// What is sent over a lifeline.
struct Beat {
  enum Kind : std::uint32_t { hello, alive, farewell, failed };
  Kind kind = alive;
  std::uint32_t waiting = 0;  ///< of `alive`, see Pulse; of `hello`: the rank
  std::uint32_t served = 0;   ///< of `alive`; of `hello`: the lower half of the secret
  std::uint32_t length = 0;   ///< of `failed`: of the sentence that follows; of `hello`: the rest
};

/// One end of a connection between rank 0 and another rank.
struct Line {
  using Clock = std::chrono::steady_clock;

  Socket socket;
  int rank = 0;            ///< at the other end
  std::string place;       ///< its host and process
  Clock::time_point seen;  ///< when it last gave a sign of life
  Beat last;
  bool over = false;     ///< it has said farewell
  std::string received;  ///< bytes of a beat that is not here yet

  /// Sends, if there is room; who does not read for so long is lost anyway.
  void send(const Beat& beat, const std::string& sentence = {}) const {
    std::string bytes(reinterpret_cast<const char*>(&beat), sizeof beat);
    bytes += sentence;
    static_cast<void>(
        ::send(socket.number(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
  }
  /// Takes in what has arrived. False if the other end is closed.
  [[nodiscard]] bool read() {
    char bytes[4096];
    for (;;) {
      const auto n = ::recv(socket.number(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (n > 0) {
        received.append(bytes, static_cast<std::size_t>(n));
        seen = Clock::now();
        continue;
      }
      return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    }
  }
  /// The next whole beat, and its sentence.
  [[nodiscard]] std::optional<std::pair<Beat, std::string>> next() {
    Beat beat;
    if (received.size() < sizeof beat) return std::nullopt;
    std::memcpy(&beat, received.data(), sizeof beat);
    const std::size_t length = beat.kind == Beat::failed ? beat.length : 0;
    if (received.size() < sizeof beat + length) return std::nullopt;
    std::string sentence = received.substr(sizeof beat, length);
    received.erase(0, sizeof beat + length);
    return std::pair(beat, std::move(sentence));
  }
};

}  // namespace detail

/// TCP connections between rank 0 and every other rank, over which both ends give signs of life
/// from a thread of their own. A rank that ends without farewell, that is silent for too long, or
/// that says that it has failed, is lost, and the run with it: rank 0 tells the others. If all
/// ranks wait and none gets anything, the network between them stands still, and the run is lost,
/// too.
class Lifeline {
 public:
  /// Is called once, by the lifeline's thread, when the run is lost: with the sentence to say, or
  /// with an empty one on a rank that has nothing to say because rank 0 says it.
  using Lost = std::function<void(const std::string& sentence)>;

  /// All ranks must construct one. `place`: this process, for sentences. Throws Error (rank) if the
  /// ranks cannot reach rank 0.
  template <Communicator C>
  Lifeline(C& ranks, const std::string& place, const Pulse& pulse, Lost lost,
           Patience patience = {})
      : rank_(ranks.rank()), pulse_(pulse), lost_(std::move(lost)), patience_(patience) {
    std::string fault;
    if (ranks.size() > 1) {
      if (rank_ == 0) {
        fault = accept_all(ranks);
      } else {
        fault = connect(ranks);
      }
      share_places(ranks, place);
      // A rank that could not connect makes itself known by rank 0's count.
      std::vector<char> sentence(fault.begin(), fault.end());
      broadcast_all(ranks, sentence);
      fault.assign(sentence.begin(), sentence.end());
    }
    if (!fault.empty()) throw Error(Fault::rank, fault);
    for (detail::Line& line : lines_) line.seen = Clock::now();
    if (!lines_.empty()) thread_ = std::thread([this] { watch(); });
  }
  /// Says farewell: this rank ends, and that is right.
  ~Lifeline() {
    over_.store(true);
    if (thread_.joinable()) thread_.join();
    for (const detail::Line& line : lines_) line.send({detail::Beat::farewell});
  }
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  /// Whether the run is lost.
  [[nodiscard]] bool is_lost() const noexcept { return is_lost_.load(std::memory_order_acquire); }
  /// Throws Error (rank) if the run is lost.
  void check() {
    if (!is_lost()) return;
    const std::lock_guard lock(mutex_);
    throw Error(Fault::rank, sentence_.empty() ? "rank 0 has ended the run" : sentence_);
  }
  /// Ends the run on all ranks: `sentence` says why this one fails. On rank 0 it is not sent,
  /// because rank 0 has said it.
  void fail(const std::string& sentence) {
    detail::Beat beat{detail::Beat::failed};
    beat.length =
        rank_ == 0 ? 0 : static_cast<std::uint32_t>(std::min<std::size_t>(sentence.size(), 2000));
    for (const detail::Line& line : lines_) line.send(beat, sentence.substr(0, beat.length));
  }

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] static double seconds_since(Clock::time_point then) {
    return std::chrono::duration<double>(Clock::now() - then).count();
  }

  template <Communicator C>
  [[nodiscard]] std::string accept_all(C& ranks) {
    detail::Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_in address = detail::address_of(htonl(INADDR_ANY), 0);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    const bool listens = listener.is_open() &&
                         ::bind(listener.number(), generic, sizeof address) == 0 &&
                         ::listen(listener.number(), ranks.size()) == 0 &&
                         ::getsockname(listener.number(), generic, &size) == 0;
    const auto secret =
        static_cast<std::uint64_t>(Clock::now().time_since_epoch().count()) * 0x9e3779b97f4a7c15U ^
        static_cast<std::uint64_t>(::getpid());
    std::vector<std::uint32_t> hosts =
        listens ? detail::own_addresses() : std::vector<std::uint32_t>();
    std::vector<std::uint64_t> door{address.sin_port, secret};
    broadcast_all(ranks, hosts);
    broadcast_all(ranks, door);
    if (!listens)
      return "rank 0 cannot listen for the other ranks: " + std::string(std::strerror(errno));
    const auto began = Clock::now();
    std::vector<detail::Line> guests;  // have not said who they are
    const auto missing = [&] { return static_cast<std::size_t>(ranks.size()) - 1 - lines_.size(); };
    while (missing() > 0 && seconds_since(began) < patience_.start) {
      std::vector<pollfd> all{{listener.number(), POLLIN, 0}};
      for (const detail::Line& guest : guests) all.push_back({guest.socket.number(), POLLIN, 0});
      ::poll(all.data(), all.size(), 100);
      detail::Socket socket(
          ::accept4(listener.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (socket.is_open()) {
        guests.emplace_back();
        guests.back().socket = std::move(socket);
      }
      admit(guests, secret, ranks.size());
    }
    if (missing() == 0) return {};
    return std::to_string(missing()) + " of " + std::to_string(ranks.size()) +
           " ranks cannot reach rank 0 over TCP; all hosts must reach each other on any port";
  }
  void admit(std::vector<detail::Line>& guests, std::uint64_t secret, int size) {
    for (auto guest = guests.begin(); guest != guests.end();) {
      const bool open = guest->read();
      const auto beat = guest->next();
      if (beat && beat->first.kind == detail::Beat::hello &&
          (std::uint64_t{beat->first.length} << 32U | beat->first.served) == secret &&
          beat->first.waiting > 0 && beat->first.waiting < static_cast<std::uint32_t>(size)) {
        guest->rank = static_cast<int>(beat->first.waiting);
        guest->send(beat->first);  // the answer: this is rank 0
        lines_.push_back(std::move(*guest));
        guest = guests.erase(guest);
      } else if (beat || !open) {
        guest = guests.erase(guest);
      } else {
        ++guest;
      }
    }
  }

  template <Communicator C>
  [[nodiscard]] std::string connect(C& ranks) {
    std::vector<std::uint32_t> hosts;
    std::vector<std::uint64_t> door;
    broadcast_all(ranks, hosts);
    broadcast_all(ranks, door);
    const auto began = Clock::now();
    while (!hosts.empty() && seconds_since(began) < patience_.start - 3) {
      for (const std::uint32_t host : hosts) {
        detail::Socket socket = detail::connect_to(host, static_cast<std::uint16_t>(door[0]));
        if (!socket.is_open()) continue;
        detail::Line line;
        line.socket = std::move(socket);
        const detail::Beat hello{detail::Beat::hello, static_cast<std::uint32_t>(rank_),
                                 static_cast<std::uint32_t>(door[1]),
                                 static_cast<std::uint32_t>(door[1] >> 32U)};
        line.send(hello);
        // Another process may have this address or this port here: rank 0 answers with the secret.
        if (!detail::ready(line.socket, POLLIN, 2) || !line.read()) continue;
        const auto answer = line.next();
        if (!answer || std::memcmp(&answer->first, &hello, sizeof hello) != 0) continue;
        lines_.push_back(std::move(line));
        return {};
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    return {};  // rank 0 misses it
  }

  /// Every rank learns where rank 0 is, and rank 0 where each other one is.
  template <Communicator C>
  void share_places(C& ranks, const std::string& place) {
    std::vector<char> own(place.begin(), place.end());
    if (rank_ != 0) send_bytes(ranks, 0, own);
    for (int r = 1; rank_ == 0 && r < ranks.size(); ++r) {
      std::vector<char> theirs;
      receive_bytes(ranks, r, theirs);
      for (detail::Line& line : lines_) {
        if (line.rank == r) line.place.assign(theirs.begin(), theirs.end());
      }
    }
    broadcast_all(ranks, own);
    if (rank_ != 0 && !lines_.empty()) lines_.front().place.assign(own.begin(), own.end());
  }

  /// The thread: gives and takes signs of life until the run is over or lost.
  void watch() {
    Clock::time_point sent{}, before = Clock::now();
    moved_ = before;
    while (!over_.load()) {
      std::vector<pollfd> all;
      for (const detail::Line& line : lines_)
        all.push_back({line.over ? -1 : line.socket.number(), POLLIN, 0});
      ::poll(all.data(), all.size(), 100);
      // A process that was stopped, alone or with the whole run, has heard nobody in that time.
      if (seconds_since(before) > 2) {
        stopped_ = seconds_since(before);
        for (detail::Line& line : lines_) line.seen = Clock::now();
        moved_ = Clock::now();
      }
      before = Clock::now();
      if (seconds_since(sent) >= patience_.beat) {
        const detail::Beat beat{detail::Beat::alive, pulse_.waiting.load() ? 1U : 0U,
                                pulse_.served.load()};
        for (const detail::Line& line : lines_) {
          if (!line.over) line.send(beat);
        }
        sent = before;
      }
      for (detail::Line& line : lines_) {
        if (!line.over && !listen_to(line)) return;
      }
      if (rank_ == 0 && stands_still()) {
        return lose("no rank has received anything for " + whole(patience_.standstill) +
                    " seconds while all were waiting: the network between them stands still; the "
                    "run ends, and goes on from its last checkpoint with -L");
      }
    }
  }
  /// False if the run is lost.
  bool listen_to(detail::Line& line) {
    const bool open = line.read();
    while (auto beat = line.next()) {
      switch (beat->first.kind) {
        case detail::Beat::alive:
          if (beat->first.waiting != line.last.waiting || beat->first.served != line.last.served)
            moved_ = Clock::now();
          line.last = beat->first;
          break;
        case detail::Beat::farewell:
          line.over = true;
          break;
        case detail::Beat::failed:
          lose(rank_ != 0 ? "" : "rank " + std::to_string(line.rank) + ": " + beat->second);
          return false;
        case detail::Beat::hello:
          break;
      }
    }
    if (line.over) return true;
    const std::string who = "rank " + std::to_string(line.rank) + " (" + line.place + ")";
    const std::string then = "; the run ends, and goes on from its last checkpoint with -L";
    if (!open && stopped_ > patience_.silence) {
      lose("rank " + std::to_string(rank_) + " was stopped for " + whole(stopped_) +
           " seconds, and the other ranks have given it up" + then);
      return false;
    }
    if (!open) {
      lose(who + " has ended before the run was over" + then);
      return false;
    }
    if (seconds_since(line.seen) > patience_.silence) {
      lose(who + " has given no sign of life for " + whole(patience_.silence) + " seconds" + then);
      return false;
    }
    return true;
  }
  /// Whether all ranks have waited for too long, and none has got anything.
  [[nodiscard]] bool stands_still() {
    const bool all_wait =
        pulse_.waiting.load() && std::all_of(lines_.begin(), lines_.end(), [](const auto& line) {
          return line.last.waiting != 0 && !line.over;
        });
    if (!all_wait || pulse_.served.load() != std::exchange(own_served_, pulse_.served.load()))
      moved_ = Clock::now();
    return seconds_since(moved_) > patience_.standstill;
  }
  void lose(const std::string& sentence) {
    {
      const std::lock_guard lock(mutex_);
      sentence_ = sentence;
    }
    if (rank_ == 0) fail(sentence);
    if (lost_) lost_(sentence);
    is_lost_.store(true, std::memory_order_release);
  }
  [[nodiscard]] static std::string whole(double number) {
    return std::to_string(static_cast<int>(number));
  }

  int rank_;
  const Pulse& pulse_;
  Lost lost_;
  Patience patience_;
  std::vector<detail::Line> lines_;
  Clock::time_point moved_;       // when a rank last got something, or did not wait
  double stopped_ = 0;            // seconds for which this process was stopped, the last time
  std::uint32_t own_served_ = 0;  // rank 0's Pulse::served when last looked at
  std::atomic<bool> over_ = false, is_lost_ = false;
  std::mutex mutex_;
  std::string sentence_;
  std::thread thread_;  // last, because it uses the others
};

}  // namespace pvm::inline v0::dist
