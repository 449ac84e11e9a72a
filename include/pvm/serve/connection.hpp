// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A client's connection as a stream for cpp-httplib, with bounds that hold whatever the client
/// does: the bytes of a request and of its head, the time until it is there, and the time until the
/// answer is gone.

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <string>

#include <pvm/core/need_httplib.hpp>

#include <httplib.h>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::serve {

struct ConnectionLimits {
  std::size_t request_bytes = 16'384;  ///< of a request, its head included
  std::size_t head_bytes = 16'384;     ///< of its head: what is read of one that is not let in
  std::chrono::milliseconds request{5'000};
  std::chrono::milliseconds answer{10'000};
};

/// Owns a socket. One thread uses it.
class Connection : public httplib::Stream {
 public:
  Connection(socket_t socket, const ConnectionLimits& limits) : socket_(socket), limits_(limits) {}
  ~Connection() override {
    ::shutdown(socket_, SHUT_RDWR);
    ::close(socket_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  enum class Waited { request, silence, end };
  /// Waits for the first byte of a request, at most `patience`.
  [[nodiscard]] Waited wait_for_request(std::chrono::milliseconds patience) {
    until_ = Clock::now() + patience;
    if (at_ == filled_) {
      if (!is_ready(POLLIN)) return Waited::silence;
      if (!fill()) return Waited::end;
    }
    until_ = Clock::now() + limits_.request;
    left_ = std::min(limits_.head_bytes, limits_.request_bytes);
    answers_ = has_head_ = false;
    return Waited::request;
  }
  /// The head is there, so its body may be read.
  void expect_body() {
    left_ = limits_.request_bytes;
    has_head_ = true;
  }
  /// Whether a whole head has come. What follows another one is no request.
  [[nodiscard]] bool has_head() const { return has_head_; }

  bool is_readable() const override { return at_ < filled_ || is_ready(POLLIN); }
  bool is_writable() const override {
    begin_answer();
    return is_ready(POLLOUT);
  }
  ssize_t read(char* to, std::size_t size) override {
    if (left_ == 0 || (at_ == filled_ && !fill())) return -1;
    const std::size_t n = std::min({size, filled_ - at_, left_});
    std::copy_n(buffer_.begin() + static_cast<std::ptrdiff_t>(at_), n, to);
    at_ += n;
    left_ -= n;
    return static_cast<ssize_t>(n);
  }
  ssize_t write(const char* from, std::size_t size) override {
    begin_answer();
    while (is_ready(POLLOUT)) {
      const ssize_t n = ::send(socket_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n >= 0 || (errno != EAGAIN && errno != EINTR)) return n;
    }
    return -1;
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  socket_t socket() const override { return socket_; }
  // In some versions these override, in others there are no such functions.
  void get_local_ip_and_port(std::string& ip, int& port) const { get_remote_ip_and_port(ip, port); }
  bool wait_readable() const { return is_readable(); }
  bool wait_writable() const { return is_writable(); }
  time_t duration() const { return 0; }

 private:
  using Clock = std::chrono::steady_clock;

  /// Reads what there is into the buffer; false if nothing comes in time, or the client has gone.
  bool fill() {
    while (is_ready(POLLIN)) {
      const ssize_t n = ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
      if (n > 0) {
        at_ = 0;
        filled_ = static_cast<std::size_t>(n);
        return true;
      }
      if (n == 0 || (errno != EAGAIN && errno != EINTR)) return false;
    }
    return false;
  }
  void begin_answer() const {
    if (!answers_) until_ = Clock::now() + limits_.answer;
    answers_ = true;
  }
  [[nodiscard]] bool is_ready(short what) const {
    const auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(until_ - Clock::now());
    pollfd poll{socket_, what, 0};
    return ::poll(&poll, 1, static_cast<int>(std::max<long>(0, wait.count()))) > 0;
  }

  socket_t socket_;
  ConnectionLimits limits_;
  std::array<char, 16'384> buffer_{};
  std::size_t at_ = 0, filled_ = 0;  // what of the buffer is still to be read
  std::size_t left_ = 0;             // bytes that the request may still have
  bool has_head_ = false;
  mutable Clock::time_point until_{};
  mutable bool answers_ = false;
};

}  // namespace pvm::inline v0::serve
