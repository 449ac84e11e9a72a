// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Talks to a run that serves a live page, as `pvm ctl` does. Needs cpp-httplib.

#include <cstddef>
#include <string>
#include <string_view>

#include <pvm/core/need_httplib.hpp>

#include <httplib.h>

#include <pvm/core/error.hpp>

namespace pvm::inline v0::view {

/// The address of a live page, as pvm prints it.
struct LiveAddress {
  std::string host;
  int port = 0;
  std::string token;
};

/// Reads `http://HOST:PORT/?token=TOKEN`. Throws Error (Fault::usage) if it is something else.
inline LiveAddress parse_live_address(std::string_view url) {
  const auto refuse = [url] {
    throw Error(Fault::usage, quote(url) +
                                  " is no address of a live page; it is printed when a run with "
                                  "--live begins: http://127.0.0.1:9000/?token=...");
  };
  constexpr std::string_view scheme = "http://", key = "/?token=";
  if (!url.starts_with(scheme)) refuse();
  const std::string_view rest = url.substr(scheme.size());
  const std::size_t end = rest.find(key);
  if (end == std::string_view::npos) refuse();
  const std::string_view place = rest.substr(0, end);
  const std::size_t colon = place.rfind(':');
  if (colon == std::string_view::npos || colon == 0) refuse();
  LiveAddress address{std::string(place.substr(0, colon)), 0,
                      std::string(rest.substr(end + key.size()))};
  for (const char digit : place.substr(colon + 1)) {
    if (digit < '0' || digit > '9') refuse();
    address.port = address.port * 10 + (digit - '0');
    if (address.port > 65'535) refuse();
  }
  if (address.host.front() == '[' && address.host.back() == ']') {
    address.host = address.host.substr(1, address.host.size() - 2);
  }
  if (address.port == 0 || address.token.empty() ||
      address.token.find_first_not_of("0123456789abcdef") != std::string::npos) {
    refuse();
  }
  return address;
}

/// What the run has answered.
struct LiveAnswer {
  bool obeyed = false;
  std::string json;  ///< one line
};

/// Gives a command to the run at `address`, or asks for its `status`. Throws Error (Fault::usage)
/// if there is no run.
inline LiveAnswer tell(const LiveAddress& address, const std::string& text) {
  httplib::Client client(address.host, address.port);
  client.set_connection_timeout(5);
  client.set_read_timeout(15);
  const httplib::Headers headers = {{"X-Pvm-Token", address.token}};
  const auto result =
      text == "status"
          ? client.Get("/status", headers)
          : client.Post(("/command?text=" + httplib::detail::encode_query_param(text)).c_str(),
                        headers, "", "text/plain");
  if (!result) {
    throw Error(Fault::usage, "no run answers at " + quote(address.host) + ", port " +
                                  std::to_string(address.port) +
                                  "; has it ended? Its address is printed when it begins");
  }
  std::string line = result->body;
  while (!line.empty() && line.back() == '\n') line.pop_back();
  if (result->get_header_value("Content-Type") != "application/json") {
    throw Error(Fault::usage, "the run does not let this in: " + line);
  }
  return {result->status == 200, std::move(line)};
}

}  // namespace pvm::inline v0::view
