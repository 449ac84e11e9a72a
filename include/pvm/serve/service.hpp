// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A Predictor as a service: requests in, JSON out. Knows nothing of sockets.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <opencv2/imgcodecs.hpp>

#include <pvm/core/error.hpp>
#include <pvm/infer/predictor.hpp>
#include <pvm/io/resize.hpp>
#include <pvm/io/source.hpp>
#include <pvm/serve/server.hpp>

namespace pvm::inline v0::serve {

struct ServiceOptions {
  std::size_t streams = 1000;     ///< that may be open at once
  std::chrono::seconds idle{60};  ///< after which a stream without frames is closed
};

namespace detail {

inline std::string base64(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k) word = word << 8 | (k < count ? bytes[i + k] : 0U);
    for (std::size_t k = 0; k < 4; ++k) {
      text += k <= count ? digits[word >> (18 - 6 * k) & 63] : '=';
    }
  }
  return text;
}

/// The value of `name` in a query; empty if it is not there.
inline std::string_view parameter(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view one = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), one.size() + 1));
    if (one.substr(0, one.find('=')) == name) {
      return one.size() > name.size() ? one.substr(name.size() + 1) : std::string_view("1");
    }
  }
  return {};
}

}  // namespace detail

/// Streams by id, and their frames. `answer` may be called by several threads at once.
///
///     GET    /health                the network, and that it is there
///     GET    /metrics               numbers for Prometheus
///     POST   /streams               opens a stream; its id is in the answer
///     PUT    /streams/ID            the same, with an id of the client's
///     DELETE /streams/ID            closes it
///     POST   /streams/ID/frames     a picture (JPEG, PNG, ...), or a frame's bytes
class Service {
 public:
  Service(Predictor predictor, const ServiceOptions& options)
      : predictor_(std::move(predictor)), options_(options) {}

  Response answer(const Request& request) {
    try {
      close_idle();
      return route(request);
    } catch (const Error& error) {
      const bool full = error.fault() == Fault::memory;
      return failure(full ? 503 : error.fault() == Fault::usage ? 400 : 500, error.what());
    } catch (const std::bad_alloc&) {
      return failure(503, "there is not enough memory");
    }
  }

