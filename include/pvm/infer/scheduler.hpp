// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The scheduler of a Predictor: takes frames, bounds what waits, and runs one step after the
/// other on whichever streams have a frame (continuous batching).

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/engine/choose.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/host/memory.hpp>
#include <pvm/engine/host/team.hpp>
#include <pvm/infer/batch_policy.hpp>
#include <pvm/infer/forward.hpp>
#include <pvm/infer/frame_queue.hpp>
#include <pvm/infer/gpu_values.hpp>
#include <pvm/infer/object_readout.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0 {

/// Precisions of a checkpoint's weights in prediction.
enum class ForwardPrecision { fp32, bf16, fp16 };

struct PredictorOptions {
  BatchPolicy policy = Latency{};
  bool prediction = true;  ///< results have the prediction; without it W1 is not read
  bool hidden = false;     ///< results have the hidden values
  /// Both stay in the memory of the GPU that predicts (GpuValues). For its frozen steps only.
  bool results_on_gpu = false;
  /// Frames that may wait: of one stream, and of all together.
  std::size_t stream_frames = 8;
  std::size_t queue_frames = 4096;
  /// Bound of the bytes of the streams' pasts and of frames and results on their way. The default
  /// is half of the host's free memory.
  std::size_t memory_bytes = share_of_free_memory;
  int threads = 0;  ///< of the host; 0: one per core. Changes no result
  BackendChoice backend = BackendChoice::host;
  /// The GPU that predicts, whatever `backend` is, by the number that CUDA gives it; it becomes the
  /// current one. -1: as `backend` says, on the current GPU.
  int device = -1;
  /// Of the weights of a checkpoint; what pvm::quantize has made is in its own. bf16 and fp16 exist
  /// on GPUs only, and are faster there: fp32 is for streams in lockstep
  /// (infer/engine_forward.hpp).
  ForwardPrecision precision = ForwardPrecision::fp32;
};

/// What a Predictor has done and has to do.
struct PredictorReport {
  std::size_t streams = 0;     ///< open ones
  std::size_t waiting = 0;     ///< frames that wait for a step
  std::uint64_t frames = 0;    ///< frames that have a result
  std::uint64_t batches = 0;   ///< steps
  std::uint64_t refused = 0;   ///< frames that try_submit had no room for
  std::uint64_t failed = 0;    ///< frames whose future got an Error
  double latency_seconds = 0;  ///< of all results together
  std::size_t bytes = 0;       ///< of pasts, frames and results on their way
  std::size_t most_bytes = 0;  ///< their bound
};

namespace infer {

class Scheduler {
 public:
  /// `extras`: of a readout, if there is one. `make_forward(team)` returns the Forward.
  template <class MakeForward>
  static std::shared_ptr<Scheduler> make(const Spec& spec, const io::Extras& extras,
                                         const PredictorOptions& options,
                                         const MakeForward& make_forward) {
    check(options);
    auto scheduler = std::shared_ptr<Scheduler>(new Scheduler(spec, extras, options));
    scheduler->start(make_forward(scheduler->team_));
    return scheduler;
  }
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  ~Scheduler() { shut_down(); }

  [[nodiscard]] std::shared_ptr<StreamWork> open() {
    auto work = std::make_shared<StreamWork>();
    const std::scoped_lock lock(mutex_);
    if (stopped_) throw gone();
    const std::size_t needed = forward_->past_bytes();
    if (report_.bytes + needed + reserve() > most_bytes_) {
      throw Error(Fault::memory, "a further stream needs " + kilobytes(needed) +
                                     " and the predictor's bound is " + kilobytes(most_bytes_) +
                                     ", of which " + std::to_string(streams_.size()) +
                                     " streams take " + kilobytes(report_.bytes) +
                                     "; close others, or raise memory_bytes");
    }
    work->past = forward_->begin();
    streams_.emplace(work.get(), work);
    report_.bytes += needed;
    ++report_.streams;
    return work;
  }

  void close(StreamWork& work) noexcept {
    const std::scoped_lock lock(mutex_);
    if (work.closed.exchange(true)) return;
    --report_.streams;
    remove_if_done(work);
    work_.notify_one();  // those that waited for a frame of this stream need not wait any more
    room_.notify_all();
  }

  // `frame`: a span of bytes, or a GpuFrame.

