// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The web server of a live page: what it lets in, and how much of it.

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include <pvm/core/need_httplib.hpp>

#include <httplib.h>

#include <pvm/core/error.hpp>
#include <pvm/serve/connection.hpp>
#include <pvm/serve/guard.hpp>
#include <pvm/serve/server_name.hpp>

namespace pvm::inline v0::view {

/// A request that was let in: its token and where it came from are right.
struct Request {
  std::string method, path;
  std::string text;     ///< the parameter `text`
  std::uint64_t after;  ///< the parameter `after`, 0 if there is none
};

struct Response {
  int status = 200;
  std::string type = "application/json";
  std::string body;
};

/// Answers requests, on threads of its own, with what `answer` returns. It lets in only requests
/// with the token, for the address that it is called by (a page of another name that leads here is
/// refused), and from no page but its own. Nothing in a request is used as the name of a file.
class Server : private httplib::Server {
 public:
  using Answer = std::function<Response(const Request&)>;
  static constexpr std::size_t threads = 16;

  /// Listens on `address` and `port`, or on one of the next 15 ports if `others` and this one is in
  /// use. Throws Error (Fault::usage) if that fails.
  Server(const std::string& address, int port, bool others, Answer answer)
      : address_(address), token_(serve::random_token()), answer_(std::move(answer)) {
    new_task_queue = [] { return new serve::detail::BoundedThreads(threads); };
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      respond(request, response);
      return HandlerResponse::Handled;
    });
    // Without SO_REUSEPORT, which is httplib's default: two programs must not share a port.
    set_socket_options([](socket_t socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    set_keep_alive_max_count(1'000'000);  // what the client is told
    set_tcp_nodelay(true);
    const int most = others ? 15 : 0;
    for (port_ = port; !bind_to_port(address_, port_); ++port_) {
      if (port_ < port + most) continue;
      throw Error(Fault::usage, "the live page cannot be served on " + address_ + ", port " +
                                    std::to_string(port) +
                                    ": it is in use, or not this machine's; choose another one");
    }
    listener_ = std::thread([this] {
      listen_after_bind();
      listened_.store(true);
    });
  }
  ~Server() override {
    while (!is_running() && !listened_.load())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ends_.store(true);
    httplib::Server::stop();
    listener_.join();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] std::string url() const { return name().url() + "/?token=" + token_; }

 private:
  [[nodiscard]] serve::ServerName name() const { return {address_, port_}; }

  void respond(const httplib::Request& request, httplib::Response& response) {
    const Response answered = answer_to(request);
    response.status = answered.status;
    response.set_header("Cache-Control", "no-store");
    response.set_header("Referrer-Policy", "no-referrer");
    response.set_header("X-Content-Type-Options", "nosniff");
    response.set_header("X-Frame-Options", "DENY");
    response.set_header("Content-Security-Policy",
                        "default-src 'none'; script-src 'unsafe-inline'; style-src "
                        "'unsafe-inline'; connect-src 'self'; img-src data: blob:; base-uri "
                        "'none'; form-action 'none'; frame-ancestors 'none'");
    response.set_content(answered.body, answered.type.c_str());
  }

  Response answer_to(const httplib::Request& request) {
    const auto refuse = [](int status, const std::string& why) {
      return Response{status, "text/plain; charset=utf-8", why + "\n"};
    };
    if (const std::string why = name().why_not(request); !why.empty()) return refuse(403, why);
    if (request.method != "GET" && request.method != "POST") {
      return refuse(405, "Only GET and POST are answered.");
    }
    const std::string token = request.has_header("X-Pvm-Token")
                                  ? request.get_header_value("X-Pvm-Token")
                                  : request.get_param_value("token");
    if (!serve::detail::same_secret(token, token_)) {
      return refuse(403,
                    "The token is missing or another run's; open the address that pvm printed.");
    }
    std::uint64_t after = 0;
    const std::string number = request.get_param_value("after");
    std::from_chars(number.data(), number.data() + number.size(), after);
    return answer_({request.method, request.path, request.get_param_value("text"), after});
  }

  bool process_and_close_socket(socket_t socket) override {
    using Waited = serve::Connection::Waited;
    serve::Connection connection(socket, {});
    constexpr int patience = 100;  // tenths of a second that a connection may be silent
    for (int silent = 0; silent < patience && !ends_.load();) {
      const Waited waited = connection.wait_for_request(std::chrono::milliseconds(100));
      if (waited == Waited::end) return false;
      if (waited == Waited::silence) {
        ++silent;
        continue;
      }
      silent = 0;
      bool closed = false, is_whole = false;
      const bool done =
          process_request(connection, ends_.load(), closed, [&](httplib::Request& request) {
            // No request needs a body. It would be read as the next request, as would what follows
            // the end of what is read of a head.
            is_whole = !request.has_header("Transfer-Encoding") &&
                       (!request.has_header("Content-Length") ||
                        request.get_header_value("Content-Length") == "0");
          });
      if (!done || closed || !is_whole) return false;
    }
    return true;
  }

  std::string address_;
  int port_ = 0;
  std::string token_;
  Answer answer_;
  std::atomic<bool> ends_ = false, listened_ = false;
  std::thread listener_;
};

}  // namespace pvm::inline v0::view
