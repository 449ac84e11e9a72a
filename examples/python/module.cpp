// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// The Python module `pvm`: what it offers is described in src/pvm/__init__.pyi.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <pvm/core/version.hpp>
#include <pvm/engine/choose.hpp>
#include <pvm/infer/frozen_file.hpp>
#include <pvm/infer/predictor.hpp>
#include <pvm/io/open.hpp>
#include <pvm/io/original.hpp>
#include <pvm/io/synthetic.hpp>
#include <pvm/pvm.hpp>
#include <pvm/readout/tracker.hpp>

#include "arrays.hpp"
#include "dlpack.hpp"
#include "frames.hpp"
#include "given_frame.hpp"
#include "gpu_array.hpp"
#include "make_trainer.hpp"
#include "trainer.hpp"

namespace pvm_python {
namespace {

using Box = std::tuple<float, float, float, float>;

pvm::io::Checkpoint load_checkpoint(const std::filesystem::path& path, const py::object& spec) {
  std::optional<pvm::Spec> named;
  if (!spec.is_none()) named = spec_of(spec);
  const py::gil_scoped_release unlocked;
  return pvm::io::load_any_checkpoint(path, named ? &*named : nullptr);
}

py::object box_of(const std::optional<pvm::io::Box>& box) {
  if (!box) return py::none();
  return py::make_tuple(box->x, box->y, box->width, box->height);
}
pvm::io::Label label_of(const std::optional<Box>& box) {
  if (!box) return pvm::io::Label::absent();
  const auto& [x, y, width, height] = *box;
  return pvm::io::Label::present({x, y, width, height});
}

void add_scores(py::class_<Moment>& type) {
  type.def_property_readonly("mse", [](const Moment& m) { return pvm::prediction_mse(m.score); })
      .def_property_readonly("persistence_mse",
                             [](const Moment& m) { return pvm::persistence_mse(m.score); })
      .def_property_readonly(
          "psnr", [](const Moment& m) { return pvm::psnr(pvm::prediction_mse(m.score)); })
      .def_property_readonly("loss", [](const Moment& m) { return pvm::mean_loss(m.score); })
      .def_readonly("step", &Moment::step)
      .def_readonly("begin", &Moment::begin)
      .def_readonly("target", &Moment::target)
      .def_readonly("seconds", &Moment::seconds)
      .def_readonly("cut_short", &Moment::cut_short)
      .def_readonly("skipped", &Moment::skipped);
}

// ---------------------------------------------------------------------------------------- Trainer

/// What `work` returns, computed while other threads of Python run.
template <class Work>
auto without_gil(const Work& work) {
  const py::gil_scoped_release unlocked;
  return work();
}

void add_trainer(py::module_& module) {
  using namespace py::literals;
  py::class_<Trainer>(module, "Trainer")
      .def(py::init([](const py::object& start, std::variant<std::int64_t, std::string> batch,
                       std::string precision, std::uint64_t seed, int threads, std::string backend,
                       std::string reduce, bool freeze,
                       std::optional<std::variant<double, std::string>> rate,
                       std::optional<std::int64_t> rate_budget, py::object frames,
                       std::optional<int> device, std::vector<int> devices, int shards) {
             return make_trainer(
                 start, {std::move(batch), std::move(precision), std::move(rate), rate_budget,
                         std::move(frames), seed, threads, std::move(backend), std::move(reduce),
                         freeze, device, std::move(devices), shards});
           }),
           "start"_a, py::kw_only(), "batch"_a = 1, "precision"_a = "", "seed"_a = 0,
           "threads"_a = 0, "backend"_a = "auto", "reduce"_a = "", "freeze"_a = false,
           "rate"_a = py::none(), "rate_budget"_a = py::none(), "frames"_a = py::none(),
           "device"_a = py::none(), "devices"_a = std::vector<int>(), "shards"_a = 0)
      .def("fit", &Trainer::fit, "frames"_a, "steps"_a = py::none(), py::kw_only(),
           "callback"_a = py::none(), "every"_a = 1000, "checkpoints"_a = "",
           "save_every"_a = 100'000, "metrics"_a = "", "preview"_a = "", "progress"_a = false)
      .def(
          "run", [](Trainer& t, const py::object& frames) { t.run(frames); }, "frames"_a)
      .def("start_sequence", [](Trainer& t) { t.use()->start_sequence(); })
      .def("score",
           [](Trainer& t) {
             Moment moment;
             moment.step = t.use()->step();
             moment.score = t.score();
             return moment;
           })
      .def("stop", [](Trainer& t) { t.base().request_stop(); })
      .def(
          "save",
          [](Trainer& t, const std::filesystem::path& path) {
            const auto trainer = t.use();
            const py::gil_scoped_release unlocked;
            trainer->save(path);
          },
          "path"_a)
      .def("checkpoint",
           [](Trainer& t) {
             const auto trainer = t.use();
             const py::gil_scoped_release unlocked;
             return trainer->checkpoint();
           })
      .def("prediction",
           [](Trainer& t) {
             const auto trainer = t.use();
             const auto side = static_cast<std::size_t>(trainer->frame_shape().height);
             return as_array(without_gil([&] { return trainer->prediction(); }),
                             {static_cast<std::size_t>(trainer->batch()), side, side,
                              static_cast<std::size_t>(trainer->frame_shape().channels)});
           })
      .def("hidden",
           [](Trainer& t) {
             const auto trainer = t.use();
             const auto& net = trainer->connectome();
             return as_array(without_gil([&] { return trainer->hidden(); }),
                             {static_cast<std::size_t>(trainer->batch()), net.units.size(),
                              static_cast<std::size_t>(net.hidden)});
           })
      .def("weights",
           [](Trainer& t) {
             const auto trainer = t.use();
             auto weights = without_gil([&] { return trainer->weights(); });
             const std::size_t count = weights.size();
             return as_array(std::move(weights), {count});
           })
      .def_property_readonly("step", [](Trainer& t) { return t.use()->step(); })
      .def_property_readonly("batch", [](Trainer& t) { return t.use()->batch(); })
      .def_property_readonly("spec", [](Trainer& t) { return dict_of(t.base().spec()); })
      .def_property_readonly("frame_shape",
                             [](Trainer& t) {
                               const auto shape = t.base().frame_shape();
                               return py::make_tuple(shape.height, shape.width, shape.channels);
                             })
      .def_property_readonly("precision", &Trainer::precision)
      .def_property_readonly("chosen", [](Trainer& t) { return t.base().chosen(); })
      .def_property_readonly("why", &Trainer::why)
      .def_property_readonly("description", [](Trainer& t) { return t.use()->description(); });
}

/// The GPUs that this process sees, a dict for each, in the order of their numbers.
py::list devices() {
  using namespace py::literals;
  py::list all;
  for (const pvm::GpuInfo& gpu : pvm::gpus()) {
    all.append(py::dict("index"_a = gpu.index, "name"_a = gpu.name, "memory"_a = gpu.memory,
                        "multiprocessors"_a = gpu.multiprocessors,
                        "capability"_a = py::make_tuple(gpu.capability / 10, gpu.capability % 10)));
  }
  return all;
}

// -------------------------------------------------------------------------------------- Predictor

/// A FrameResult with arrays.
struct Result {
  py::object prediction = py::none(), hidden = py::none(), heat = py::none(), box = py::none();
  std::uint64_t frame = 0;
  double confidence = 0, latency = 0;
  int batch = 0;
};

/// A predictor, and the shapes of its results.
struct Predictor {
  explicit Predictor(pvm::Predictor&& made)
      : predictor(std::move(made)),
        side(static_cast<std::size_t>(predictor.spec().frame_side())),
        channels(static_cast<std::size_t>(predictor.spec().input_channels)),
        hidden(static_cast<std::size_t>(predictor.spec().hidden())),
        cells(static_cast<std::size_t>(predictor.spec().layer_shapes.front())) {}

  [[nodiscard]] Result result(pvm::FrameResult&& from) const {
    Result to;
    to.frame = from.frame;
    to.confidence = from.confidence;
    to.latency = from.latency;
    to.batch = from.batch;
    to.box = box_of(from.box);
    if (!from.prediction.empty()) {
      to.prediction = as_array(std::move(from.prediction), {side, side, channels});
    }
    if (!from.hidden.empty()) {
      const std::size_t units = from.hidden.size() / hidden;
      to.hidden = as_array(std::move(from.hidden), {units, hidden});
    }
    if (!from.gpu_prediction.empty()) {
      to.prediction = on_gpu(std::move(from.gpu_prediction), {side, side, channels});
    }
    if (!from.gpu_hidden.empty()) {
      const std::size_t units = from.gpu_hidden.count / hidden;
      to.hidden = on_gpu(std::move(from.gpu_hidden), {units, hidden});
    }
    if (!from.heat.empty()) to.heat = as_array(std::move(from.heat), {cells, cells});
    return to;
  }

  static py::object on_gpu(pvm::GpuValues&& values, const std::vector<std::size_t>& shape) {
    return py::cast(GpuArray(std::move(values), {shape.begin(), shape.end()}));
  }

  /// A frame in the memory of a GPU whose result nobody waits for, and what keeps that memory.
  struct Unread {
    std::shared_future<pvm::FrameResult> future;
    std::unique_ptr<dlpack::Import> tensor;
  };
  /// Lets those go that have been read. Their owners may do anything then, so it is done last.
  void forget_read() {
    const auto read = std::partition(unread.begin(), unread.end(), [](const Unread& one) {
      return one.future.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
    });
    std::vector<Unread> gone;
    std::move(read, unread.end(), std::back_inserter(gone));
    unread.erase(read, unread.end());
  }

  std::vector<Unread> unread;  // destroyed after the predictor, which may be reading them; GIL
  pvm::Predictor predictor;
  std::size_t side, channels, hidden, cells;
};

/// A result that comes later. It keeps its predictor alive. Several threads may wait for it, one of
/// which gets it.
struct Future {
  Future(std::shared_ptr<Predictor> predictor, std::future<pvm::FrameResult> result,
         std::unique_ptr<dlpack::Import> frame)
      : owner(std::move(predictor)), tensor(std::move(frame)), future(result.share()) {}
  ~Future() {
    if (tensor && !done()) owner->unread.push_back({future, std::move(tensor)});
  }

  std::shared_ptr<Predictor> owner;
  std::unique_ptr<dlpack::Import> tensor;  // the frame, if it is in the memory of a GPU
  std::shared_future<pvm::FrameResult> future;
  bool taken = false;  // changes with the GIL only

  [[nodiscard]] bool done() const {
    return taken || future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  /// Waits, without the GIL; Ctrl-C and `timeout` (in seconds) end the wait.
  Result result(std::optional<double> timeout) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    while (!done()) {
      const std::chrono::duration<double> waited = Clock::now() - start;
      if (timeout && !(waited.count() < *timeout)) {
        PyErr_SetString(PyExc_TimeoutError, "the result is not there yet");
        throw py::error_already_set();
      }
      const double left = timeout ? *timeout - waited.count() : 1;
      {
        const py::gil_scoped_release unlocked;
        future.wait_for(std::chrono::duration<double>(std::min(left, pvm::io::stop_seconds)));
      }
      check_signals();
    }
    if (taken) {
      throw pvm::Error(pvm::Fault::usage, "the result was taken already; it is given once");
    }
    taken = true;
    tensor.reset();
    owner->forget_read();
    // Nobody else has it, so its arrays need not be copied.
    return owner->result(std::move(const_cast<pvm::FrameResult&>(future.get())));
  }
};

pvm::ForwardPrecision precision_of(const std::string& name) {
  if (name == "fp32") return pvm::ForwardPrecision::fp32;
  if (name == "bf16") return pvm::ForwardPrecision::bf16;
  if (name == "fp16") return pvm::ForwardPrecision::fp16;
  throw pvm::Error(pvm::Fault::usage,
                   "precision " + pvm::quote(name) + " is unknown here; allowed: fp32, bf16, fp16");
}

std::shared_ptr<Predictor> load_predictor(const py::object& start, const py::object& spec,
                                          bool throughput, std::optional<int> batch,
                                          std::optional<double> wait, bool prediction, bool hidden,
                                          std::int64_t stream_frames, std::int64_t queue_frames,
                                          std::optional<std::int64_t> memory_bytes, int threads,
                                          const std::string& backend, std::optional<int> device,
                                          const std::string& precision, bool results_on_gpu) {
  pvm::PredictorOptions options;
  if (throughput) options.policy = pvm::Throughput{};
  if (batch) options.policy.most = *batch;
  if (wait) {
    if (!(*wait >= 0 && *wait <= 60)) {
      throw pvm::Error(pvm::Fault::usage,
                       "wait is " + std::to_string(*wait) + " seconds; allowed: 0 to 60");
    }
    options.policy.wait = std::chrono::microseconds(static_cast<std::int64_t>(*wait * 1e6));
  }
  options.prediction = prediction;
  options.hidden = hidden;
  options.results_on_gpu = results_on_gpu;
  options.stream_frames = count_of("stream_frames", stream_frames);
  options.queue_frames = count_of("queue_frames", queue_frames);
  if (memory_bytes) options.memory_bytes = count_of("memory_bytes", *memory_bytes);
  options.threads = threads;
  options.backend = backend_of(backend);
  if (device && *device < 0) {
    throw pvm::Error(pvm::Fault::usage, "device is " + std::to_string(*device) +
                                            "; allowed: the numbers of pvm.devices()");
  }
  options.device = device.value_or(-1);
  options.precision = precision_of(precision);
  if (py::isinstance<pvm::io::Checkpoint>(start)) {
    const auto& checkpoint = start.cast<const pvm::io::Checkpoint&>();
    const py::gil_scoped_release unlocked;
    return std::make_shared<Predictor>(pvm::Predictor(checkpoint, options));
  }
  const auto path = py::module_::import("os").attr("fspath")(start).cast<std::string>();
  std::optional<pvm::Spec> named;
  if (!spec.is_none()) named = spec_of(spec);
  const py::gil_scoped_release unlocked;
  if (pvm::is_frozen(path)) {
    return std::make_shared<Predictor>(pvm::Predictor(pvm::load_frozen(path), options));
  }
  return std::make_shared<Predictor>(
      pvm::Predictor(pvm::io::load_any_network(path, named ? &*named : nullptr), options));
}

pvm::Priority priority_of(const std::string& name) {
  if (name == "low") return pvm::Priority::low;
  if (name == "normal") return pvm::Priority::normal;
  if (name == "critical") return pvm::Priority::critical;
  throw pvm::Error(pvm::Fault::usage,
                   "priority " + pvm::quote(name) + " is unknown; allowed: low, normal, critical");
}

Result predict(Predictor& p, pvm::Stream& stream, const py::handle& frame,
               const std::string& priority) {
  const GivenFrame given(frame, p.predictor.frame_shape());
  const pvm::Priority urgency = priority_of(priority);
  return p.result(without_gil([&] {
    return given.hand_to(
        [&](const auto& pixels) { return p.predictor.predict(stream, pixels, urgency); });
  }));
}

/// Without room for the frame: waits, or returns None if `block` is false.
std::unique_ptr<Future> submit(const std::shared_ptr<Predictor>& p, pvm::Stream& stream,
                               const py::handle& frame, const std::string& priority, bool block) {
  p->forget_read();
  GivenFrame given(frame, p->predictor.frame_shape());
  const pvm::Priority urgency = priority_of(priority);
  const auto come = [&](std::future<pvm::FrameResult> future) {
    return std::make_unique<Future>(p, std::move(future), given.take_tensor());
  };
  if (!block) {
    auto future = given.hand_to(
        [&](const auto& pixels) { return p->predictor.try_submit(stream, pixels, urgency); });
    return future ? come(std::move(*future)) : nullptr;
  }
  const auto step = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(pvm::io::stop_seconds));
  for (;;) {
    std::optional<std::future<pvm::FrameResult>> future;
    {
      const py::gil_scoped_release unlocked;
      if (p->predictor.wait_for_room(stream, step)) {
        future = given.hand_to(
            [&](const auto& pixels) { return p->predictor.submit(stream, pixels, urgency); });
      }
    }
    if (future) return come(std::move(*future));
    check_signals();
  }
}

void add_predictor(py::module_& module) {
  using namespace py::literals;
  add_gpu_array(module);
  py::class_<Result>(module, "Result")
      .def_readonly("frame", &Result::frame)
      .def_readonly("prediction", &Result::prediction)
      .def_readonly("hidden", &Result::hidden)
      .def_readonly("heat", &Result::heat)
      .def_readonly("box", &Result::box)
      .def_readonly("confidence", &Result::confidence)
      .def_readonly("latency", &Result::latency)
      .def_readonly("batch", &Result::batch);
  py::class_<Future>(module, "Future")
      .def("done", &Future::done)
      .def("result", &Future::result, "timeout"_a = py::none());
  py::class_<pvm::Stream>(module, "Stream")
      .def("close", &pvm::Stream::close)
      .def_property_readonly("is_open", &pvm::Stream::is_open)
      .def("__enter__", [](const py::object& stream) { return stream; })
      .def("__exit__", [](pvm::Stream& stream, const py::args&) { stream.close(); });
  py::class_<Predictor, std::shared_ptr<Predictor>>(module, "Predictor")
      .def(py::init(&load_predictor), "start"_a, py::kw_only(), "spec"_a = py::none(),
           "throughput"_a = false, "batch"_a = py::none(), "wait"_a = py::none(),
           "prediction"_a = true, "hidden"_a = false, "stream_frames"_a = 8,
           "queue_frames"_a = 4096, "memory_bytes"_a = py::none(), "threads"_a = 0,
           "backend"_a = "host", "device"_a = py::none(), "precision"_a = "fp32",
           "results_on_gpu"_a = false)
      .def("open", [](Predictor& p) { return p.predictor.open(); })
      .def("predict", &predict, "stream"_a, "frame"_a, "priority"_a = "normal")
      .def("submit", &submit, "stream"_a, "frame"_a, "priority"_a = "normal", "block"_a = true)
      .def_property_readonly("spec", [](Predictor& p) { return dict_of(p.predictor.spec()); })
      .def_property_readonly(
          "frame_shape", [](Predictor& p) { return py::make_tuple(p.side, p.side, p.channels); })
      .def_property_readonly("has_readout", [](Predictor& p) { return p.predictor.has_readout(); })
      .def_property_readonly("description", [](Predictor& p) { return p.predictor.description(); })
      .def("report", [](Predictor& p) {
        const pvm::PredictorReport r = p.predictor.report();
        return py::dict("streams"_a = r.streams, "waiting"_a = r.waiting, "frames"_a = r.frames,
                        "batches"_a = r.batches, "refused"_a = r.refused, "failed"_a = r.failed,
                        "latency_seconds"_a = r.latency_seconds, "bytes"_a = r.bytes,
                        "most_bytes"_a = r.most_bytes);
      });
}

// ------------------------------------------------------------- Sources, checkpoints, and trackers

/// Throws Error (Fault::usage) if no frame has this shape.
pvm::io::FrameShape readable_shape(int height, int width, int channels) {
  constexpr int most = 1 << 15;
  const bool sides = height >= 1 && width >= 1 && height <= most && width <= most;
  if (sides && channels >= 1 && channels <= 4) return {height, width, channels};
  throw pvm::Error(pvm::Fault::usage,
                   "a frame that is read has 1 to 32768 rows and columns and 1 to 4 channels, and "
                   "this is " +
                       std::to_string(height) + " x " + std::to_string(width) + " x " +
                       std::to_string(channels));
}

void add_sources(py::module_& module) {
  using namespace py::literals;
  py::class_<Source>(module, "Source")
      .def(
          "read",
          [](Source& source, int height, int width, int channels) {
            const pvm::io::FrameShape shape = readable_shape(height, width, channels);
            const Reading reading(source);
            std::vector<std::uint8_t> pixels(shape.size());
            {
              const py::gil_scoped_release unlocked;
              source.source.next(shape, pixels);
            }
            const auto length = [](int n) { return static_cast<std::size_t>(n); };
            return as_array(std::move(pixels), {length(height), length(width), length(channels)});
          },
          "height"_a, "width"_a, "channels"_a = 3)
      .def_property_readonly("length", [](Source& source) { return source.source.length(); })
      .def_property_readonly("name", [](Source& source) { return source.source.name(); });
  module.def(
      "open_source",
      [](const std::filesystem::path& path) {
        const py::gil_scoped_release unlocked;
        return Source{pvm::io::open_source(path.string())};
      },
      "path"_a);
  module.def(
      "synthetic",
      [](std::uint64_t seed, std::uint64_t frames) {
        return Source{pvm::io::Synthetic({.seed = seed, .frames = frames})};
      },
      "seed"_a = 0, "frames"_a = 1000);
}

/// The wiring, a dict for each unit: what a program needs to compute the network by itself.
py::list units_of(const pvm::Spec& spec) {
  using namespace py::literals;
  const pvm::Connectome net = pvm::make_connectome(spec);
  py::list units;
  for (std::size_t u = 0; u < net.units.size(); ++u) {
    const pvm::Unit& unit = net.units[u];
    py::list primary, context;
    for (const auto source : net.primary[u]) primary.append(source);
    for (const auto source : net.context[u]) context.append(source);
    units.append(py::dict("layer"_a = unit.layer, "row"_a = unit.row, "column"_a = unit.column,
                          "inputs"_a = unit.inputs, "outputs"_a = unit.outputs,
                          "representation"_a = unit.representation, "w0"_a = unit.w0,
                          "w1"_a = unit.w1, "primary"_a = primary, "context"_a = context));
  }
  return units;
}

void add_checkpoints(py::module_& module) {
  using namespace py::literals;
  using pvm::io::Checkpoint;
  py::class_<Checkpoint>(module, "Checkpoint")
      .def_property_readonly("spec", [](const Checkpoint& c) { return dict_of(c.spec); })
      .def_property_readonly("units", [](const Checkpoint& c) { return units_of(c.spec); })
      .def_property_readonly("step", [](const Checkpoint& c) { return c.state.step; })
      .def_property_readonly("batch", [](const Checkpoint& c) { return c.state.batch; })
      .def_property_readonly("precision", [](const Checkpoint& c) { return c.precision; })
      .def_property_readonly("chosen", [](const Checkpoint& c) { return c.chosen; })
      .def_property_readonly("resumable", [](const Checkpoint& c) { return c.state.resumable(); })
      .def_property_readonly("has_readout", [](const Checkpoint& c) { return !c.extras.empty(); })
      .def_property_readonly("weights",
                             [](const Checkpoint& c) {
                               auto weights = c.state.weights;
                               const std::size_t count = weights.size();
                               return as_array(std::move(weights), {count});
                             })
      .def(
          "save",
          [](const Checkpoint& c, const std::filesystem::path& path) {
            const py::gil_scoped_release unlocked;
            pvm::io::make_directories_of(path);
            pvm::io::save_checkpoint(path, c);
          },
          "path"_a);
  module.def("load_checkpoint", &load_checkpoint, "path"_a, "spec"_a = py::none());
  module.def(
      "load_spec", [](const py::object& path) { return dict_of(spec_of(path)); }, "path"_a);
}

/// A tracker, for one thread at a time; others are refused.
struct Tracker {
  explicit Tracker(pvm::Tracker&& made) : tracker(std::move(made)) {}