  template <class Frame>
  std::future<FrameResult> submit(StreamWork& work, const Frame& frame, Priority priority) {
    Waiting waiting = make_waiting(frame, priority);
    std::unique_lock lock(mutex_);
    wait_for_room(lock, work);
    auto future = enqueue(work, std::move(waiting));
    work_.notify_one();
    return future;
  }

  template <class Frame>
  std::optional<std::future<FrameResult>> try_submit(StreamWork& work, const Frame& frame,
                                                     Priority priority) {
    Waiting waiting = make_waiting(frame, priority);
    const std::scoped_lock lock(mutex_);
    refuse_impossible(work);
    if (!has_room(work)) {
      ++report_.refused;
      return std::nullopt;
    }
    auto future = enqueue(work, std::move(waiting));
    work_.notify_one();
    return future;
  }

  bool wait_for_room(StreamWork& work, std::chrono::milliseconds longest) {
    std::unique_lock lock(mutex_);
    return wait_for_room(lock, work, longest);
  }

  template <class Frame>
  FrameResult predict(StreamWork& work, const Frame& frame, Priority priority) {
    Waiting waiting = make_waiting(frame, priority);
    std::unique_lock lock(mutex_);
    wait_for_room(lock, work);
    auto future = enqueue(work, std::move(waiting));
    ++inside_;
    const auto ready = [&future] {
      return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    };
    while (!running_ && !stopped_ && !ready() && is_due()) run_step(lock);
    --inside_;
    room_.notify_all();
    if (!queue_.empty()) work_.notify_one();
    lock.unlock();
    return future.get();
  }

  /// Ends the work. The futures of the frames that wait get an Error.
  void shut_down() noexcept {
    std::vector<Waiting> left;
    {
      std::unique_lock lock(mutex_);
      stopped_ = true;
      work_.notify_all();
      room_.notify_all();
      room_.wait(lock, [this] { return !running_ && inside_ == 0; });
      for (auto& [work, owned] : streams_) {
        for (Waiting& waiting : work->waiting) left.push_back(std::move(waiting));
        work->waiting.clear();
        queue_.update(*work);
      }
      report_.failed += left.size();
      report_.waiting = 0;
    }
    for (Waiting& waiting : left) {
      waiting.promise.set_exception(std::make_exception_ptr(gone()));
    }
    if (thread_.joinable()) thread_.join();
  }

  [[nodiscard]] const Spec& spec() const noexcept { return spec_; }
  [[nodiscard]] bool has_readout() const noexcept { return !readouts_.empty(); }
  [[nodiscard]] std::string description() const { return forward_->description(); }
  [[nodiscard]] PredictorReport report() const {
    const std::scoped_lock lock(mutex_);
    return report_;
  }

 private:
  Scheduler(const Spec& spec, const io::Extras& extras, const PredictorOptions& options)
      : spec_(spec),
        options_(options),
        team_(options.threads > 0
                  ? options.threads
                  : std::max(1, static_cast<int>(std::thread::hardware_concurrency()))) {
    const Connectome net = make_connectome(spec_);
    hidden_ = net.units.size() * static_cast<std::size_t>(net.hidden);
    if (extras.empty()) return;
    if (const auto kind = extras.texts.find("readout");
        kind != extras.texts.end() && kind->second != "ridge" && kind->second != "mlp") {
      log(Severity::warning, "the predictor cannot use the file's readout, " + quote(kind->second) +
                                 "; results have no heatmap and no box");
      return;
    }
    const ObjectReadout readout(spec_, extras);
    readouts_.assign(static_cast<std::size_t>(team_.size()), readout);
  }

  static void check(const PredictorOptions& options) {
    const auto refuse = [](const std::string& sentence) { throw Error(Fault::usage, sentence); };
    const BatchPolicy& policy = options.policy;
    if (policy.most < 1 || policy.most > 100'000) {
      refuse("a policy's largest step has " + std::to_string(policy.most) +
             " frames; allowed: 1 to 100000");
    }
    if (policy.wait.count() < 0 || policy.wait > std::chrono::minutes(1)) {
      refuse("a policy lets frames wait for " + std::to_string(policy.wait.count()) +
             " microseconds; allowed: 0 to 60000000");
    }
    if (options.stream_frames < 1 || options.queue_frames < 1) {
      refuse("no frame may wait; stream_frames and queue_frames are at least 1");
    }
    if (options.device < -1) {
      refuse("device is " + std::to_string(options.device) + "; GPUs are numbered from 0");
    }
    if (options.threads < 0 || options.threads > 1024) {
      refuse(std::to_string(options.threads) + " threads were asked for; allowed: 0 to 1024");
    }
  }

