// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Lets people watch a run in a web browser, and talk to it. Needs cpp-httplib, OpenCV and
/// nlohmann_json.

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

#include <pvm/core/need_json.hpp>
#include <pvm/core/need_opencv.hpp>

#include <nlohmann/json.hpp>

#include <opencv2/imgcodecs.hpp>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/printable.hpp>
#include <pvm/io/atomic_file.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/film.hpp>
#include <pvm/io/preview.hpp>
#include <pvm/train/callback.hpp>
#include <pvm/train/command.hpp>
#include <pvm/train/report.hpp>
#include <pvm/train/trainer_base.hpp>
#include <pvm/view/curve.hpp>
#include <pvm/view/page.hpp>
#include <pvm/view/server.hpp>
#include <pvm/view/teacher.hpp>

namespace pvm::inline v0::view {

struct LiveOptions {
  std::string address = "127.0.0.1";  ///< on which to listen; others than loopback are open to all
  int port = 9000;
  bool other_ports = false;    ///< if the port is in use, one of the next 15 is taken
  std::string prefix = "pvm";  ///< of the files that are saved on demand: PREFIX_000001000.png
  /// Called with the page's address, token included, when a run begins.
  std::function<void(const std::string& url)> tell{};
};

/// A callback that serves a page with the run's pictures and curves, and with buttons for all
/// commands (docs/model.md), while the run goes on. Between steps it only copies what a picture
/// needs, 30 times a second while somebody looks, and obeys commands; the rest is done on threads
/// of its own, which never make the run wait. What is looked at changes no result; commands do.
class Live {
 public:
  explicit Live(LiveOptions options) : options_(std::move(options)) {}
  ~Live() {
    server_ends_.store(true);
    changed_.notify_all();
  }
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;

  /// Throws Error (Fault::usage) if the address cannot be listened on.
  void begin(const Moment& moment);
  [[nodiscard]] std::uint64_t next(std::uint64_t step);
  void at(const Moment& moment);
  void idle(const Moment& moment);
  void end(const Moment& moment);

 private:
  using Clock = std::chrono::steady_clock;
  using Json = nlohmann::ordered_json;

  static constexpr double pictures_per_second = 30;

  /// What is kept of a step for the picture of two steps later.
  struct Kept {
    std::uint64_t step = never;
    std::vector<float> prediction;    // for that later step, first sequence
    std::vector<std::uint8_t> frame;  // the newest frame
  };
  /// A command from outside that waits for its answer.
  struct Order {
    std::string text;
    std::promise<Response> answer;
  };

  // On the run's thread.
  void look_at_clock(const Moment& moment);
  [[nodiscard]] bool is_watched() const {
    return film_ != nullptr || Clock::now().time_since_epoch().count() < watched_until_.load();
  }
  void keep(const Moment& moment);
  [[nodiscard]] const Kept* kept_at(std::uint64_t step) const;
  void publish(const Moment& moment);
  void obey_orders(const Moment& moment);
  Response obey(const Moment& moment, const std::string& text);
  std::string save(const Moment& moment);
  std::string snapshot(const Moment& moment);
  std::string record(const Moment& moment);
  std::string stop_recording();
  /// `label STEP absent` or `label STEP X Y WIDTH HEIGHT`, of a picture that was shown.
  void learn_label(const Moment& moment, std::string_view text);
  std::string save_labels(const Moment& moment);
  void write_status(const Moment& moment);
  [[nodiscard]] std::string free_name(std::uint64_t step, const std::string& ending) const;

  // On the server's threads.
  [[nodiscard]] bool server_ends() const { return server_ends_.load(); }
  Response answer(const Request& request);
  /// Steps between pictures, at the present rate.
  [[nodiscard]] std::uint64_t steps_apart() const;
  /// Whether the next picture's prediction has been kept, so that the run need not stop before it.
  [[nodiscard]] bool has_prediction_for_planned() const;
  Response picture_after(std::uint64_t number);
  Response status();
  Response order(const std::string& text);

