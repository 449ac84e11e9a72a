// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// `pvm serve`, in a file of its own, which nvcc need not compile.

#include "pvm_serve.hpp"

#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include <signal.h>

#include <pvm/core/error.hpp>

#if defined(PVM_HTTPLIB)
#include <pvm/infer/frozen_file.hpp>
#include <pvm/infer/predictor.hpp>
#include <pvm/io/original.hpp>
#include <pvm/model/json.hpp>
#include <pvm/serve/server.hpp>
#include <pvm/serve/service.hpp>
#endif

namespace serve_command {

#if defined(PVM_HTTPLIB)

namespace {

[[noreturn]] void refuse(const std::string& sentence) {
  throw pvm::Error(pvm::Fault::usage, sentence);
}

/// The token in the file, without the end of its line.
std::string token_of(const Options& o) {
  if (o.token_file.empty()) return pvm::serve::random_token();
  std::ifstream file(o.token_file);
  std::string token;
  if (!std::getline(file, token))
    refuse("--token-file " + pvm::quote(o.token_file) + " has no line");
  if (token.size() < 16 ||
      token.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz"
                              "ABCDEFGHIJKLMNOPQRSTUVWXYZ-._~+/=") != std::string::npos) {
    refuse("--token-file " + pvm::quote(o.token_file) +
           ": a token is a line of at least 16 letters, digits, and -._~+/=");
  }
  return token;
}

pvm::PredictorOptions predictor_options(const Options& o) {
  pvm::PredictorOptions options;
  options.policy =
      pvm::Throughput(static_cast<int>(o.batch),
                      std::chrono::microseconds(static_cast<std::int64_t>(o.wait_ms * 1000)));
  options.hidden = true;
  options.stream_frames = static_cast<std::size_t>(o.stream_frames);
  options.queue_frames = static_cast<std::size_t>(o.queue_frames);
  if (o.memory_mb > 0) options.memory_bytes = static_cast<std::size_t>(o.memory_mb) * 1'000'000;
  options.threads = static_cast<int>(o.threads);
  options.backend = o.backend == "cuda"   ? pvm::BackendChoice::cuda
                    : o.backend == "auto" ? pvm::BackendChoice::automatic
                                          : pvm::BackendChoice::host;
  if (o.device >= 0 && o.backend == "host") {
    refuse("--device names a GPU and --backend host uses none; leave one of them out");
  }
  options.device = static_cast<int>(o.device);
  options.precision = o.precision == "bf16"   ? pvm::ForwardPrecision::bf16
                      : o.precision == "fp16" ? pvm::ForwardPrecision::fp16
                                              : pvm::ForwardPrecision::fp32;
  return options;
}

pvm::serve::ServerOptions server_options(const Options& o) {
  pvm::serve::ServerOptions options;
  options.address = o.address;
  options.port = static_cast<int>(o.port);
  options.token = token_of(o);
  options.connections = static_cast<std::size_t>(o.connections);
  options.limits.request_bytes = static_cast<std::size_t>(o.body_kb) * 1024 + 16'384;
  options.limits.request = std::chrono::seconds(10);
  return options;
}

pvm::Predictor load(const Options& o) {
  std::optional<pvm::Spec> spec;
  if (!o.spec.empty()) spec = pvm::load_spec(o.spec);
  if (pvm::is_frozen(o.load)) return pvm::Predictor(pvm::load_frozen(o.load), predictor_options(o));
  return pvm::Predictor(pvm::io::load_any_network(o.load, spec ? &*spec : nullptr),
                        predictor_options(o));
}

}  // namespace

int serve(const Options& o) {
  if (o.load.empty()) refuse("there is no network; name a checkpoint with -L (see --help)");
  // All threads leave these signals to this one.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const pvm::serve::ServerOptions options = server_options(o);
  pvm::serve::Service service(load(o),
                              {static_cast<std::size_t>(o.streams), std::chrono::seconds(o.idle)});
  {
    const pvm::serve::Server server(options, [&service](const pvm::serve::Request& request) {
      return service.answer(request);
    });
    std::printf("serving on %s\n", server.url().c_str());
    if (o.token_file.empty()) std::printf("token %s\n", options.token.c_str());
    std::fflush(stdout);
    int signal = 0;
    sigwait(&signals, &signal);
  }
  if (!o.quiet) std::printf("%s\n", service.summary().c_str());
  return 0;
}

#else

int serve(const Options&) {
  throw pvm::Error(pvm::Fault::usage,
                   "this program was built without cpp-httplib, so it cannot serve; install it "
                   "(Debian: libcpp-httplib-dev) and build again");
}

#endif

}  // namespace serve_command