  void start(std::unique_ptr<Forward> forward) {
    forward_ = std::move(forward);
    if (options_.results_on_gpu && forward_->gpu_memory() == nullptr) {
      throw Error(Fault::usage,
                  "results stay on a GPU if it predicts in bf16 or fp16, or from a "
                  "file of pvm quantize, and this is " +
                      forward_->description());
    }
    most_rows_ = std::min(static_cast<std::size_t>(options_.policy.most), forward_->most_rows());
    options_.policy.most = static_cast<int>(most_rows_);
    most_bytes_ = options_.memory_bytes == share_of_free_memory ? available_memory() / 2
                                                                : options_.memory_bytes;
    report_.most_bytes = most_bytes_;
    if (forward_->past_bytes() + reserve() > most_bytes_) {
      throw Error(Fault::memory, "memory_bytes is " + std::to_string(most_bytes_) +
                                     " and one stream with one frame needs " +
                                     std::to_string(forward_->past_bytes() + reserve()));
    }
    thread_ = std::thread([this] { serve(); });
  }

  [[nodiscard]] static std::string kilobytes(std::size_t bytes) {
    return std::to_string((bytes + 999) / 1000) + " kB";
  }
  [[nodiscard]] static Error gone() {
    return {Fault::usage, "the predictor was destroyed before this frame had its turn"};
  }

  /// Bytes of a frame and its result.
  [[nodiscard]] std::size_t frame_bytes() const {
    const std::size_t floats = (options_.prediction ? spec_.frame_size() : 0) +
                               (options_.hidden || reads_hidden() ? hidden_ : 0) +
                               (has_readout() ? readouts_.front().heat_values() : 0);
    return spec_.frame_size() + floats * sizeof(float) + sizeof(Waiting) + sizeof(FrameResult);
  }
  /// What streams leave free, so that there always is room for a frame.
  [[nodiscard]] std::size_t reserve() const { return frame_bytes(); }
  [[nodiscard]] bool reads_hidden() const {
    return has_readout() && readouts_.front().reads_hidden();
  }

  // The following functions are called with the mutex locked, unless they say otherwise.

  [[nodiscard]] bool has_room(const StreamWork& work) const {
    return work.waiting.size() < options_.stream_frames &&
           report_.waiting < options_.queue_frames && report_.bytes + frame_bytes() <= most_bytes_;
  }
  /// Throws if `work` can take no frame, now or ever.
  void refuse_impossible(const StreamWork& work) const {
    if (stopped_) throw gone();
    if (work.broken) std::rethrow_exception(work.broken);
    if (work.closed) throw Error(Fault::usage, "the stream is closed; open another one");
  }
  bool wait_for_room(std::unique_lock<std::mutex>& lock, const StreamWork& work,
                     std::optional<std::chrono::milliseconds> longest = std::nullopt) {
    const auto over = [&] { return stopped_ || work.closed || work.broken || has_room(work); };
    ++inside_;
    const bool ended =
        longest ? room_.wait_for(lock, *longest, over) : (room_.wait(lock, over), true);
    --inside_;
    if (stopped_) room_.notify_all();
    refuse_impossible(work);
    return ended;
  }

  // The next four need no lock.

