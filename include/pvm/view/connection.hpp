// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A client's connection as a stream for cpp-httplib, which reads no more than it must: the bytes
/// of a request and the time that it takes are limited, whatever the client does.

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

namespace pvm::inline v0::view {

/// Owns a socket. One thread uses it.
class Connection : public httplib::Stream {
 public:
  static constexpr std::size_t most_bytes = 16'384;          ///< of a request
  static constexpr std::chrono::seconds longest_request{5};  ///< until it is there
  static constexpr std::chrono::seconds longest_answer{10};  ///< until the client has it

  explicit Connection(socket_t socket) : socket_(socket) {}
  ~Connection() override {
    ::shutdown(socket_, SHUT_RDWR);
    ::close(socket_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Waits for the first byte of a request; false if the connection ended, or nothing came within
  /// `patience`.
  [[nodiscard]] bool wait_for_request(std::chrono::milliseconds patience) {
    until_ = Clock::now() + patience;
    if (at_ == filled_ && !fill()) return false;
    until_ = Clock::now() + longest_request;
    left_ = most_bytes;
    answering_ = false;
    return true;
  }
  /// Whether there is something to read, or the client has gone, right now.
  [[nodiscard]] bool has_news() const { return at_ < filled_ || is_ready(POLLIN, Clock::now()); }

  bool is_readable() const override { return at_ < filled_ || is_ready(POLLIN, until_); }
  bool is_writable() const override {
    begin_answer();
    return is_ready(POLLOUT, until_);
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
    while (is_ready(POLLOUT, until_)) {
      const ssize_t n = ::send(socket_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n >= 0 || (errno != EAGAIN && errno != EINTR)) return n;
    }
    return -1;
  }

  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  // In some versions this overrides, in others there is no such function.
  void get_local_ip_and_port(std::string& ip, int& port) const { get_remote_ip_and_port(ip, port); }
  socket_t socket() const override { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;

  /// Reads what there is into the buffer; false if nothing comes in time.
  bool fill() {
    while (is_ready(POLLIN, until_)) {
      const ssize_t n = ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
      if (n == 0) return false;
      if (n > 0) {
        at_ = 0;
        filled_ = static_cast<std::size_t>(n);
        return true;
      }
      if (errno != EAGAIN && errno != EINTR) return false;
    }
    return false;
  }
  void begin_answer() const {
    if (!answering_) until_ = Clock::now() + longest_answer;
    answering_ = true;
  }
  bool is_ready(short what, Clock::time_point until) const {
    const auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    pollfd poll{socket_, what, 0};
    return ::poll(&poll, 1, static_cast<int>(std::max<long>(0, wait.count()))) > 0;
  }

  socket_t socket_;
  std::array<char, 4096> buffer_{};
  std::size_t at_ = 0, filled_ = 0;  // what of the buffer is still to be read
  std::size_t left_ = most_bytes;    // bytes that the request may still have
  mutable Clock::time_point until_{};
  mutable bool answering_ = false;
};

}  // namespace pvm::inline v0::view
