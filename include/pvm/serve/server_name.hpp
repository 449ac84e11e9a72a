// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The names that a server goes by, and which requests therefore are not for it: a page of another
/// name that leads here, and a page from elsewhere, cannot talk to it.

#include <string>
#include <utility>

#include <pvm/core/need_httplib.hpp>

#include <httplib.h>

namespace pvm::inline v0::serve {

class ServerName {
 public:
  ServerName(std::string address, int port) : address_(std::move(address)), port_(port) {}

  /// Where a program on this machine reaches the server.
  [[nodiscard]] std::string url() const { return "http://" + host() + port(); }

  /// Why a request is not for this server, as a sentence; empty if it is.
  [[nodiscard]] std::string why_not(const httplib::Request& request) const {
    if (!is_this(request.get_header_value("Host"))) {
      return "This server goes by another name; use the address that pvm printed.";
    }
    if (!request.has_header("Origin")) return {};
    const std::string origin = request.get_header_value("Origin");
    if (origin.starts_with("http://") && is_this(origin.substr(7))) return {};
    return "Requests of other pages are not answered.";
  }

 private:
  [[nodiscard]] bool on_all_addresses() const { return address_ == "0.0.0.0" || address_ == "::"; }
  [[nodiscard]] std::string host() const {
    if (on_all_addresses()) return "127.0.0.1";
    return address_.find(':') == std::string::npos ? address_ : "[" + address_ + "]";
  }
  [[nodiscard]] std::string port() const { return ":" + std::to_string(port_); }

  /// Whether `host`, a header, names this server. One that listens on all addresses is called by
  /// any number, but not by any name.
  [[nodiscard]] bool is_this(const std::string& host) const {
    if (!host.ends_with(port())) return false;
    const std::string name = host.substr(0, host.size() - port().size());
    if (name == "127.0.0.1" || name == "localhost" || name == "[::1]" || name == this->host()) {
      return true;
    }
    return on_all_addresses() && !name.empty() &&
           name.find_first_not_of("0123456789.") == std::string::npos;
  }

  std::string address_;
  int port_ = 0;
};

}  // namespace pvm::inline v0::serve