  static Response as_json(int status, const Json& json) {
    constexpr auto replace = nlohmann::json::error_handler_t::replace;
    return {status, "application/json", json.dump(-1, ' ', false, replace) + "\n"};
  }
  static Response refusal(const std::string& why) {
    return as_json(400, {{"ok", false}, {"error", why}});
  }

  LiveOptions options_;

  // The run's.
  double rate_ = 0;  // steps a second
  Clock::time_point measured_{}, status_written_{};
  std::uint64_t measured_step_ = 0;
  std::uint64_t planned_ = 0;           // the step of the next picture
  std::uint64_t published_ = never;     // the step of the last one
  std::uint64_t every_step_until_ = 0;  // so that the picture of that step has a prediction
  std::optional<Order> pausing_;        // a pause that comes at that step
  bool paused_ = false;
  Kept kept_[3];
  Curve curve_;
  std::optional<Teacher> teacher_;  // since somebody has looked
  std::unique_ptr<io::Film> film_;
  std::string film_name_;

  // Shared with the server's threads.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const std::string> picture_;
  std::uint64_t picture_number_ = 0;
  std::string status_;
  std::uint64_t status_number_ = 0;
  std::deque<Order> orders_;
  bool ended_ = false, end_was_told_ = false;
  std::atomic<Clock::rep> watched_until_ = 0, status_until_ = 0;
  std::atomic<bool> server_ends_ = false;

  std::unique_ptr<Server> server_;  // last, because its threads use the others
};

static_assert(Callback<Live>);

// ---------------------------------------------------------------- on the run's thread

inline void Live::begin(const Moment& moment) {
  measured_ = Clock::now();
  measured_step_ = moment.step;
  paused_ = moment.trainer.paused();
  {
    const std::lock_guard lock(mutex_);
    ended_ = end_was_told_ = false;
  }
  write_status(moment);
  if (server_) return;
  server_ = std::make_unique<Server>(options_.address, options_.port, options_.other_ports,
                                     [this](const Request& request) { return answer(request); });
  if (options_.tell) options_.tell(server_->url());
}

inline std::uint64_t Live::next(std::uint64_t step) {
  if (pausing_ || paused_) return step + 1;
  if (step < every_step_until_) return std::max(step + 1, every_step_until_ - 2);
  constexpr double looks_per_second = 10;  // for commands and people
  if (!is_watched()) {
    planned_ = 0;
    return step + static_cast<std::uint64_t>(std::max(1.0, rate_ / looks_per_second));
  }
  if (planned_ <= step) {
    planned_ = std::max(step + 1, (published_ == never ? step : published_) + steps_apart());
  }
  if (planned_ > step + 2) return planned_ - 2;
  return has_prediction_for_planned() ? planned_ : step + 1;
}

inline std::uint64_t Live::steps_apart() const {
  return static_cast<std::uint64_t>(std::max(1.0, rate_ / pictures_per_second));
}

inline bool Live::has_prediction_for_planned() const {
  return planned_ >= 2 && kept_at(planned_ - 2) != nullptr && steps_apart() > 2;
}

inline void Live::at(const Moment& moment) {
  look_at_clock(moment);
  curve_.add(moment.step, moment.seconds, moment.score);
  const bool near_pause = pausing_ || moment.step <= every_step_until_;
  if (is_watched() || near_pause) {
    const std::uint64_t step = moment.step;
    const bool due = step >= planned_ || step == every_step_until_ || pausing_;
    if (due && (kept_at(step - 2) != nullptr || pausing_)) publish(moment);
    // A look at the engine's state holds up the steps. Where pictures are far apart, there are two
    // for each: at its prediction, and two steps later.
    const bool far = steps_apart() > 2 && (published_ == step || has_prediction_for_planned());
    if (near_pause || (planned_ <= step + 2 && !far)) keep(moment);
  }
  if (pausing_ && moment.step >= every_step_until_) {
    moment.trainer.command(parse_command("pause"));
    paused_ = true;
    pausing_->answer.set_value(
        as_json(200, {{"ok", true}, {"command", "pause"}, {"step", moment.step}}));
    pausing_.reset();
  }
  obey_orders(moment);
  write_status(moment);
}

inline void Live::idle(const Moment& moment) {
  paused_ = true;
  if (published_ != moment.step) publish(moment);
  keep(moment);
  measured_ = Clock::now();  // a pause is no slowness
  measured_step_ = moment.step;
  obey_orders(moment);
  write_status(moment);
  paused_ = moment.trainer.paused();
}

inline void Live::end(const Moment& moment) {
  if (film_) log(Severity::info, "recording ended: " + stop_recording());
  if (pausing_) pausing_->answer.set_value(refusal("the run has ended"));
  pausing_.reset();
  obey_orders(moment);
  status_written_ = {};
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  write_status(moment);
  const bool asked = Clock::now().time_since_epoch().count() < status_until_.load();
  std::unique_lock lock(mutex_);  // whoever looks is told that the run has ended
  if (asked) changed_.wait_for(lock, std::chrono::seconds(2), [this] { return end_was_told_; });
}

inline void Live::look_at_clock(const Moment& moment) {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - measured_).count();
  if (seconds < 0.2 || moment.step <= measured_step_) return;
  const double rate = static_cast<double>(moment.step - measured_step_) / seconds;
  rate_ = rate_ == 0 ? rate : 0.5 * (rate_ + rate);
  measured_ = now;
  measured_step_ = moment.step;
}

