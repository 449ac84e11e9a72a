// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The part of the program `pvm` that lets people watch a run and talk to it: --live, `pvm ctl`,
/// `pvm monitor`.
/// Compiled in pvm_live.cpp if there is cpp-httplib (PVM_HTTPLIB).

#include <cstdint>
#include <memory>
#include <string>

#include <pvm/core/error.hpp>
#include <pvm/train/callback.hpp>

namespace live_commands {

struct Options {
  bool given = false;
  std::string port;     ///< empty: 9000, or the next free one
  std::string address;  ///< empty: loopback
  std::string prefix;   ///< of the files that are saved on demand
};

/// A callback that serves the live page, behind an interface, so that pvm.cpp needs no cpp-httplib.
class Page {
 public:
  class Body {
   public:
    virtual ~Body() = default;
    virtual void begin(const pvm::Moment& moment) = 0;
    virtual std::uint64_t next(std::uint64_t step) = 0;
    virtual void at(const pvm::Moment& moment) = 0;
    virtual void idle(const pvm::Moment& moment) = 0;
    virtual void end(const pvm::Moment& moment) = 0;
  };

  explicit Page(std::unique_ptr<Body> body) : body_(std::move(body)) {}
  void begin(const pvm::Moment& moment) { body_->begin(moment); }
  [[nodiscard]] std::uint64_t next(std::uint64_t step) const { return body_->next(step); }
  void at(const pvm::Moment& moment) { body_->at(moment); }
  void idle(const pvm::Moment& moment) { body_->idle(moment); }
  void end(const pvm::Moment& moment) { body_->end(moment); }

 private:
  std::unique_ptr<Body> body_;
};

#if defined(PVM_HTTPLIB)
/// Throws pvm::Error (Fault::usage) for a port or an address that is none.
std::unique_ptr<Page::Body> serve(const Options& options);
/// `pvm ctl URL COMMAND...`: returns the exit code.
int control(int argc, char** argv);
/// `pvm monitor PATH [--port PORT]`: serves the curves until a signal ends the program.
int monitor(int argc, char** argv);
#else
[[noreturn]] inline void refuse_live() {
  throw pvm::Error(pvm::Fault::usage,
                   "this pvm was built without cpp-httplib and has no live page; install it "
                   "(Debian: libcpp-httplib-dev) and build pvm again");
}
inline std::unique_ptr<Page::Body> serve(const Options&) { refuse_live(); }
inline int control(int, char**) { refuse_live(); }
inline int monitor(int, char**) { refuse_live(); }
#endif

}  // namespace live_commands
