// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A web server for programs on the same machine: what it lets in, and how much of it.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <pvm/core/need_httplib.hpp>

#include <httplib.h>

#include <pvm/core/error.hpp>
#include <pvm/serve/connection.hpp>
#include <pvm/serve/guard.hpp>
#include <pvm/serve/server_name.hpp>

namespace pvm::inline v0::serve {

/// A request that was let in.
struct Request {
  std::string method, path, body;
  std::string query;  ///< what follows the path, as it came
};

struct Response {
  int status = 200;
  std::string type = "application/json";
  std::string body;
};

struct ServerOptions {
  std::string address = "127.0.0.1";
  int port = 8090;
  std::string token;              ///< that requests must have
  std::size_t connections = 256;  ///< that are served at once, each by a thread
  ConnectionLimits limits{};
  std::chrono::seconds silence{60};  ///< after which a connection is closed; at once if others wait
};

/// Answers requests, on threads of its own, with what `answer` returns. It lets in only requests
/// with the token (`Authorization: Bearer TOKEN`, or `X-Pvm-Token`), for the address that it is
/// called by, so that no page of another name leads here, and not from another page. It decides
/// before it reads a body. Nothing in a request is used as the name of a file.
class Server : private httplib::Server {
 public:
  using Answer = std::function<Response(const Request&)>;

  /// Throws Error (Fault::usage) if it cannot listen there.
  Server(const ServerOptions& options, Answer answer)
      : options_(options), answer_(std::move(answer)) {
    new_task_queue = [this] {
      auto* const threads = new detail::BoundedThreads(options_.connections);  // httplib owns it
      threads_.store(threads);
      return threads;
    };
    set_payload_max_length(options.limits.request_bytes);
    set_keep_alive_max_count(1'000'000'000);  // what the client is told
    set_tcp_nodelay(true);
    // Without SO_REUSEPORT, which is httplib's default: two programs must not share a port.
    set_socket_options([](socket_t socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      const std::string why = why_refused(request);
      refused_ = !why.empty();
      if (!refused_) return HandlerResponse::Unhandled;
      set(response, {403, "text/plain; charset=utf-8", why + "\n"});
      return HandlerResponse::Handled;
    });
    const auto handle = [this](const httplib::Request& request, httplib::Response& response) {
      const std::size_t query = request.target.find('?');
      set(response, answer_({request.method, request.path, request.body,
                             query == std::string::npos ? "" : request.target.substr(query + 1)}));
    };
    Get(".*", handle);
    Post(".*", handle);
    Put(".*", handle);
    Delete(".*", handle);
    set_error_handler(HandlerWithResponse([](const httplib::Request&, httplib::Response& response) {
      if (!response.body.empty()) return HandlerResponse::Unhandled;
      const bool large = response.status == 413;
      set(response, {response.status, "text/plain; charset=utf-8",
                     large ? "The body is too large, or it is said to be a form: send a picture "
                             "with its Content-Type.\n"
                           : "This is no request.\n"});
      return HandlerResponse::Handled;
    }));
    if (!bind()) {
      throw Error(Fault::usage, "nothing can be served on " + options_.address + ", port " +
                                    std::to_string(options_.port) +
                                    ": it is in use, or not this machine's; choose another one");
    }
    // httplib lets 5 clients wait for their connection, and the others for a second and more.
    ::listen(svr_sock_, 1024);
    listener_ = std::thread([this] {
      listen_after_bind();
      listened_.store(true);
    });
  }
  ~Server() override {
    while (!is_running() && !listened_.load()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ends_.store(true);
    httplib::Server::stop();
    listener_.join();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] int port() const noexcept { return options_.port; }
  [[nodiscard]] std::string url() const { return name().url(); }

 private:
  bool bind() {
    if (options_.port != 0) return bind_to_port(options_.address, options_.port);
    options_.port = bind_to_any_port(options_.address);
    return options_.port > 0;
  }
  [[nodiscard]] ServerName name() const { return {options_.address, options_.port}; }

  [[nodiscard]] std::string why_refused(const httplib::Request& request) const {
    if (std::string why = name().why_not(request); !why.empty()) return why;
    if (request.has_header("Content-Encoding")) return "Compressed bodies are not read.";
    constexpr std::string_view bearer = "Bearer ";
    std::string token = request.get_header_value("X-Pvm-Token");
    const std::string authorization = request.get_header_value("Authorization");
    if (token.empty() && authorization.starts_with(bearer)) {
      token = authorization.substr(bearer.size());
    }
    if (!detail::same_secret(token, options_.token)) {
      return "The token is missing or wrong: send the header Authorization: Bearer TOKEN.";
    }
    return {};
  }

  static void set(httplib::Response& response, const Response& answered) {
    response.status = answered.status;
    response.set_header("Cache-Control", "no-store");
    response.set_header("X-Content-Type-Options", "nosniff");
    response.set_header("X-Frame-Options", "DENY");
    response.set_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'");
    if (answered.status == 429 || answered.status == 503) response.set_header("Retry-After", "1");
    response.set_content(answered.body, answered.type.c_str());
  }

  /// Later versions of httplib also want to know the addresses of both ends.
  template <class Self>
  static bool process(Self& self, Connection& connection, bool last, bool& closed) {
    // A request that says nothing of a body has none; httplib would wait for its end. Answers are
    // whole, whichever bytes of them are asked for.
    const auto complete = [&connection](httplib::Request& request) {
      connection.expect_body();
      request.headers.erase("Range");
      request.ranges.clear();
      if (request.has_header("Content-Length") || request.has_header("Transfer-Encoding")) return;
      request.set_header("Content-Length", "0");
    };
    if constexpr (requires { self.process_request(connection, last, closed, complete); }) {
      return self.process_request(connection, last, closed, complete);
    } else {
      return self.process_request(connection, "", 0, "", 0, last, closed, complete);
    }
  }

  bool process_and_close_socket(socket_t socket) override {
    Connection connection(socket, options_.limits);
    constexpr std::chrono::milliseconds look{100};
    for (auto silent = look * 0; silent < options_.silence && !ends_.load();) {
      const auto waited = connection.wait_for_request(look);
      if (waited == Connection::Waited::end) return false;
      if (waited == Connection::Waited::silence) {
        if (threads_.load()->crowded()) return false;  // those who say something come first
        silent += look;
        continue;
      }
      silent = look * 0;
      bool closed = false;
      refused_ = false;
      const bool done = process(*this, connection, ends_.load(), closed);
      // Of a refused request the body was not read.
      if (!done || closed || refused_ || !connection.has_head()) return false;
    }
    return true;
  }

  inline static thread_local bool refused_ = false;  // the request that this thread answers

  ServerOptions options_;
  Answer answer_;
  std::atomic<bool> ends_ = false, listened_ = false;
  std::atomic<detail::BoundedThreads*> threads_ = nullptr;
  std::thread listener_;
};

}  // namespace pvm::inline v0::serve