  struct Use {
    std::unique_lock<std::mutex> lock;
    pvm::Tracker& tracker;
    pvm::Tracker* operator->() const { return &tracker; }
  };
  Use use() {
    std::unique_lock lock(mutex, std::try_to_lock);
    if (lock) return {std::move(lock), tracker};
    throw pvm::Error(pvm::Fault::usage,
                     "the tracker is working in another thread; wait until that has ended");
  }

  pvm::Tracker tracker;
  std::mutex mutex;
};

/// The pixels of a frame, which must be of the tracker's size, because boxes are in its pixels.
std::span<const std::uint8_t> pixels_for(pvm::Tracker& tracker, const py::array& array) {
  if (array.ndim() != 2 && array.ndim() != 3) {
    throw pvm::Error(pvm::Fault::usage, "a frame has 2 or 3 dimensions, [height, width, channels]");
  }
  const auto shape = tracker.frame_shape();
  const auto channels = array.ndim() == 3 ? array.shape(2) : 1;
  if (array.shape(0) == shape.height && array.shape(1) == shape.width &&
      channels == shape.channels) {
    return {static_cast<const std::uint8_t*>(array.data()), shape.size()};
  }
  throw pvm::Error(pvm::Fault::usage, "a tracker's frames are " + std::to_string(shape.height) +
                                          " x " + std::to_string(shape.width) + " x " +
                                          std::to_string(shape.channels) +
                                          ", and boxes are in their pixels; resize both");
}

void add_tracker(py::module_& module) {
  using namespace py::literals;
  py::class_<pvm::Found>(module, "Found")
      .def_readonly("present", &pvm::Found::present)
      .def_readonly("confidence", &pvm::Found::confidence)
      .def_property_readonly("box", [](const pvm::Found& found) {
        return box_of(found.present ? std::optional(found.box) : std::nullopt);
      });
  py::class_<Tracker>(module, "Tracker")
      .def(py::init([](const pvm::io::Checkpoint& network, int threads) {
             pvm::TrackerOptions options;
             options.threads = threads;
             const py::gil_scoped_release unlocked;
             return std::make_unique<Tracker>(pvm::Tracker(network, options));
           }),
           "network"_a, py::kw_only(), "threads"_a = 0)
      .def_static(
          "load",
          [](const std::filesystem::path& path) {
            const py::gil_scoped_release unlocked;
            return std::make_unique<Tracker>(pvm::Tracker::load(path));
          },
          "path"_a)
      .def(
          "learn",
          [](Tracker& t, const py::handle& frame, const std::optional<Box>& box) {
            const auto tracker = t.use();
            const py::array array = pixels_of(frame);
            const auto bytes = pixels_for(tracker.tracker, array);
            const py::gil_scoped_release unlocked;
            tracker->learn(bytes, label_of(box));
          },
          "frame"_a, "box"_a)
      .def(
          "track",
          [](Tracker& t, const py::handle& frame) {
            const auto tracker = t.use();
            const py::array array = pixels_of(frame);
            const auto bytes = pixels_for(tracker.tracker, array);
            const py::gil_scoped_release unlocked;
            return tracker->track(bytes);
          },
          "frame"_a)
      .def("reset", [](Tracker& t) { t.use()->reset(); })
      .def(
          "save",
          [](Tracker& t, const std::filesystem::path& path) {
            const auto tracker = t.use();
            const py::gil_scoped_release unlocked;
            tracker->save(path);
          },
          "path"_a)
      .def_property_readonly("frame_shape", [](Tracker& t) {
        const auto shape = t.tracker.frame_shape();
        return py::make_tuple(shape.height, shape.width, shape.channels);
      });
}

/// pvm.Error, a RuntimeError with the same sentence and the fault's name.
void add_error(py::module_& module) {
  // Never destroyed, because the interpreter may be gone by then.
  static const auto* error = new py::exception<pvm::Error>(module, "Error", PyExc_RuntimeError);
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const pvm::Error& fault) {
      static const std::map<pvm::Fault, const char*> names = {
          {pvm::Fault::usage, "usage"},   {pvm::Fault::spec, "spec"},
          {pvm::Fault::source, "source"}, {pvm::Fault::checkpoint, "checkpoint"},
          {pvm::Fault::device, "device"}, {pvm::Fault::memory, "memory"},
          {pvm::Fault::rank, "rank"}};
      const py::object raised = py::handle(*error)(fault.what());
      raised.attr("fault") = names.at(fault.fault());
      PyErr_SetObject(error->ptr(), raised.ptr());
    }
  });
}

}  // namespace
}  // namespace pvm_python

PYBIND11_MODULE(_pvm, module) {
  using namespace pvm_python;
  module.attr("__version__") = pvm::version_text();
  add_error(module);
  py::class_<Moment> moment(module, "Moment");
  add_scores(moment);
  add_sources(module);
  add_checkpoints(module);
  add_trainer(module);
  module.def("devices", &devices);
  add_predictor(module);
  add_tracker(module);
}
