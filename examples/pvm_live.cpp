// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// The part of the program `pvm` that needs cpp-httplib, see pvm_live.hpp.

#include "pvm_live.hpp"

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include <pvm/view/client.hpp>
#include <pvm/view/live.hpp>

namespace live_commands {

namespace {

class Served final : public Page::Body {
 public:
  explicit Served(pvm::view::LiveOptions options) : live_(std::move(options)) {}
  void begin(const pvm::Moment& moment) override { live_.begin(moment); }
  std::uint64_t next(std::uint64_t step) override { return live_.next(step); }
  void at(const pvm::Moment& moment) override { live_.at(moment); }
  void idle(const pvm::Moment& moment) override { live_.idle(moment); }
  void end(const pvm::Moment& moment) override { live_.end(moment); }

 private:
  pvm::view::Live live_;
};

constexpr const char* control_help = R"(Talks to a run that was started with --live.
Usage: pvm ctl URL COMMAND...

URL is the address that the run printed, in quotes. Commands:
  status
  %s
  save, snapshot, record, stop-recording, stop
The answer is one line of JSON. Exit codes: 0 obeyed, 1 not obeyed, 2 a usage error.
)";

}  // namespace

std::unique_ptr<Page::Body> serve(const Options& options) {
  pvm::view::LiveOptions live;
  live.other_ports = options.port.empty();
  if (!options.port.empty()) {
    const auto port = pvm::detail::whole_text_as<int>(options.port);
    if (!port || *port < 1 || *port > 65'535) {
      throw pvm::Error(pvm::Fault::usage,
                       "--live " + pvm::quote(options.port) + " is no port; allowed: 1 to 65535");
    }
    live.port = *port;
  }
  if (!options.address.empty()) live.address = options.address;
  live.prefix = options.prefix;
  live.tell = [](const std::string& url) {
    std::printf("live page: %s\n", url.c_str());
    std::fflush(stdout);
  };
  return std::make_unique<Served>(std::move(live));
}

int control(int argc, char** argv) {
  const std::string_view first = argc > 0 ? argv[0] : "";
  if (first == "--help" || first == "-h") {
    std::printf(control_help, std::string(pvm::command_words).c_str());
    return 0;
  }
  if (argc < 2) {
    throw pvm::Error(pvm::Fault::usage,
                     "pvm ctl needs the address of a run and a command (see pvm ctl --help)");
  }
  std::string text;
  for (int i = 1; i < argc; ++i) text += (i > 1 ? " " : "") + std::string(argv[i]);
  const auto answer = pvm::view::tell(pvm::view::parse_live_address(first), text);
  std::printf("%s\n", answer.json.c_str());
  return answer.obeyed ? 0 : 1;
}

}  // namespace live_commands