inline void Live::keep(const Moment& moment) {
  if (kept_at(moment.step) != nullptr) return;
  Kept& kept = kept_[moment.step % 3];
  const auto frame = moment.trainer.last_frame();
  if (frame.empty()) return;  // before the first step
  kept.prediction = moment.trainer.prediction();
  kept.frame.assign(frame.begin(), frame.end());
  kept.prediction.resize(kept.frame.size());
  kept.step = moment.step;
}

inline const Live::Kept* Live::kept_at(std::uint64_t step) const {
  const Kept& kept = kept_[step % 3];
  return kept.step == step ? &kept : nullptr;
}

inline void Live::publish(const Moment& moment) {
  const auto frame = moment.trainer.last_frame();
  if (frame.empty()) return;
  const Kept* const before = moment.step < 2 ? nullptr : kept_at(moment.step - 2);
  const auto& net = moment.trainer.connectome();
  const std::size_t hidden = net.units.size() * static_cast<std::size_t>(net.hidden);
  const auto to_byte = [](float v) {
    return static_cast<char>(
        static_cast<unsigned char>(v > 0 ? std::min(v, 1.0F) * 255 + 0.5F : 0));
  };
  Json head = {{"step", moment.step}, {"predicted", before != nullptr}};
  if (!teacher_) teacher_.emplace(moment.trainer.spec(), net);
  teacher_->remember(moment.step, frame);
  std::optional<Teacher::Seen> seen;
  if (teacher_->knows()) {
    seen = teacher_->look(frame);
    head["heat_side"] = teacher_->heat_side();
    head["confidence"] = seen->confidence;
    if (seen->box) head["box"] = {seen->box->x, seen->box->y, seen->box->width, seen->box->height};
  }
  const std::string words = head.dump();
  auto bytes = std::make_shared<std::string>();
  bytes->reserve(words.size() + 4 + 3 * frame.size() + hidden);
  for (int i = 0; i < 4; ++i) *bytes += static_cast<char>(words.size() >> (8 * i) & 0xFF);
  *bytes += words;
  bytes->append(frame.begin(), frame.end());
  if (before != nullptr) {
    for (const float v : before->prediction) *bytes += to_byte(v);
    bytes->append(before->frame.begin(), before->frame.end());
  }
  const auto values = moment.trainer.hidden();
  for (std::size_t i = 0; i < hidden; ++i) *bytes += to_byte(values[i]);
  if (seen) {
    for (const float v : seen->heat) *bytes += to_byte(v);
  }
  published_ = moment.step;
  if (film_ && before != nullptr) {
    io::FilmContent content;
    content.shape = moment.trainer.frame_shape();
    content.frame = frame;
    content.prediction = before->prediction;
    if (seen) content.heat = seen->heat;
    if (seen) content.box = seen->box;
    content.words = "step " + std::to_string(moment.step);
    film_->add(content);
  }
  {
    const std::lock_guard lock(mutex_);
    picture_ = std::move(bytes);
    ++picture_number_;
  }
  changed_.notify_all();
}