  /// Throws Error (Fault::usage) if a frame is of another size.
  void check_size(std::span<const std::uint8_t> frame) const {
    if (frame.size() == spec_.frame_size()) return;
    const std::string side = std::to_string(spec_.frame_side());
    throw Error(Fault::usage, "the frame has " + std::to_string(frame.size()) +
                                  " bytes and the network's frames have " +
                                  std::to_string(spec_.frame_size()) + ": " + side + " x " + side +
                                  " x " + std::to_string(spec_.input_channels));
  }
  [[nodiscard]] Waiting make_waiting(std::span<const std::uint8_t> frame, Priority priority) {
    check_size(frame);
    Waiting waiting = with_room_for_results(priority);
    waiting.frame.assign(frame.begin(), frame.end());
    return waiting;
  }
  /// Throws Error (Fault::usage) if steps cannot read the frame's memory, too.
  [[nodiscard]] Waiting make_waiting(const GpuFrame& frame, Priority priority) {
    check_size(frame.pixels);
    GpuMemory* const memory = forward_->gpu_memory();
    const std::string where = "the frame is in the memory of GPU " + std::to_string(frame.device);
    if (memory == nullptr) {
      throw Error(Fault::usage, where +
                                    " and the predictor reads frames of host memory only; copy "
                                    "it to the host, or predict on that GPU in bf16 or fp16, "
                                    "or from a file of pvm quantize");
    }
    if (memory->device() != frame.device) {
      throw Error(Fault::usage, where + " and the predictor is on GPU " +
                                    std::to_string(memory->device()) + "; copy the frame there");
    }
    Waiting waiting = with_room_for_results(priority);
    waiting.gpu_frame = memory->arriving(frame);
    return waiting;
  }
  /// Room in a GPU's memory is taken here, so that a GPU that is full refuses a frame instead of
  /// breaking a step.
  [[nodiscard]] Waiting with_room_for_results(Priority priority) {
    Waiting waiting;
    waiting.priority = priority;
    waiting.since = Clock::now();
    if (options_.results_on_gpu) {
      GpuMemory& memory = *forward_->gpu_memory();
      if (options_.prediction) waiting.gpu_prediction = memory.room(spec_.frame_size());
      if (options_.hidden) waiting.gpu_hidden = memory.room(hidden_);
    }
    return waiting;
  }

  std::future<FrameResult> enqueue(StreamWork& work, Waiting waiting) {
    waiting.order = order_++;
    auto future = waiting.promise.get_future();
    work.waiting.push_back(std::move(waiting));
    ++report_.waiting;
    report_.bytes += frame_bytes();
    queue_.update(work);
    return future;
  }

  void remove_if_done(StreamWork& work) {
    if (!work.closed || work.busy || !work.waiting.empty()) return;
    const auto found = streams_.find(&work);
    if (found == streams_.end()) return;
    gone_.push_back(std::move(found->second));
    streams_.erase(found);
    report_.bytes -= forward_->past_bytes();
    if (!running_) forget_gone();
  }
  /// To be called while no step runs.
  void forget_gone() {
    for (const auto& work : gone_) {
      forward_->forget(work->past);
      work->past = {};  // its Stream may stay, but its memory counts no longer
    }
    gone_.clear();
  }

  [[nodiscard]] bool is_due() const {
    const auto due = queue_.due(options_.policy, report_.streams);
    return due && *due <= Clock::now();
  }

  /// The loop of the scheduler's thread; locks the mutex itself.
  void serve() {
    std::unique_lock lock(mutex_);
    while (!stopped_) {
      const auto due = running_ ? std::nullopt : queue_.due(options_.policy, report_.streams);
      if (!due) {
        work_.wait(lock);
      } else if (*due <= Clock::now()) {
        run_step(lock);
      } else {
        work_.wait_until(lock, *due);
      }
    }
  }

  /// A frame in the step that runs.
  struct Running {
    StreamWork* work;
    Waiting waiting;
    FrameResult result;
    std::vector<float> hidden;  // for the readout, if the result does not have them
  };

  /// Runs a step on the frames that are next, unlocked meanwhile. Does not throw: whatever fails,
  /// the frames' futures get it.
  void run_step(std::unique_lock<std::mutex>& lock) noexcept {
    running_ = true;
    std::vector<Running> batch = take_batch();
    lock.unlock();
    std::exception_ptr fault;
    try {
      compute(batch);
    } catch (...) {
      fault = std::current_exception();
    }
    const Clock::time_point now = Clock::now();
    lock.lock();
    finish(batch, fault, now);
    forget_gone();
    lock.unlock();
    for (Running& running : batch) {
      if (fault) {
        running.waiting.promise.set_exception(fault);
      } else {
        running.waiting.promise.set_value(std::move(running.result));
      }
    }
    lock.lock();
    running_ = false;
    room_.notify_all();
  }

  std::vector<Running> take_batch() {
    std::vector<Running> batch;
    for (StreamWork* work : queue_.take(most_rows_)) {
      batch.push_back({work, std::move(work->waiting.front()), {}, {}});
      batch.back().result.gpu_prediction = std::move(batch.back().waiting.gpu_prediction);
      batch.back().result.gpu_hidden = std::move(batch.back().waiting.gpu_hidden);
      work->waiting.pop_front();
      work->busy = true;
      --report_.waiting;
    }
    return batch;
  }

