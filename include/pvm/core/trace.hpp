// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Measures what the threads of a program do: spans of time, with names. A Report adds them up, and
/// while a trace is on they are recorded, too, for viewers of Chrome's trace format (Perfetto).

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <pthread.h>
#endif

#include <pvm/core/config.hpp>
#include <pvm/core/printable.hpp>

namespace pvm::inline v0::trace {

/// What else shows spans while they last, such as a profiler.
struct Ranges {
  void (*begin)(const char* name);
  void (*end)();  ///< of the span of this thread that began last
};

namespace detail {

using Clock = std::chrono::steady_clock;

enum class Kind : std::uint8_t { span, counter, flow_begin, flow_step, flow_end };

/// Something recorded. `name` and `key` are literals, or live as long as the program.
struct Event {
  const char* name = "";
  const char* key = nullptr;  ///< of a span: what `value` is; null if there is none
  std::int64_t begin = 0;     ///< nanoseconds since the trace was started
  std::int64_t duration = 0;  ///< of a span, in nanoseconds
  double value = 0;           ///< of a counter, or of `key`
  std::uint64_t id = 0;       ///< of a flow
  Kind kind = Kind::span;
};

/// The events of a thread: the first ones, and the latest ones in a ring, so that a long run takes
/// no more memory than a short one.
class Buffer {
 public:
  static constexpr std::size_t most = std::size_t{1} << 14;  ///< of the first, and of the latest

  explicit Buffer(std::string name) : name_(std::move(name)) {}

  void add(const Event& event) {
    const std::lock_guard lock(mutex_);
    if (first_.size() < most) {
      first_.push_back(event);
    } else if (latest_.size() < most) {
      latest_.push_back(event);
    } else {
      latest_[next_] = event;
      next_ = (next_ + 1) % most;
      ++dropped_;
    }
  }

  void rename(const std::string& name) {
    const std::lock_guard lock(mutex_);
    name_ = name;
  }
  [[nodiscard]] std::string name() const {
    const std::lock_guard lock(mutex_);
    return name_;
  }

  /// The first `half` and the latest `half` events, in the order in which they were added, and how
  /// many there were beside them.
  [[nodiscard]] std::pair<std::vector<Event>, std::uint64_t> events(std::size_t half) const {
    const std::lock_guard lock(mutex_);
    std::vector<Event> all = first_;
    all.insert(all.end(), latest_.begin() + static_cast<std::ptrdiff_t>(next_), latest_.end());
    all.insert(all.end(), latest_.begin(), latest_.begin() + static_cast<std::ptrdiff_t>(next_));
    std::uint64_t dropped = dropped_;
    if (all.size() > 2 * half) {
      dropped += all.size() - 2 * half;
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(half),
                all.end() - static_cast<std::ptrdiff_t>(half));
    }
    return {std::move(all), dropped};
  }
  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return first_.size() + latest_.size();
  }

 private:
  mutable std::mutex mutex_;  // its thread adds, and the one that writes the trace reads
  std::string name_;
  std::vector<Event> first_, latest_;
  std::size_t next_ = 0;  // in a full ring: the oldest
  std::uint64_t dropped_ = 0;
};

/// The program's trace. It exists as long as the program, because any thread may record at any
/// time.
struct Recorder {
  std::atomic<bool> on = false;
  std::atomic<std::uint64_t> generation = 0;  // number of traces started
  std::atomic<std::int64_t> started = 0;      // the clock at the start of the current one
  std::atomic<std::uint64_t> flows = 0;       // number of flows begun
  std::atomic<std::int64_t> ready = 0;        // see `frames_ready`
  std::atomic<const Ranges*> shown{};         // see `also_show`
  std::mutex mutex;                           // guards `buffers`
  std::vector<std::shared_ptr<Buffer>> buffers;
};

inline Recorder& recorder() {
  static Recorder* const program = new Recorder;  // never destroyed: threads may outlive `main`
  return *program;
}

/// What a thread knows of itself.
struct ThreadState {
  std::string name;
  std::shared_ptr<Buffer> buffer;
  std::uint64_t generation = 0;  ///< of the trace that `buffer` belongs to
  std::uint64_t carried = 0;     ///< see `carry_flow`
};

inline ThreadState& this_thread() {
  thread_local ThreadState state;
  return state;
}

