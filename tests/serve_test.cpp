// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// A Predictor over HTTP: what it answers, whom it lets in, and how much.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <opencv2/imgcodecs.hpp>

#include <pvm/infer/predictor.hpp>
#include <pvm/io/resize.hpp>
#include <pvm/model/json.hpp>
#include <pvm/readout/compare.hpp>
#include <pvm/serve/guard.hpp>
#include <pvm/serve/server.hpp>
#include <pvm/serve/service.hpp>

#include "catch.hpp"
#include "train_helpers.hpp"

namespace {

using namespace std::chrono_literals;
using pvm::serve::Request;
using pvm::serve::Response;
using pvm::serve::Server;
using pvm::serve::Service;
using train_test::contains;

pvm::io::Checkpoint network() { return pvm::readout::untrained(train_test::tiny_spec(), 3); }

/// A frame of tiny_spec's size, as bytes.
std::string frame_of(int t) {
  std::string frame(train_test::tiny_spec().frame_size(), '\0');
  for (std::size_t i = 0; i < frame.size(); ++i) {
    frame[i] = static_cast<char>(i * 7 + static_cast<std::size_t>(t) * 31);
  }
  return frame;
}

std::string jpeg(int side) {
  const cv::Mat picture(side, side, CV_8UC3, cv::Scalar(20, 90, 200));
  std::vector<std::uint8_t> file;
  cv::imencode(".jpg", picture, file);
  return {file.begin(), file.end()};
}

nlohmann::json body_of(const Response& response) { return nlohmann::json::parse(response.body); }

const std::string token = "0123456789abcdef";

/// A service behind a server on a free port.
struct Served {
  explicit Served(std::size_t body = 100'000, const pvm::PredictorOptions& options = {})
      : service(pvm::Predictor(network(), options), {}),
        server(server_options(body), [this](const Request& r) { return service.answer(r); }) {}

  static pvm::serve::ServerOptions server_options(std::size_t body) {
    return {.port = 0,
            .token = token,
            .connections = 24,
            .limits = {.request_bytes = body, .request = 500ms, .answer = 2'000ms}};
  }
  [[nodiscard]] httplib::Client client() const {
    httplib::Client client("127.0.0.1", server.port());
    client.set_keep_alive(true);
    client.set_default_headers({{"Authorization", "Bearer " + token}});
    return client;
  }

  Service service;
  Server server;
};

}  // namespace

TEST_CASE("A service answers for each stream", "[serve]") {
  Service service(pvm::Predictor(network(), {.hidden = true}), {.streams = 2});
  const auto ask = [&](const char* method, const std::string& path, const std::string& body = "",
                       const std::string& query = "") {
    return service.answer({method, path, body, query});
  };
  CHECK(body_of(ask("GET", "/health"))["frame"] == nlohmann::json({12, 12, 3}));
  const Response opened = ask("POST", "/streams");
  CHECK(opened.status == 201);
  const std::string id = body_of(opened)["stream"];
  CHECK(ask("PUT", "/streams/door").status == 201);
  CHECK(ask("PUT", "/streams/door").status == 409);
  CHECK(ask("PUT", "/streams/third").status == 503);
  CHECK(ask("PUT", "/streams/..%2f").status == 400);
  CHECK(ask("PUT", "/streams/").status == 400);

  pvm::Predictor alone(network(), {.hidden = true});
  pvm::Stream stream = alone.open();
  for (int t = 0; t < 3; ++t) {
    const std::string frame = frame_of(t);
    const Response answered =
        ask("POST", "/streams/" + id + "/frames", frame, "prediction=1&hidden=1&priority=critical");
    REQUIRE(answered.status == 200);
    const auto body = body_of(answered);
    CHECK(body["frame"] == t);
    CHECK(body["latency_ms"] > 0);
    CHECK_FALSE(body.contains("box"));
    const std::vector<std::uint8_t> bytes(frame.begin(), frame.end());
    CHECK(body["hidden"].get<std::vector<float>>() == alone.predict(stream, bytes).hidden);
    CHECK(body["prediction"].get<std::string>().starts_with("iVBORw0KGgo"));  // a PNG file
    CHECK(ask("POST", "/streams/door/frames", jpeg(40)).status == 200);
  }
  CHECK(ask("POST", "/streams/none/frames", jpeg(40)).status == 404);
  CHECK(ask("POST", "/streams/door/frames", "no picture").status == 400);
  CHECK(ask("POST", "/streams/door/frames", "").status == 400);
  CHECK(ask("POST", "/streams/door/frames", jpeg(40), "priority=now").status == 400);
  CHECK(ask("DELETE", "/streams/door").status == 200);
  CHECK(ask("DELETE", "/streams/door").status == 404);
  CHECK(ask("GET", "/streams").status == 404);
  CHECK(ask("GET", "/").status == 404);
  const std::string metrics = ask("GET", "/metrics").body;
  CHECK(contains(metrics, "\npvm_frames_total 6\n"));
  CHECK(contains(metrics, "\npvm_streams 1\n"));
  CHECK(contains(metrics, "\npvm_bad_frames_total 2\n"));
  CHECK(contains(service.summary(), "6 frames answered"));
}

TEST_CASE("A picture that has as many bytes as a frame is a picture", "[serve]") {
  const std::size_t frame = train_test::tiny_spec().frame_size();
  std::string file = "P6 10 10 255\n";  // and what follows its pixels, which decoders leave alone
  file.resize(file.size() + 300, '\x80');
  REQUIRE(file.size() < frame);
  const std::string longer = file + std::string(frame - file.size(), '\0');
  const auto prediction = [&](const std::string& body) {
    Service service(pvm::Predictor(network()), {});
    REQUIRE(service.answer({"PUT", "/streams/a", "", ""}).status == 201);
    return body_of(
        service.answer({"POST", "/streams/a/frames", body, "prediction=1"}))["prediction"];
  };
  CHECK(prediction(longer) == prediction(file));
  CHECK(prediction(frame_of(1)) != prediction(file));
}

TEST_CASE("Streams that are idle are closed", "[serve]") {
  Service service(pvm::Predictor(network()), {.idle = 0s});
  CHECK(service.answer({"PUT", "/streams/a", "", ""}).status == 201);
  std::this_thread::sleep_for(1'100ms);
  const Response late = service.answer({"POST", "/streams/a/frames", frame_of(0), ""});
  CHECK(late.status == 404);
  CHECK(contains(late.body, "it may have been idle"));
}

TEST_CASE("A server lets in only what it should", "[serve]") {
  Served served;
  CHECK(served.client().Get("/health")->status == 200);
  httplib::Client client("127.0.0.1", served.server.port());
  const auto get = [&](const httplib::Headers& headers) {
    return client.Get("/health", headers)->status;
  };
  const std::string port = std::to_string(served.server.port());
  CHECK(get({}) == 403);
  CHECK(get({{"Authorization", "Bearer 0123456789abcdeX"}}) == 403);
  CHECK(get({{"Authorization", token}}) == 403);
  CHECK(get({{"X-Pvm-Token", token}}) == 200);
  CHECK(get({{"X-Pvm-Token", token}, {"Host", "localhost:" + port}}) == 200);
  CHECK(get({{"X-Pvm-Token", token}, {"Host", "evil.example:" + port}}) == 403);
  CHECK(get({{"X-Pvm-Token", token}, {"Host", "127.0.0.1:1"}}) == 403);
  CHECK(get({{"X-Pvm-Token", token}, {"Origin", "http://evil.example"}}) == 403);
  CHECK(get({{"X-Pvm-Token", token}, {"Origin", "http://127.0.0.1:" + port}}) == 200);
  CHECK(get({{"X-Pvm-Token", token}, {"Content-Encoding", "gzip"}}) == 403);
  const auto headers = client.Get("/health", {{"X-Pvm-Token", token}})->headers;
  CHECK(headers.find("X-Content-Type-Options")->second == "nosniff");
  CHECK(headers.find("Cache-Control")->second == "no-store");
  CHECK(served.client().Options("/health")->status >= 400);

  // A body is not read before its token, nor is it taken for the next request.
  const std::string smuggled = "GET /health HTTP/1.1\r\nHost: 127.0.0.1:" + port +
                               "\r\nAuthorization: Bearer " + token + "\r\n\r\n";
  CHECK(client.Post("/streams/a/frames", smuggled, "image/jpeg")->status == 403);
  CHECK(served.client().Get("/metrics")->body.find("pvm_bad_frames_total 0") != std::string::npos);
}

TEST_CASE("A request that says nothing of a body has none", "[serve]") {
  Served served;
  httplib::Client client("127.0.0.1", served.server.port());
  httplib::Request request;
  request.method = "PUT";
  request.path = "/streams/a";
  request.headers = {{"Authorization", "Bearer " + token}};
  const auto start = std::chrono::steady_clock::now();
  CHECK(client.send(request)->status == 201);
  CHECK(std::chrono::steady_clock::now() - start < 400ms);
}

TEST_CASE("Bodies and time are bounded", "[serve]") {
  Served served(20'000);
  auto client = served.client();
  REQUIRE(client.Put("/streams/a")->status == 201);
  const auto large = client.Post("/streams/a/frames", std::string(30'000, 'x'), "image/jpeg");
  CHECK((!large || large->status == 413));
  // A client that sends a byte now and then is cut off, however patient it is.
  httplib::Client slow("127.0.0.1", served.server.port());
  const auto start = std::chrono::steady_clock::now();
  std::size_t sent = 0;
  const auto drip = slow.Post(
      "/streams/a/frames", {{"X-Pvm-Token", token}}, 10'000,
      [&](std::size_t, std::size_t, httplib::DataSink& sink) {
        std::this_thread::sleep_for(50ms);
        ++sent;
        return sink.write("x", 1);
      },
      "image/jpeg");
  CHECK((!drip || drip->status >= 400));
  CHECK(std::chrono::steady_clock::now() - start < 20s);
  CHECK(sent < 400);
  CHECK(served.client().Get("/health")->status == 200);
}

namespace {

/// A connection that sends `text`, or nothing.
class RawClient {
 public:
  explicit RawClient(int port, const std::string& text = "")
      : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
    static_cast<void>(::send(socket_, text.data(), text.size(), MSG_NOSIGNAL));
  }
  ~RawClient() { ::close(socket_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  /// What is answered until the server closes the connection.
  [[nodiscard]] std::string rest() const {
    std::string all;
    char part[1000];
    for (ssize_t n = 0; (n = ::recv(socket_, part, sizeof part, 0)) > 0;) {
      all.append(part, static_cast<std::size_t>(n));
    }
    return all;
  }

 private:
  int socket_;
};

}  // namespace

TEST_CASE("A server is crowded if no thread is free for who waits", "[serve]") {
  pvm::serve::detail::BoundedThreads threads(2);
  std::promise<void> over;
  const auto wait = [until = over.get_future().share()] { until.wait(); };
  for (int i = 0; i < 2; ++i) {
    threads.enqueue(wait);
    CHECK_FALSE(threads.crowded());  // whether a thread has begun with it or not
  }
  threads.enqueue(wait);
  CHECK(threads.crowded());
  over.set_value();
  threads.shutdown();
  CHECK_FALSE(threads.crowded());
}

TEST_CASE("Connections that say nothing give way to others", "[serve]") {
  Served served;
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(std::make_unique<RawClient>(served.server.port()));
  }
  const auto start = std::chrono::steady_clock::now();
  const auto answer = served.client().Get("/health");
  REQUIRE(answer);
  CHECK(answer->status == 200);
  CHECK(std::chrono::steady_clock::now() - start < 10s);
}

TEST_CASE("The head of a request is bounded, and answers are whole", "[serve]") {
  Served served(10'000'000);
  const std::string begin =
      "GET /health HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(served.server.port()) +
      "\r\nX-Pvm-Token: " + token + "\r\nConnection: close\r\n";
  CHECK(contains(RawClient(served.server.port(), begin + "\r\n").rest(), " 200 OK"));
  std::string many = begin;
  for (int i = 0; i < 5'000; ++i) many += "X-" + std::to_string(i) + ": y\r\n";
  const auto sent = std::chrono::steady_clock::now();
  CHECK_FALSE(contains(RawClient(served.server.port(), many + "\r\n").rest(), " 200 OK"));
  CHECK(std::chrono::steady_clock::now() - sent < 30s);  // the server does not wait for more
  auto client = served.client();
  const auto whole = client.Get("/health");
  const auto part = client.Get("/health", {{"Range", "bytes=0-1"}});
  REQUIRE((whole && part));
  CHECK(part->status == 200);
  CHECK(part->body == whole->body);
  REQUIRE(client.Put("/streams/a")->status == 201);
  std::string file = jpeg(40);
  file.resize(200'000, 'x');  // behind a picture's end there may be anything
  CHECK(client.Post("/streams/a/frames", file, "image/jpeg")->status == 200);
}

TEST_CASE("Many clients are answered or refused, and none is lost", "[serve]") {
  Served served(100'000,
                {.policy = pvm::Throughput(8, 1ms), .stream_frames = 1, .queue_frames = 6});
  std::atomic<int> answered{0}, refused{0}, other{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 20; ++i) {
    threads.emplace_back([&, i] {
      auto client = served.client();
      const std::string path = "/streams/c" + std::to_string(i);
      if (client.Put(path.c_str())->status != 201) ++other;
      int done = 0;
      for (int t = 0; t < 25; ++t) {
        const auto result = client.Post((path + "/frames").c_str(), frame_of(t), "image/x-raw");
        if (result && result->status == 200) {
          ++answered;
          if (nlohmann::json::parse(result->body)["frame"] != done++) ++other;
        } else if (result && result->status == 429) {
          ++refused;
        } else {
          ++other;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(other == 0);
  CHECK(answered + refused == 20 * 25);
  CHECK(answered > 0);
  const std::string metrics = served.client().Get("/metrics")->body;
  CHECK(contains(metrics, "pvm_frames_total " + std::to_string(answered) + "\n"));
  CHECK(contains(metrics, "pvm_refused_frames_total " + std::to_string(refused) + "\n"));
}
