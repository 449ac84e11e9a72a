// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Fibers: execution contexts with their own stacks, between which one thread of the operating
/// system switches.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>

#include <memory>
#endif

namespace emulated_cuda {

[[noreturn]] inline void fail(const char* why) {
  std::fprintf(stderr, "emulated CUDA: %s\n", why);
  std::abort();
}

/// Stacks of equal size in one block of memory, each above a guard page.
class Stacks {
 public:
  static constexpr std::size_t bytes = 64 << 10;

  Stacks() = default;
  explicit Stacks(std::size_t count) : count_(count) {
    void* memory = mmap(nullptr, count * bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) fail("no memory for the threads' stacks");
    memory_ = static_cast<unsigned char*>(memory);
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    for (std::size_t i = 0; i < count; ++i) mprotect(memory_ + i * bytes, page, PROT_NONE);
  }
  Stacks(Stacks&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  Stacks& operator=(Stacks&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~Stacks() {
    if (memory_ != nullptr) munmap(memory_, count_ * bytes);
  }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] unsigned char* bottom(std::size_t i) const noexcept { return memory_ + i * bytes; }
  /// The address at which stack i starts. Its offset differs from stack to stack, since equal
  /// offsets would map the stacks to the same few cache sets.
  [[nodiscard]] unsigned char* top(std::size_t i) const noexcept {
    return bottom(i + 1) - i * 832 % 16384;
  }

  /// At least `count` stacks, reused if possible.
  static Stacks take(std::size_t count) {
    const std::lock_guard lock(mutex());
    for (Stacks& free : free_stacks()) {
      if (free.count() < count) continue;
      Stacks taken = std::move(free);
      std::swap(free, free_stacks().back());
      free_stacks().pop_back();
      return taken;
    }
    return Stacks(count);
  }
  static void give_back(Stacks stacks) {
    const std::lock_guard lock(mutex());
    free_stacks().push_back(std::move(stacks));
  }

 private:
  static std::mutex& mutex() {
    static std::mutex it;
    return it;
  }
  static std::vector<Stacks>& free_stacks() {
    static std::vector<Stacks> them;
    return them;
  }

  unsigned char* memory_ = nullptr;
  std::size_t count_ = 0;
};

#if defined(__x86_64__)

/// Saves the callee-saved registers on the current stack, stores the stack pointer in `*from`, and
/// resumes the fiber whose stack pointer is `to`.
#if defined(__clang__)
__attribute__((naked, noinline))
#else
__attribute__((naked, noinline, noipa))
#endif
inline void
switch_stacks(void** /*from*/, void* /*to*/) {
  asm("pushq %rbp\n\tpushq %rbx\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\tpushq %r15\n\t"
      "movq %rsp, (%rdi)\n\tmovq %rsi, %rsp\n\t"
      "popq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %rbx\n\tpopq %rbp\n\tret");
}

/// An execution context on a stack of its own.
class Fiber {
 public:
  void start(unsigned char* /*bottom*/, unsigned char* top, void (*entry)()) {
    auto** at = reinterpret_cast<void**>(top);
    *--at = nullptr;  // no return address: `entry` never returns; aligns the stack as a call does
    *--at = reinterpret_cast<void*>(entry);
    for (int i = 0; i < 6; ++i) *--at = nullptr;
    stack_ = at;
  }
  void switch_to(Fiber& other) { switch_stacks(&stack_, other.stack_); }

 private:
  void* stack_ = nullptr;
};

#else

class Fiber {
 public:
  void start(unsigned char* bottom, unsigned char* top, void (*entry)()) {
    getcontext(context_.get());
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    context_->uc_stack.ss_sp = bottom + page;
    context_->uc_stack.ss_size = static_cast<std::size_t>(top - bottom) - page;
    context_->uc_link = nullptr;
    makecontext(context_.get(), entry, 0);
  }
  void switch_to(Fiber& other) { swapcontext(context_.get(), other.context_.get()); }

 private:
  std::unique_ptr<ucontext_t> context_ = std::make_unique<ucontext_t>();
};

#endif

}  // namespace emulated_cuda