inline std::int64_t nanoseconds(Clock::time_point at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

inline void record(Event event, Clock::time_point begin) {
  Recorder& all = recorder();
  ThreadState& thread = this_thread();
  const std::uint64_t generation = all.generation.load(std::memory_order_acquire);
  if (thread.generation != generation || !thread.buffer) {
    thread.buffer = std::make_shared<Buffer>(thread.name);
    thread.generation = generation;
    const std::lock_guard lock(all.mutex);
    all.buffers.push_back(thread.buffer);
  }
  event.begin = nanoseconds(begin) - all.started.load(std::memory_order_relaxed);
  thread.buffer->add(event);
}

}  // namespace detail

/// Whether a trace is being recorded.
inline bool on() noexcept { return detail::recorder().on.load(std::memory_order_relaxed); }

/// Starts a trace; what was recorded before is forgotten.
inline void start() {
  detail::Recorder& all = detail::recorder();
  const std::lock_guard lock(all.mutex);
  all.buffers.clear();
  all.started = detail::nanoseconds(detail::Clock::now());
  ++all.generation;
  all.ready = 0;
  all.on = true;
}
/// Ends it. What was recorded stays until the next `start`.
inline void stop() noexcept { detail::recorder().on = false; }

/// From now on all spans are shown by `ranges`, too, which must live as long as the program; null:
/// by nobody. Spans end in the reverse of the order in which they begin on their thread.
inline void also_show(const Ranges* ranges) noexcept { detail::recorder().shown = ranges; }

/// Names the calling thread in traces.
inline void name_thread_in_traces(const std::string& name) {
  detail::ThreadState& thread = detail::this_thread();
  thread.name = name;
  if (thread.buffer) thread.buffer->rename(name);
}
/// ... and for debuggers, which show 15 letters; not for the thread of `main`, whose name is the
/// process's.
inline void name_thread(const std::string& name) {
  name_thread_in_traces(name);
#if defined(__linux__)
  ::pthread_setname_np(::pthread_self(), std::string(beginning(printable(name), 15)).c_str());
#endif
}

/// Measures the time from its construction to `end`, or to its destruction, and records it if a
/// trace is on.
class Span {
 public:
  /// `name`: a literal, or a text that lives as long as the program; `key` too, which says what
  /// `value` is.
  explicit Span(const char* name, const char* key = nullptr, double value = 0) noexcept
      : name_(name),
        key_(key),
        value_(value),
        shown_(detail::recorder().shown.load(std::memory_order_relaxed)),
        begin_(detail::Clock::now()) {
    if (shown_ != nullptr) shown_->begin(name);
  }
  ~Span() {
    if (!ended_) end();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  void set_value(double value) noexcept { value_ = value; }

  /// Ends the span, and returns its seconds. Shorter ones than `least` seconds are not recorded.
  double end(double least = 0) {
    ended_ = true;
    if (shown_ != nullptr) shown_->end();
    const auto passed = detail::Clock::now() - begin_;
    const double seconds = std::chrono::duration<double>(passed).count();
    if (on() && seconds >= least) {
      const auto duration = std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count();
      detail::record({name_, key_, 0, duration, value_}, begin_);
    }
    return seconds;
  }

 private:
  const char* name_;
  const char* key_;
  double value_;
  const Ranges* shown_;
  detail::Clock::time_point begin_;
  bool ended_ = false;
};

/// Records the value of a counter, if a trace is on.
inline void counter(const char* name, double value) {
  if (!on()) return;
  detail::record({name, nullptr, 0, 0, value, 0, detail::Kind::counter}, detail::Clock::now());
}

// A flow follows a frame from thread to thread; viewers draw it as arrows from span to span. Each
// of these is called inside of a span.

/// Begins the flow of a frame and returns its number; 0 if no trace is on.
inline std::uint64_t begin_flow() {
  if (!on()) return 0;
  const std::uint64_t id = ++detail::recorder().flows;
  detail::record({"frame", nullptr, 0, 0, 0, id, detail::Kind::flow_begin}, detail::Clock::now());
  return id;
}
/// The flow passes the span that is open on this thread, or ends there.
inline void pass_flow(std::uint64_t id, bool ends = false) {
  if (id == 0 || !on()) return;
  const auto kind = ends ? detail::Kind::flow_end : detail::Kind::flow_step;
  detail::record({"frame", nullptr, 0, 0, 0, id, kind}, detail::Clock::now());
}
/// A source says which frame's flow it hands over with the frame that it returns.
inline void carry_flow(std::uint64_t id) noexcept { detail::this_thread().carried = id; }
/// ... and its caller takes it: 0 if there is none.
inline std::uint64_t take_carried_flow() noexcept {
  return std::exchange(detail::this_thread().carried, 0);
}

/// Counts the frames that are read ahead of the run, over all sources: by how many more there are.
inline void frames_ready(std::int64_t more) noexcept {
  detail::recorder().ready.fetch_add(more, std::memory_order_relaxed);
}
/// How many there are.
inline std::int64_t frames_ready() noexcept {
  return detail::recorder().ready.load(std::memory_order_relaxed);
}

namespace detail {

/// `text` as a string of JSON, without what cannot be printed.
inline std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

/// Turns events into text. Names are escaped once each: there are few.
class Writer {
 public:
  explicit Writer(std::string& text) : text_(text) {}