inline void Live::obey_orders(const Moment& moment) {
  for (;;) {
    Order order;
    {
      const std::lock_guard lock(mutex_);
      if (orders_.empty()) return;
      order = std::move(orders_.front());
      orders_.pop_front();
    }
    status_written_ = {};
    const bool pauses = order.text == "pause" && !paused_ && !pausing_;
    if (pauses && moment.step < moment.target) {
      // In two steps, so that the picture then has the prediction that was made for it.
      every_step_until_ = std::min(moment.step + 2, moment.target - 1);
      if (every_step_until_ > moment.step) {
        keep(moment);
        pausing_ = std::move(order);
        continue;
      }
    }
    order.answer.set_value(obey(moment, order.text));
  }
}

inline Response Live::obey(const Moment& moment, const std::string& text) {
  Json said = {{"ok", true}, {"command", text}, {"step", moment.step}};
  try {
    if (text == "save") {
      said["file"] = save(moment);
    } else if (text == "snapshot") {
      said["file"] = snapshot(moment);
    } else if (text == "record") {
      said["file"] = record(moment);
    } else if (text == "stop-recording") {
      said["file"] = stop_recording();
    } else if (text.starts_with("label ")) {
      learn_label(moment, text);
      said["with"] = teacher_->count(io::LabelState::present);
      said["without"] = teacher_->count(io::LabelState::absent);
    } else if (text == "save-labels") {
      said["file"] = save_labels(moment);
    } else if (text == "stop") {
      moment.trainer.request_stop();
    } else {
      const Command command = parse_command(text);
      moment.trainer.command(command);
      said["command"] = command_text(command);
      if (command.verb == Command::Verb::step) every_step_until_ = moment.step + command.steps;
      paused_ = moment.trainer.paused();
      said["modes"] = moment.trainer.modes().text();
    }
  } catch (const Error& error) {
    return refusal(error.what());
  }
  return as_json(200, said);
}

inline std::string Live::save(const Moment& moment) {
  // A name that `Checkpoints` never uses, which may be writing its file of this step.
  const std::string path = free_name(moment.step, "_saved.safetensors");
  moment.trainer.save(path);
  log(Severity::info, "checkpoint saved: " + path);
  return path;
}

inline std::string Live::free_name(std::uint64_t step, const std::string& ending) const {
  std::string prefix = options_.prefix;
  constexpr std::string_view one_file = ".safetensors";
  if (prefix.ends_with(one_file)) prefix.resize(prefix.size() - one_file.size());
  char digits[24];
  std::snprintf(digits, sizeof digits, "_%09llu", static_cast<unsigned long long>(step));
  std::string name = prefix + digits + ending;
  std::error_code ignored;
  for (int n = 2; std::filesystem::exists(name, ignored); ++n) {
    name = prefix + digits + "_" + std::to_string(n) + ending;
  }
  return name;
}