  /// What was done and refused, as a sentence.
  [[nodiscard]] std::string summary() const {
    const PredictorReport report = predictor_.report();
    return std::to_string(report.frames) + " frames answered in " + std::to_string(report.batches) +
           " steps, " + std::to_string(report.refused) + " refused for lack of room, " +
           std::to_string(refused_.load()) + " that were no frames, " +
           std::to_string(report.failed) + " failed";
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Json = nlohmann::ordered_json;

  /// A client's stream.
  struct Client {
    std::mutex mutex;  // frames are submitted one by one
    std::optional<Stream> stream;
    std::atomic<Clock::rep> used{Clock::now().time_since_epoch().count()};
    std::atomic<int> waiting{0};  // requests that wait for a result
  };

  static Response json(int status, const Json& body) {
    return {status, "application/json",
            body.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n"};
  }
  static Response failure(int status, const std::string& sentence) {
    return json(status, {{"error", sentence}});
  }

  Response route(const Request& request) {
    const std::string_view path = request.path;
    constexpr std::string_view streams = "/streams";
    if (path == "/health" && request.method == "GET") return health();
    if (path == "/metrics" && request.method == "GET") return metrics();
    if (path == streams && request.method == "POST") {
      return open("s" + std::to_string(++last_id_));
    }
    if (!path.starts_with("/streams/")) return failure(404, "there is nothing of that name");
    std::string_view id = path.substr(streams.size() + 1);
    const std::size_t slash = id.find('/');
    const std::string_view rest = slash == std::string_view::npos ? "" : id.substr(slash);
    id = id.substr(0, slash);
    if (rest.empty() && request.method == "PUT") return open(std::string(id));
    if (rest.empty() && request.method == "DELETE") return close(std::string(id));
    if (rest == "/frames" && request.method == "POST") return see(std::string(id), request);
    return failure(404, "there is nothing of that name");
  }

  Response health() const {
    const io::FrameShape shape = predictor_.frame_shape();
    return json(200, {{"status", "ok"},
                      {"spec", predictor_.spec().name},
                      {"frame", {shape.height, shape.width, shape.channels}},
                      {"readout", predictor_.has_readout()},
                      {"runs_on", predictor_.description()}});
  }

  Response metrics() const {
    const PredictorReport r = predictor_.report();
    std::string text;
    const auto add = [&text](const char* name, const char* kind, const char* help, double value) {
      char line[400];
      std::snprintf(line, sizeof line, "# HELP pvm_%s %s\n# TYPE pvm_%s %s\npvm_%s %.17g\n", name,
                    help, name, kind, name, value);
      text += line;
    };
    const auto number = [](auto n) { return static_cast<double>(n); };
    add("streams", "gauge", "Open streams.", number(r.streams));
    add("waiting_frames", "gauge", "Frames that wait for a step.", number(r.waiting));
    add("frames_total", "counter", "Frames that have a result.", number(r.frames));
    add("steps_total", "counter", "Steps of the network.", number(r.batches));
    add("refused_frames_total", "counter", "Frames refused for lack of room.", number(r.refused));
    add("bad_frames_total", "counter", "Bodies that were no frames.", number(refused_.load()));
    add("failed_frames_total", "counter", "Frames that failed.", number(r.failed));
    add("latency_seconds_sum", "counter", "Time from frames to their results.", r.latency_seconds);
    add("memory_bytes", "gauge", "Bytes of streams and frames.", number(r.bytes));
    add("memory_limit_bytes", "gauge", "Their bound.", number(r.most_bytes));
    return {200, "text/plain; version=0.0.4", text};
  }

  Response open(const std::string& id) {
    const auto allowed = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '-' || c == '.';
    };
    if (id.empty() || id.size() > 64 || !std::all_of(id.begin(), id.end(), allowed)) {
      return failure(400,
                     "a stream's id has 1 to 64 letters, digits, dots, hyphens or underscores");
    }
    const std::scoped_lock lock(mutex_);
    if (clients_.contains(id)) return failure(409, "stream " + quote(id) + " is open already");
    if (clients_.size() >= options_.streams) {
      return failure(503, std::to_string(clients_.size()) + " streams are open, which is the most");
    }
    auto client = std::make_shared<Client>();
    client->stream.emplace(predictor_.open());
    clients_.emplace(id, std::move(client));
    return json(201, {{"stream", id}});
  }

  Response close(const std::string& id) {
    std::shared_ptr<Client> closed;
    {
      const std::scoped_lock lock(mutex_);
      const auto found = clients_.find(id);
      if (found == clients_.end()) return no_stream(id);
      closed = std::move(found->second);
      clients_.erase(found);
    }
    return json(200, {{"closed", id}});
  }
  static Response no_stream(const std::string& id) {
    return failure(404, "there is no stream " + quote(id) + "; open it, it may have been idle");
  }

  /// Closes the streams that have had no frame for long, at most once a second.
  void close_idle() {
    const Clock::time_point now = Clock::now();
    const std::scoped_lock lock(mutex_);
    if (now - looked_ < std::chrono::seconds(1)) return;
    looked_ = now;
    std::erase_if(clients_, [&](const auto& entry) {
      const Client& client = *entry.second;
      const Clock::time_point used{Clock::duration(client.used.load())};
      return client.waiting.load() == 0 && now - used > options_.idle;
    });
  }

  std::shared_ptr<Client> find(const std::string& id) {
    const std::scoped_lock lock(mutex_);
    const auto found = clients_.find(id);
    if (found == clients_.end()) return nullptr;
    ++found->second->waiting;
    found->second->used = Clock::now().time_since_epoch().count();
    return found->second;
  }

  Response see(const std::string& id, const Request& request) {
    const std::shared_ptr<Client> client = find(id);
    if (!client) return no_stream(id);
    struct Waits {
      Client& client;
      ~Waits() { --client.waiting; }
    } waits{*client};
    const io::FrameShape shape = predictor_.frame_shape();
    std::vector<std::uint8_t> frame(shape.size());
    const std::span bytes(reinterpret_cast<const std::uint8_t*>(request.body.data()),
                          request.body.size());
    io::PictureSize size = io::decode_image(bytes, shape, frame);
    if (!size && bytes.size() == frame.size()) {  // else a picture that has as many bytes
      std::copy(bytes.begin(), bytes.end(), frame.begin());
      size = {shape.width, shape.height};
    }
    if (!size) {
      ++refused_;
      return failure(400, "the body is no picture, and not a frame of " +
                              std::to_string(frame.size()) + " bytes");
    }
    const auto priority = priority_of(detail::parameter(request.query, "priority"));
    if (!priority) return failure(400, "a priority is low, normal or critical");
    std::optional<std::future<FrameResult>> future;
    {
      const std::scoped_lock lock(client->mutex);
      future = predictor_.try_submit(*client->stream, frame, *priority);
    }
    if (!future) return failure(429, "too many frames wait; send this one again later");
    const FrameResult result = future->get();
    return json(200, describe(id, result, size, request.query));
  }

  static std::optional<Priority> priority_of(std::string_view name) {
    if (name.empty() || name == "normal") return Priority::normal;
    if (name == "low") return Priority::low;
    if (name == "critical") return Priority::critical;
    return std::nullopt;
  }

  [[nodiscard]] Json describe(const std::string& id, const FrameResult& result,
                              const io::PictureSize& size, std::string_view query) const {
    Json all = {{"stream", id}, {"frame", result.frame}};
    if (predictor_.has_readout()) {
      const int side = predictor_.frame_shape().width;
      all["present"] = result.box.has_value();
      all["confidence"] = result.confidence;
      if (result.box) {  // in pixels of the picture that came
        const io::Box box = io::Label::present(*result.box).resized({side, side}, size).box;
        all["box"] = {box.x, box.y, box.width, box.height};
      }
      if (detail::parameter(query, "heat") == "1") all["heat"] = result.heat;
    }
    if (detail::parameter(query, "hidden") == "1") all["hidden"] = result.hidden;
    if (detail::parameter(query, "prediction") == "1") all["prediction"] = png(result.prediction);
    all["latency_ms"] = 1000 * result.latency;
    all["batch"] = result.batch;
    return all;
  }

  /// A PNG file in base64.
  [[nodiscard]] std::string png(const std::vector<float>& prediction) const {
    const io::FrameShape shape = predictor_.frame_shape();
    cv::Mat picture(shape.height, shape.width, CV_8UC(shape.channels));
    std::transform(prediction.begin(), prediction.end(), picture.data,
                   [](float v) { return static_cast<std::uint8_t>(255.0F * v + 0.5F); });
    std::vector<std::uint8_t> file;
    cv::imencode(".png", io::encodable(picture), file);
    return detail::base64(file);
  }

  Predictor predictor_;
  ServiceOptions options_;
  std::mutex mutex_;  // of the next three
  std::map<std::string, std::shared_ptr<Client>> clients_;
  Clock::time_point looked_ = Clock::now();
  std::atomic<std::uint64_t> last_id_{0}, refused_{0};
};

}  // namespace pvm::inline v0::serve
