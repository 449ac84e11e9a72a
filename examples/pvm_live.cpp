// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// The part of the program `pvm` that needs cpp-httplib, see pvm_live.hpp.

#include "pvm_live.hpp"

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include <signal.h>

#include <pvm/view/client.hpp>
#include <pvm/view/live.hpp>
#include <pvm/view/monitor.hpp>

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

constexpr const char* monitor_help = R"(Shows the learning curves of runs in a browser.
Usage: pvm monitor PATH [PORT]

PATH is a directory with files that --metrics has written (*.jsonl), also in its directories, or one
such file; curves of runs that go on grow. The page is on 127.0.0.1 (default port 9000, or the next
free one); Ctrl-C ends it.
)";

int port_of(const char* option, const std::string& text) {
  const auto port = pvm::detail::whole_text_as<int>(text);
  if (port && *port >= 1 && *port <= 65'535) return *port;
  throw pvm::Error(pvm::Fault::usage,
                   option + pvm::quote(text) + " is no port; allowed: 1 to 65535");
}

}  // namespace

std::unique_ptr<Page::Body> serve(const Options& options) {
  pvm::view::LiveOptions live;
  live.other_ports = options.port.empty();
  if (!options.port.empty()) live.port = port_of("--live ", options.port);
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

int monitor(int argc, char** argv) {
  const std::string first = argc > 0 ? argv[0] : "";
  if (first == "--help" || first == "-h") {
    std::fputs(monitor_help, stdout);
    return 0;
  }
  if (argc < 1 || argc > 2 || first.empty() || first.front() == '-') {
    throw pvm::Error(pvm::Fault::usage,
                     "pvm monitor needs a directory of metrics (see pvm monitor --help)");
  }
  // Blocked before there are threads, so that only sigwait takes them.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const int port = argc == 2 ? port_of("the port ", argv[1]) : 9000;
  const pvm::view::Monitor monitor(first, "127.0.0.1", port, argc == 1);
  std::printf("live page: %s\n", monitor.url().c_str());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  return 0;
}

}  // namespace live_commands