  /// Needs no lock, because only one thread runs a step.
  void compute(std::vector<Running>& batch) {
    std::vector<Row> rows;
    const bool on_host = !options_.results_on_gpu;
    for (Running& running : batch) {
      FrameResult& result = running.result;
      if (has_readout()) fetch(running.waiting);
      if (options_.prediction && on_host) result.prediction.resize(spec_.frame_size());
      const bool gives_hidden = options_.hidden && on_host;
      std::vector<float>& hidden = gives_hidden ? result.hidden : running.hidden;
      if (gives_hidden || reads_hidden()) hidden.resize(hidden_);
      rows.push_back({&running.work->past, running.waiting.frame, result.prediction, hidden,
                      running.waiting.gpu_frame, result.gpu_prediction.values.get(),
                      result.gpu_hidden.values.get()});
    }
    if (!has_readout()) return forward_->step(rows);
    for (Running& running : batch) running.result.heat.resize(readouts_.front().heat_values());
    ReadOut read_out{*this, batch, rows};
    forward_->step(rows, read_out);
  }

  /// Readouts work on the host, and look at frames, too.
  void fetch(Waiting& waiting) {
    if (waiting.gpu_frame.pixels == nullptr) return;
    waiting.frame.resize(spec_.frame_size());
    forward_->gpu_memory()->fetch(waiting.gpu_frame, waiting.frame);
  }

  /// Reads the readout out beside a step: first what frames say, then what hidden values add.
  class ReadOut final : public Beside {
   public:
    ReadOut(Scheduler& self, std::vector<Running>& batch, const std::vector<Row>& rows)
        : self_(self), batch_(batch), rows_(rows) {}

    void begun() override {
      for_each([&](ObjectReadout& readout, std::size_t i) {
        readout.look(rows_[i].frame, batch_[i].result.heat);
      });
    }
    void has_hidden() override {
      for_each([&](ObjectReadout& readout, std::size_t i) {
        FrameResult& result = batch_[i].result;
        const ObjectReadout::Seen seen = readout.see(rows_[i].hidden, rows_[i].frame, result.heat);
        result.confidence = seen.confidence;
        result.box = seen.box;
      });
    }

   private:
    /// Calls work(readout, row) for all rows, which threads share.
    template <class Work>
    void for_each(const Work& work) {
      if (batch_.size() == 1) return work(self_.readouts_.front(), 0);
      std::atomic<std::size_t> next{0};
      self_.team_.run([&](int member) {
        for (std::size_t i = next++; i < batch_.size(); i = next++) {
          work(self_.readouts_[static_cast<std::size_t>(member)], i);
        }
      });
    }

    Scheduler& self_;
    std::vector<Running>& batch_;
    const std::vector<Row>& rows_;
  };

  void finish(std::vector<Running>& batch, const std::exception_ptr& fault, Clock::time_point now) {
    ++report_.batches;
    for (Running& running : batch) {
      StreamWork& work = *running.work;
      work.busy = false;
      report_.bytes -= frame_bytes();
      running.result.frame = work.done++;
      running.result.batch = static_cast<int>(batch.size());
      running.result.latency = std::chrono::duration<double>(now - running.waiting.since).count();
      if (fault) {
        ++report_.failed;
        work.broken = fault;
        fail_waiting(work);
      } else {
        ++report_.frames;
        report_.latency_seconds += running.result.latency;
      }
      queue_.update(work);
      remove_if_done(work);
    }
  }

  /// A stream whose past is lost cannot go on.
  void fail_waiting(StreamWork& work) {
    for (Waiting& waiting : work.waiting) {
      waiting.promise.set_exception(work.broken);
      report_.bytes -= frame_bytes();
      --report_.waiting;
      ++report_.failed;
    }
    work.waiting.clear();
  }

  Spec spec_;
  PredictorOptions options_;
  Team team_;
  std::size_t hidden_ = 0;               // hidden values of a stream
  std::vector<ObjectReadout> readouts_;  // [thread]; none if the file has none
  std::unique_ptr<Forward> forward_;
  std::size_t most_rows_ = 1, most_bytes_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable work_;  // there is something to do, or it is over
  std::condition_variable room_;  // there may be room for a frame, or it is over
  FrameQueue queue_;
  std::map<StreamWork*, std::shared_ptr<StreamWork>> streams_;
  std::vector<std::shared_ptr<StreamWork>> gone_;  // closed, and still known to the Forward
  PredictorReport report_;
  std::uint64_t order_ = 0;
  int inside_ = 0;        // threads that wait for room, or run a step for themselves
  bool running_ = false;  // a step runs
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace infer

}  // namespace pvm::inline v0