  void add(const Event& event, std::size_t thread) {
    switch (event.kind) {
      case Kind::span:
        begin("{\"ph\":\"X\"", event, thread);
        text_ += ",\"dur\":";
        microseconds(event.duration);
        if (event.key != nullptr) {
          text_ += ",\"args\":{" + name(event.key);
          number(":", event.value, "%.9g}");
        }
        break;
      case Kind::counter:
        begin("{\"ph\":\"C\"", event, thread);
        number(",\"args\":{\"value\":", event.value, "%.6g}");
        break;
      case Kind::flow_begin:
        flow("{\"ph\":\"s\"", event, thread);
        break;
      case Kind::flow_step:
        flow("{\"ph\":\"t\"", event, thread);
        break;
      case Kind::flow_end:
        flow("{\"ph\":\"f\",\"bp\":\"e\"", event, thread);
        break;
    }
    text_ += "},\n";
  }

 private:
  void begin(const char* before, const Event& event, std::size_t thread) {
    text_ += before;
    whole(",\"pid\":1,\"tid\":", thread);
    text_ += ",\"ts\":";
    microseconds(event.begin);
    text_ += ",\"name\":";
    text_ += name(event.name);
  }
  void flow(const char* before, const Event& event, std::size_t thread) {
    begin(before, event, thread);
    whole(",\"cat\":\"frame\",\"id\":", event.id);
  }
  const std::string& name(const char* text) {
    const auto [place, is_new] = names_.try_emplace(text);
    if (is_new) place->second = json_string(text);
    return place->second;
  }
  template <class Whole>
  void whole(const char* before, Whole value) {
    char digits[24];
    text_ += before;
    text_.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  }
  /// With three decimals.
  void microseconds(std::int64_t nanoseconds) {
    const std::int64_t shown = std::max<std::int64_t>(nanoseconds, 0);
    whole("", shown / 1000);
    const auto rest = static_cast<int>(shown % 1000);
    const char decimals[] = {'.', static_cast<char>('0' + rest / 100),
                             static_cast<char>('0' + rest / 10 % 10),
                             static_cast<char>('0' + rest % 10)};
    text_.append(decimals, sizeof decimals);
  }
  void number(const char* before, double value, const char* form) {
    char digits[48];
    std::snprintf(digits, sizeof digits, form, std::isfinite(value) ? value : 0.0);
    text_ += before;
    text_ += digits;
  }

  std::string& text_;
  std::unordered_map<const char*, std::string> names_;
};

}  // namespace detail

/// The most events that `json` writes; about 25 MB.
inline constexpr std::size_t most_events = 200'000;

/// What was recorded since `start`, as a JSON object in Chrome's trace format. Of a long run it has
/// the beginning and the end of every thread: `most_events` at most. `other`: JSON values for its
/// key `otherData`, as `"key": value`; may be empty.
inline std::string json(const std::string& other = {}) {
  std::vector<std::shared_ptr<detail::Buffer>> buffers;
  {
    detail::Recorder& all = detail::recorder();
    const std::lock_guard lock(all.mutex);
    buffers = all.buffers;
  }
  std::size_t half = detail::Buffer::most;
  for (;; half = half * 3 / 4) {
    std::size_t sum = 0;
    for (const auto& buffer : buffers) sum += std::min(buffer->size(), 2 * half);
    if (sum <= most_events || half < 16) break;
  }
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  detail::Writer writer(text);
  std::uint64_t dropped = 0;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    const std::string name = buffers[b]->name();
    text += "{\"ph\":\"M\",\"pid\":1,\"tid\":" + std::to_string(b + 1) +
            ",\"name\":\"thread_name\",\"args\":{\"name\":";
    text += detail::json_string(name.empty() ? "thread" : name) + "}},\n";
    const auto [events, missing] = buffers[b]->events(half);
    dropped += missing;
    for (const detail::Event& event : events) writer.add(event, b + 1);
  }
  text += "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"pvm\"}}\n],\n";
  text += "\"otherData\":{\"events left out\": " + std::to_string(dropped) +
          (other.empty() ? "" : ", ") + other + "}}\n";
  return text;
}

}  // namespace pvm::inline v0::trace
