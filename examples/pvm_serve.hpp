// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The command `pvm serve`.

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

namespace serve_command {

struct Options {
  std::string load, spec, address = "127.0.0.1", token_file, backend, precision = "fp32";
  std::int64_t port = 8090, streams = 1000, connections = 256, idle = 60, batch = 64, threads = 0,
               device = -1, stream_frames = 4, queue_frames = 1024, memory_mb = 0, body_kb = 8192;
  double wait_ms = 2;
  bool quiet = false;
};

inline void describe(CLI::App& app, Options& o) {
  app.add_option("-L,--load", o.load, "a checkpoint, or a tracker's file")->type_name("FILE");
  app.add_option("-S,--spec", o.spec, "model spec, if the checkpoint of -L holds none")
      ->type_name("FILE");
  app.add_option("--address", o.address, "address to listen on (default 127.0.0.1: this machine)")
      ->type_name("ADDRESS");
  app.add_option("--port", o.port, "port to listen on (default 8090; 0: any that is free)")
      ->check(CLI::Range(0, 65535))
      ->type_name("N");
  app.add_option("--token-file", o.token_file,
                 "read the token that requests must have from a file (default: a new one, printed)")
      ->type_name("FILE");
  app.add_option("--streams", o.streams, "most streams that are open at once (default 1000)")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  app.add_option("--connections", o.connections, "most connections at once (default 256)")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  app.add_option("--idle", o.idle, "close streams after this many seconds without a frame (60)")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  app.add_option("--batch", o.batch, "most streams in a step (default 64)")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  app.add_option("--wait-ms", o.wait_ms, "longest wait of a frame for others (default 2)")
      ->check(CLI::Range(0.0, 60'000.0))
      ->type_name("X");
  app.add_option("--stream-frames", o.stream_frames, "most frames of a stream that wait (4)")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  app.add_option("--queue-frames", o.queue_frames, "most frames that wait in all (default 1024)")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  app.add_option("--memory-mb", o.memory_mb,
                 "most memory of streams and frames (default: half of what is free)")
      ->check(CLI::Range(1, 1'000'000'000))
      ->type_name("N");
  app.add_option("--body-kb", o.body_kb, "largest picture that is read (default 8192)")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  app.add_option("--backend", o.backend, "host (default), cuda, or auto: a GPU if there is one")
      ->check(CLI::IsMember({"host", "cuda", "auto"}))
      ->type_name("NAME");
  app.add_option("--device", o.device, "which GPU, as pvm devices lists them (default: the first)")
      ->check(CLI::Range(0, 1023))
      ->type_name("N");
  app.add_option("--precision", o.precision,
                 "of a checkpoint's weights: fp32 (default); on a GPU bf16 and fp16 are faster")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->type_name("NAME");
  app.add_option("--threads", o.threads, "threads of the network (default: one per core)")
      ->check(CLI::Range(0, 1024))
      ->type_name("N");
  app.add_flag("-q,--quiet", o.quiet, "print only the address and the token");
  app.footer(R"(
Example:
  pvm serve -L ball.safetensors
  curl -H "Authorization: Bearer TOKEN" -X PUT http://127.0.0.1:8090/streams/door
  curl -H "Authorization: Bearer TOKEN" -H "Content-Type: image/jpeg" \
      --data-binary @frame.jpg http://127.0.0.1:8090/streams/door/frames)");
}

/// Serves until a signal comes. Throws Error (Fault::usage) without cpp-httplib.
int serve(const Options& o);

}  // namespace serve_command
