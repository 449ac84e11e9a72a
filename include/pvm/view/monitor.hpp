// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Shows the metrics of runs in a web browser, finished ones and those that go on. Needs
/// cpp-httplib, OpenCV and nlohmann_json.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <pvm/core/need_json.hpp>

#include <nlohmann/json.hpp>

#include <pvm/core/error.hpp>
#include <pvm/train/learning_curves.hpp>
#include <pvm/view/monitor_page.hpp>
#include <pvm/view/server.hpp>

namespace pvm::inline v0::view {

/// Serves a page with the learning curves of all files of metrics in a directory, several beside
/// each other. Files are read again when they have changed, so that runs can be watched that go on.
class Monitor {
 public:
  /// Throws Error (Fault::usage) if `path` is neither a directory with files of metrics (*.jsonl,
  /// also in its directories) nor such a file, or the port cannot be listened on.
  Monitor(std::filesystem::path path, const std::string& address, int port, bool other_ports)
      : path_(std::move(path)) {
    if (json()["runs"].empty()) {
      throw Error(Fault::usage, quote(path_.string()) +
                                    " has no metrics; name a directory with files that --metrics "
                                    "has written (*.jsonl), or such a file");
    }
    server_ = std::make_unique<Server>(address, port, other_ports,
                                       [this](const Request& request) { return answer(request); });
  }
  [[nodiscard]] std::string url() const { return server_->url(); }

  /// What the page draws: for each run its name and lists of steps, seconds and PSNRs.
  [[nodiscard]] nlohmann::ordered_json json() {
    nlohmann::ordered_json all = {{"runs", nlohmann::ordered_json::array()}};
    for (const std::filesystem::path& file : files()) {
      if (const auto& run = read(file); !run.empty()) all["runs"].push_back(run);
    }
    return all;
  }

 private:
  static constexpr std::size_t most_files = 200, most_points = 1000;

  struct Known {
    std::uintmax_t size = 0;
    std::filesystem::file_time_type changed{};
    nlohmann::ordered_json run{};
  };

  [[nodiscard]] std::vector<std::filesystem::path> files() const {
    namespace fs = std::filesystem;
    std::error_code fault;
    if (fs::is_regular_file(path_, fault)) return {path_};
    std::vector<fs::path> found;
    constexpr auto skip = fs::directory_options::skip_permission_denied;
    for (fs::recursive_directory_iterator i(path_, skip, fault), end; !fault && i != end;
         i.increment(fault)) {
      if (i->path().extension() == ".jsonl" && i->is_regular_file(fault)) found.push_back(*i);
    }
    std::sort(found.begin(), found.end());
    if (found.size() > most_files) found.resize(most_files);
    return found;
  }

  /// The run of a file; empty if it holds no metrics (yet).
  const nlohmann::ordered_json& read(const std::filesystem::path& file) {
    std::error_code fault;
    Known& known = known_[file];
    const auto size = std::filesystem::file_size(file, fault);
    const auto changed = std::filesystem::last_write_time(file, fault);
    if (known.size == size && known.changed == changed) return known.run;
    known = {size, changed, nlohmann::ordered_json()};
    try {
      LearningCurve curve = read_learning_curve(file);
      const std::string name =
          file == path_ ? file.filename().string() : file.lexically_relative(path_).string();
      known.run = as_json(pvm::printable(name), curve.points);
    } catch (const Error&) {  // something else, or still without a line
    }
    return known.run;
  }

  static nlohmann::ordered_json as_json(const std::string& name,
                                        const std::vector<LearningPoint>& points) {
    using Json = nlohmann::ordered_json;
    Json run = {{"name", name}};
    const auto number = [](double v) { return std::isfinite(v) ? Json(v) : Json(); };
    const std::size_t every = points.size() / most_points + 1;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (i % every != 0 && i + 1 != points.size()) continue;
      run["step"].push_back(number(points[i].step));
      run["seconds"].push_back(number(points[i].seconds));
      run["psnr"].push_back(number(points[i].psnr));
      run["persistence_psnr"].push_back(number(points[i].persistence_psnr));
    }
    return run;
  }

  Response answer(const Request& request) {
    if (request.method == "GET" && request.path == "/") {
      return {200, "text/html; charset=utf-8", std::string(monitor_page)};
    }
    if (request.method == "GET" && request.path == "/runs") {
      const std::lock_guard lock(mutex_);
      constexpr auto replace = nlohmann::json::error_handler_t::replace;
      return {200, "application/json", json().dump(-1, ' ', false, replace) + "\n"};
    }
    return {404, "application/json",
            "{\"ok\":false,\"error\":\"there is nothing of that name\"}\n"};
  }

  std::filesystem::path path_;
  std::mutex mutex_;
  std::map<std::filesystem::path, Known> known_;
  std::unique_ptr<Server> server_;  // last, because its threads use the others
};

}  // namespace pvm::inline v0::view