inline std::string Live::snapshot(const Moment& moment) {
  const auto frame = moment.trainer.last_frame();
  const Kept* const before = moment.step < 2 ? nullptr : kept_at(moment.step - 2);
  if (frame.empty() || before == nullptr) {
    throw Error(Fault::usage,
                "there is no prediction for this frame yet; ask again, with the page open");
  }
  const auto hidden = moment.trainer.hidden();
  const Spec& spec = moment.trainer.spec();
  const cv::Mat picture = io::draw_preview(spec, moment.trainer.connectome(),
                                           {frame, before->prediction, before->frame, hidden,
                                            spec.name + ", step " + std::to_string(moment.step) +
                                                "   (activity: 0 is blue, 1 is yellow)"});
  std::vector<std::uint8_t> png;
  cv::imencode(".png", picture, png);
  const std::string name = free_name(moment.step, ".png");
  io::make_directories_of(name);
  io::AtomicFile file(name);
  file.write(png.data(), png.size());
  file.commit(false);
  return name;
}

inline std::string Live::record(const Moment& moment) {
  if (film_) throw Error(Fault::usage, "a recording goes on already: " + film_name_);
  film_name_ = free_name(moment.step, ".mp4");
  film_ = std::make_unique<io::Film>(film_name_, pictures_per_second);
  return film_name_;
}

inline std::string Live::stop_recording() {
  if (!film_) throw Error(Fault::usage, "nothing is being recorded");
  const std::unique_ptr<io::Film> film = std::move(film_);
  film->finish();
  return film_name_;
}

inline void Live::learn_label(const Moment& moment, std::string_view text) {
  const auto refuse = [] {
    throw Error(Fault::usage,
                "a label is: label STEP absent, or: label STEP X Y WIDTH HEIGHT, in pixels of the "
                "network's frame");
  };
  const auto words = pvm::detail::words_of(text);
  if (words.size() != 3 && words.size() != 6) refuse();
  const auto step = pvm::detail::whole_text_as<std::uint64_t>(words[1]);
  if (!step || (words.size() == 3 && words[2] != "absent")) refuse();
  io::Label label = io::Label::absent();
  if (words.size() == 6) {
    float box[4] = {};
    for (std::size_t i = 0; i < 4; ++i) {
      const auto value = pvm::detail::whole_text_as<float>(words[2 + i]);
      if (!value) refuse();
      box[i] = *value;
    }
    label = io::Label::present({box[0], box[1], box[2], box[3]});
  }
  if (!teacher_) throw Error(Fault::usage, "no picture has been shown yet; open the page first");
  teacher_->learn(*step, label);
  if (published_ == moment.step) publish(moment);  // the heatmap answers
}

inline std::string Live::save_labels(const Moment& moment) {
  if (!teacher_) throw Error(Fault::usage, "no frame has been labelled; draw a box first");
  const std::string name = free_name(moment.step, "_labels.zip");
  io::make_directories_of(name);
  teacher_->save(name);
  return name;
}

inline void Live::write_status(const Moment& moment) {
  const auto now = Clock::now();
  const bool asked = now.time_since_epoch().count() < status_until_.load();
  const bool is_new = now - status_written_ > std::chrono::milliseconds(200);
  if (!is_new || (!asked && status_written_ != Clock::time_point{})) return;
  status_written_ = now;
  TrainerBase& trainer = moment.trainer;
  const Spec& spec = trainer.spec();
  const Modes& modes = trainer.modes();
  Json status = {{"name", spec.name},
                 {"step", moment.step},
                 {"target", moment.target},
                 {"batch", trainer.batch()},
                 {"weights", trainer.connectome().weights},
                 {"engine", trainer.description()},
                 {"side", spec.frame_side()},
                 {"channels", spec.input_channels},
                 {"hidden_side", spec.hidden_block_size},
                 {"layers", spec.layer_shapes},
                 {"frames_per_second", rate_ * trainer.batch()},
                 {"paused", trainer.paused()},
                 {"ended", ended_},
                 {"learns", trainer.learns()},
                 {"frozen", modes.frozen.value_or(!trainer.learns())},
                 {"modes", modes.text()},
                 {"recording", film_ ? Json(film_name_) : Json()}};
  for (const SequenceMode& mode : modes.sequences) {
    status["sees"].push_back(std::string(sight_names[static_cast<std::size_t>(mode.sight)]));
  }
  for (const auto& rate : modes.rates) {  // as double the float would have digits that nobody set
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, rate.value_or(0)).ptr;
    const auto shown = pvm::detail::whole_text_as<double>({digits, end});
    status["rates"].push_back(rate ? Json(*shown) : Json());
  }
  if (!trainer.places().empty()) {
    const auto& place = trainer.places().front();
    status["source"] = place.source;
    status["frame"] = place.position.frame;
    status["pass"] = place.position.pass;
  }
  std::size_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  status["memory_bytes"] = resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  status["gpu_memory_bytes"] = trainer.device_memory();
  status["bottleneck"] = bottleneck(trainer.report_so_far(moment));
  status["curve"] = curve_.json();
  status["labels_with"] = teacher_ ? teacher_->count(io::LabelState::present) : 0;
  status["labels_without"] = teacher_ ? teacher_->count(io::LabelState::absent) : 0;
  {
    const std::lock_guard lock(mutex_);
    status_ = as_json(200, status).body;
    ++status_number_;
  }
  changed_.notify_all();
}

// ---------------------------------------------------------------- on the server's threads

inline Response Live::answer(const Request& request) {
  const bool post = request.method == "POST";
  if (!post && request.path == "/") return {200, "text/html; charset=utf-8", std::string(page)};
  if (!post && request.path == "/picture") return picture_after(request.after);
  if (!post && request.path == "/status") return status();
  if (post && request.path == "/command") return order(request.text);
  return as_json(404, {{"ok", false}, {"error", "there is nothing of that name here"}});
}

inline Response Live::picture_after(std::uint64_t number) {
  constexpr auto interest = std::chrono::seconds(1);  // how long one request counts as looking
  watched_until_.store((Clock::now() + interest).time_since_epoch().count());
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(500),
                    [&] { return picture_number_ > number || ended_ || server_ends(); });
  if (picture_number_ <= number) return {204, "application/octet-stream", ""};
  const std::shared_ptr<const std::string> picture = picture_;
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(picture_number_ >> (8 * i) & 0xFF);
  lock.unlock();
  return {200, "application/octet-stream", bytes + *picture};
}

inline Response Live::status() {
  constexpr auto interest = std::chrono::seconds(3);
  status_until_.store((Clock::now() + interest).time_since_epoch().count());
  std::unique_lock lock(mutex_);
  const std::uint64_t seen = status_number_;
  changed_.wait_for(lock, std::chrono::seconds(1),
                    [&] { return status_number_ > seen || ended_ || server_ends(); });
  if (ended_) {
    end_was_told_ = true;
    changed_.notify_all();
  }
  return {200, "application/json", status_};
}

inline Response Live::order(const std::string& text) {
  constexpr std::string_view own[] = {"save",           "snapshot",    "record",
                                      "stop-recording", "save-labels", "stop"};
  const bool is_own = std::find(std::begin(own), std::end(own), text) != std::end(own);
  if (!is_own && !text.starts_with("label ")) {
    try {
      static_cast<void>(parse_command(text));
    } catch (const Error& error) {
      return refusal(std::string(error.what()) +
                     ", save, snapshot, record, stop-recording, label, save-labels, stop");
    }
  }
  constexpr std::size_t most = 100;
  std::future<Response> answer;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return as_json(410, {{"ok", false}, {"error", "the run has ended"}});
    if (orders_.size() >= most) {
      return as_json(503, {{"ok", false}, {"error", "too many commands wait; try again"}});
    }
    Order& order = orders_.emplace_back();
    order.text = text;
    answer = order.answer.get_future();
  }
  for (int i = 0; i < 100 && !server_ends(); ++i) {
    if (answer.wait_for(std::chrono::milliseconds(100)) == std::future_status::ready) {
      return answer.get();
    }
  }
  return as_json(504, {{"ok", false},
                       {"error",
                        "the run is busy, it may wait for frames; the command is obeyed "
                        "as soon as it goes on"}});
}

}  // namespace pvm::inline v0::view
