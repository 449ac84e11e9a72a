// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Trainers on the emulated device: the choice of the engine, the store of frames, checkpoints.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <pvm/dist/communicator.hpp>
#include <pvm/dist/group.hpp>
#include <pvm/dist/ranks_by.hpp>
#include <pvm/engine/choose.hpp>
#include <pvm/engine/cuda/batch/engine.hpp>
#include <pvm/engine/cuda/device/time.hpp>
#include <pvm/engine/cuda/general/engine.hpp>
#include <pvm/engine/cuda/plan_engine.hpp>
#include <pvm/engine/cuda/units/carrier.hpp>
#include <pvm/engine/cuda/units/engine.hpp>
#include <pvm/engine/device_plan.hpp>
#include <pvm/io/synthetic.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/json.hpp>
#include <pvm/readout/gpu/mlp.hpp>
#include <pvm/readout/mlp.hpp>
#include <pvm/train/trainer.hpp>

#include "../catch.hpp"
#include "../group_of_threads.hpp"
#include "../train_helpers.hpp"

namespace {

using emulated_cuda::Different;

/// Ten frames that repeat and, having a replay id, may be kept in the store.
class Loop : public pvm::io::Synthetic {
 public:
  explicit Loop(std::uint64_t seed) : Synthetic({.seed = seed, .frames = 10}), seed_(seed) {}
  [[nodiscard]] std::string replay_id() const { return "loop " + std::to_string(seed_); }

 private:
  std::uint64_t seed_;
};

template <class Trainer>
std::vector<float> train(Trainer&& trainer, std::uint64_t steps) {
  std::vector<Loop> loops;
  for (int b = 0; b < trainer.batch(); ++b) loops.emplace_back(static_cast<std::uint64_t>(b));
  static_cast<void>(trainer.fit(loops, pvm::Steps{steps}));
  return trainer.weights();
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = a.size() == b.size() ? 0 : 1e9;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    largest = std::max(largest, std::isfinite(d) ? d : 1e9);
  }
  return largest;
}

/// Trains on the GPU and on the host, with and without a store of frames, in one piece and resumed,
/// and compares the weights. `engine`: how the description of the GPU's engine must begin.
template <class Trainer, class... Spec>
void trains_as_on_the_host(int batch, const std::string& engine, const Spec&... spec) {
  using pvm::BackendChoice;
  const auto options = [&](BackendChoice backend, std::size_t cache) {
    return pvm::TrainerOptions{.batch = batch, .seed = 5, .backend = backend, .cache_bytes = cache};
  };
  constexpr std::uint64_t steps = 26;
  constexpr std::size_t cache = 1 << 20;
  const auto host = train(Trainer(spec..., options(BackendChoice::host, cache)), steps);
  Trainer gpu(spec..., options(BackendChoice::automatic, cache));
  CHECK(gpu.description().find(engine) == 0);
  const auto stored = train(gpu, steps);
  CHECK(largest_difference(stored, host) < 2e-6);
  CHECK(train(Trainer(spec..., options(BackendChoice::cuda, 0)), steps) == stored);

  Trainer first(spec..., options(BackendChoice::cuda, cache));
  CHECK(largest_difference(train(first, 12), stored) > 2e-6);
  CHECK(train(Trainer(first.checkpoint(), options(BackendChoice::cuda, cache)), steps) == stored);
}

using ByAdam = pvm::Network<pvm::Input<12, 3, 3>, pvm::Layers<4, 2, 1>, pvm::Hidden<3>,
                            pvm::LearningRule<pvm::Adam>, pvm::LearningRate<1e-5>>;

/// Networks whose units have 25 hidden values (4 tiles of 7 rows) or 16 (2 tiles of 8 rows), which
/// are constants in the kernels of the general engine.
template <int Side, class... Parts>
using OfSide = pvm::Network<pvm::Input<12, 1, 3>, pvm::Layers<4, 2, 1>, pvm::Hidden<Side>,
                            pvm::LayerDelay<5>, Parts...>;
/// The same with a momentum that lives too long for whole units, so that the general engine trains
/// them.
template <int Side, class... Parts>
using Lasting = OfSide<Side, pvm::MomentumFactor<0.5>, Parts...>;

template <class Known>
using Launcher = pvm::detail::general::StepLauncher<pvm::fp32, Known>;
using pvm::detail::NetworkConstants;
static_assert(Launcher<pvm::detail::ConstantsOf<OfSide<5>>>::constant_hidden == 25);
static_assert(Launcher<pvm::detail::ConstantsOf<OfSide<4>>>::constant_hidden == 16);
static_assert(Launcher<NetworkConstants<>>::constant_hidden == 0);
static_assert(Launcher<NetworkConstants<144>>::constant_hidden == 0, "several rounds");
using ThreadBlock25 = pvm::detail::general::ThreadBlock<pvm::fp32, 7, NetworkConstants<25>>;
static_assert(ThreadBlock25::fixed && ThreadBlock25::fixed_groups == 4 &&
              ThreadBlock25::fixed_hidden == 25);

/// Kernels compiled for a network's type give the same bits as those that read its spec.
template <class Net>
void trains_as_by_its_spec(const std::string& constant) {
  const pvm::TrainerOptions options{.seed = 5, .backend = pvm::BackendChoice::cuda};
  pvm::Trainer<pvm::fp32, 1, Net> typed(options);
  pvm::Trainer<> by_spec(Net::spec(), options);
  CHECK(train_test::contains(typed.description(), constant));
  CHECK_FALSE(train_test::contains(by_spec.description(), "kernels for"));
  CHECK(train(typed, 36) == train(by_spec, 36));
  CHECK(typed.hidden() == by_spec.hidden());
  CHECK(typed.prediction() == by_spec.prediction());
  const auto a = typed.checkpoint().state, b = by_spec.checkpoint().state;
  CHECK(a.folded == b.folded);
  CHECK(a.hidden_gradients == b.hidden_gradients);
  // A checkpoint of the one continues on both with the same bits.
  const auto checkpoint = by_spec.checkpoint();
  CHECK(train(pvm::Trainer<pvm::fp32, 1, Net>(checkpoint, options), 50) ==
        train(pvm::Trainer<>(checkpoint, options), 50));
}

/// The library's activation and rule, as if a program had written them.
struct OwnPolynomial : pvm::Polynomial {
  static constexpr const char* name = "own polynomial";
  static constexpr bool on_gpu = true;
};
struct OwnAdam : pvm::Adam {
  static constexpr const char* name = "own adam";
  static constexpr bool on_gpu = true;
};
/// A rule without state that is none of the library's.
struct Fading {
  static constexpr bool on_gpu = true;
  static constexpr int state = 0;
  static float apply(float w, float*, float gradient, pvm::RuleStep s) {
    return w + s.rate * (gradient - 1e-3F * w);
  }
};
struct HostAdam : pvm::Adam {
  static constexpr const char* name = "host adam";
};
template <class Rule>
using ByRule = OfSide<3, pvm::LearningRule<Rule>, pvm::LearningRate<1e-5>,
                      pvm::Activation<std::conditional_t<std::is_same_v<Rule, pvm::Adam>,
                                                         pvm::Polynomial, OwnPolynomial>>>;

}  // namespace

TEST_CASE("One sequence trains on the CUDA engine") {
  trains_as_on_the_host<pvm::Trainer<>>(1, "CUDA engine", train_test::tiny_spec());
}

TEST_CASE("A batch trains on the batched CUDA engine") {
  trains_as_on_the_host<pvm::Trainer<pvm::fp32, pvm::dynamic>>(3, "CUDA batch engine",
                                                               train_test::tiny_spec());
}

TEST_CASE("A batch of fewer than 16 sequences is told that 16 take as long") {
  const auto said = [](int batch) {
    const train_test::Messages messages;
    const pvm::TrainerOptions options{.batch = batch, .backend = pvm::BackendChoice::cuda};
    const pvm::Trainer<pvm::bf16, pvm::dynamic> trainer(train_test::tiny_spec(), options);
    return messages.count("as long for " + std::to_string(batch)) == 1 &&
           messages.count("16 or more") == 1;
  };
  CHECK(said(2));
  CHECK(said(15));
  CHECK_FALSE(said(16));
}

TEST_CASE("A network that learns by Adam trains on the batched CUDA engine") {
  trains_as_on_the_host<pvm::Trainer<pvm::fp32, 2, ByAdam>>(2, "CUDA batch engine");
}

TEST_CASE("A network's type is a constant in the kernels of one sequence, with the same bits") {
  trains_as_by_its_spec<Lasting<5>>("kernels for 25 hidden values");
  trains_as_by_its_spec<Lasting<4>>("kernels for 16 hidden values");
  const Different device({.multiprocessors = 16});
  trains_as_by_its_spec<OfSide<4>>("whole units");  // those of specs: no size is a constant
}

TEST_CASE("An activation of the program's own trains one sequence on the GPU") {
  using Own = Lasting<5, pvm::Activation<OwnPolynomial>>;
  trains_as_on_the_host<pvm::Trainer<pvm::fp32, 1, Own>>(1, "CUDA engine");
  const pvm::TrainerOptions options{.seed = 5, .backend = pvm::BackendChoice::cuda};
  CHECK(train(pvm::Trainer<pvm::fp32, 1, Own>(options), 36) ==
        train(pvm::Trainer<pvm::fp32, 1, Lasting<5>>(options), 36));
}

TEST_CASE("An activation of the program's own has an engine of whole units where others have") {
  using pvm::bf16, pvm::fp16, pvm::fp32;
  using pvm::detail::home_of, pvm::detail::units::Home;
  const auto published = [](auto change) {
    auto values = pvm::Network<>::values;
    change(values);
    return values;
  };
  const auto small = published([](auto&) {});
  CHECK(home_of<bf16, 49>(small) == Home::resident);
  CHECK(home_of<fp32, 36>(small) == Home::resident);
  CHECK(home_of<bf16, 64>(small) == Home::streamed);
  const auto wide = published([](auto& v) { v.layer_shapes.side[0] = 20; });
  CHECK(home_of<bf16, 49>(wide) == Home::streamed);
  CHECK(home_of<bf16, 36>(wide) == Home::resident);
  const auto fed = published([](auto& v) { v.feed_context_in_complex_layer = true; });
  CHECK(home_of<bf16, 49>(fed) == Home::streamed_context);
  CHECK_FALSE(home_of<fp32, 49>(fed));
  CHECK_FALSE(home_of<bf16, 36>(fed));
  const auto lasting = published([](auto& v) { v.momentum = 0.5; });
  CHECK(home_of<bf16, 49>(lasting) == Home::resident);
  CHECK(home_of<fp32, 49>(lasting) == Home::resident_long_lists);
  CHECK_FALSE(home_of<fp32, 36>(lasting));
}

TEST_CASE("A rule and an activation of the program's own train a batch on the GPU") {
  const pvm::TrainerOptions options{
      .batch = 2, .seed = 5, .backend = pvm::BackendChoice::automatic};
  using Batch = pvm::Trainer<pvm::fp32, 2, ByRule<OwnAdam>>;
  Batch own(options);
  CHECK(train_test::contains(own.description(), "CUDA batch engine"));
  using Library = pvm::Trainer<pvm::fp32, 2, ByRule<pvm::Adam>>;
  CHECK(train(own, 36) == train(Library(options), 36));

  using Fades = OfSide<3, pvm::LearningRule<Fading>, pvm::LearningRate<0.1>>;
  trains_as_on_the_host<pvm::Trainer<pvm::fp32, 2, Fades>>(2, "CUDA batch engine");
}

TEST_CASE("A rule that is not marked for GPUs trains on the host, with a warning that says how") {
  const train_test::Messages messages;
  pvm::Trainer<pvm::fp32, 2, ByRule<HostAdam>> trainer({.batch = 2});
  CHECK(train_test::contains(trainer.description(), "host engine"));
  CHECK(messages.count("no learning rule 'host adam'") == 1);
  CHECK(messages.count("bool on_gpu = true") == 1);
}

TEST_CASE("A CUDA engine refuses a spec that it was not compiled for") {
  CHECK(train_test::contains(
      train_test::error_of([] { pvm::CudaGeneralEngine<pvm::fp32, OfSide<5>>(OfSide<4>::spec()); }),
      "has 16 hidden values and this engine was compiled for 25"));
  CHECK(train_test::contains(train_test::error_of([] {
                               pvm::CudaGeneralEngine<>(
                                   OfSide<5, pvm::Activation<OwnPolynomial>>::spec());
                             }),
                             "the spec's activation is 'own polynomial'"));
}

TEST_CASE("Modes are the same on the GPU as on the host") {
  using Trainer = pvm::Trainer<pvm::fp32, pvm::dynamic>;
  using pvm::BackendChoice;
  struct Look {
    std::vector<std::vector<float>> predictions{};
    std::vector<std::vector<std::uint8_t>> frames{};
    static std::uint64_t next(std::uint64_t step) { return step + 1; }
    void at(const pvm::Moment& moment) {
      const auto frame = moment.trainer.last_frame();
      frames.emplace_back(frame.begin(), frame.end());
      predictions.push_back(moment.trainer.prediction());
    }
  };
  struct Block {  // steps that are not cut
    static std::uint64_t next(std::uint64_t) { return pvm::never; }
    static void at(const pvm::Moment&) {}
  };
  const auto run = [](int batch, BackendChoice backend, std::vector<std::uint64_t> ends,
                      std::size_t cache, auto& callback) {
    const pvm::TrainerOptions options{.batch = batch, .backend = backend, .cache_bytes = cache};
    pvm::io::Checkpoint checkpoint;
    for (const std::uint64_t end : ends) {
      std::vector<Loop> loops;
      for (int b = 0; b < batch; ++b) loops.emplace_back(static_cast<std::uint64_t>(b));
      std::optional<Trainer> trainer;
      if (end == ends.front()) {
        trainer.emplace(train_test::tiny_spec(), options);
      } else {
        trainer.emplace(checkpoint, options);
      }
      const std::pair<std::uint64_t, const char*> script[] = {
          {0, "rate 0.02 1"}, {3, "dream 0"}, {7, "blind-spot"}, {11, "partial-dream 0"},
          {14, "frames"},     {15, "freeze"}, {17, "learn"},     {18, "restart 0"},
          {20, "rate 0 0"},   {22, "skip"},   {23, "rate spec"}, {24, "blind-spot 0 1 1 3 4"}};
      for (const auto& [step, text] : script) {
        if (step >= trainer->step()) trainer->command_at(step, pvm::parse_command(text));
      }
      static_cast<void>(trainer->fit(loops, pvm::Steps{end}, callback));
      checkpoint = trainer->checkpoint();
    }
    return checkpoint;
  };
  constexpr std::size_t cache = 1 << 20;
  for (const int batch : {1, 2}) {
    INFO("batch " << batch);
    Look look;
    Block block;
    const auto gpu = run(batch, BackendChoice::cuda, {28}, cache, block);
    const auto host = run(batch, BackendChoice::host, {28}, cache, block);
    CHECK(largest_difference(gpu.state.weights, host.state.weights) < 1e-4);  // dreams are rounded
    CHECK(gpu.modes == host.modes);
    CHECK(gpu.streams == host.streams);
    const auto resumed = run(batch, BackendChoice::cuda, {5, 12, 16, 22, 28}, 0, block);
    CHECK(resumed.state.weights == gpu.state.weights);
    CHECK(resumed.state.frames == gpu.state.frames);
    CHECK(run(batch, BackendChoice::cuda, {28}, cache, look).state.weights == gpu.state.weights);
    for (const std::size_t t : {3, 4, 5, 6}) {  // dreams
      const std::size_t size = look.frames[t].size();
      for (std::size_t i = 0; i < size; ++i) {
        const auto pixel = static_cast<int>(255.0F * look.predictions[t - 2][i] + 0.5F);
        REQUIRE(static_cast<int>(look.frames[t][i]) == pixel);
      }
    }
  }
}

TEST_CASE("A report tells for how long the GPU computed") {
  const auto check = [](auto&& trainer) {
    for (const std::uint64_t steps : {30, 60}) {  // the report is of the last `fit` only
      static_cast<void>(train(trainer, steps));
      const pvm::Report& report = trainer.report();
      REQUIRE(report.gpu.has_value());
      CHECK(*report.gpu > 0.2 * report.engine);  // the emulated device is slow
      CHECK(*report.gpu <= report.engine);
      CHECK(report.engine_share() == Approx(*report.gpu / report.seconds));
      CHECK(train_test::contains(pvm::report_text(report), "the GPU computed"));
    }
  };
  check(pvm::Trainer<>(train_test::tiny_spec(), {.backend = pvm::BackendChoice::cuda}));
  check(pvm::Trainer<pvm::fp32, pvm::dynamic>(train_test::tiny_spec(),
                                              {.batch = 2, .backend = pvm::BackendChoice::cuda}));
  pvm::Trainer<> host(train_test::tiny_spec(), {.backend = pvm::BackendChoice::host});
  static_cast<void>(train(host, 30));
  CHECK_FALSE(host.report().gpu.has_value());
  CHECK(train_test::contains(pvm::report_text(host.report()), "the engine computed"));
}

TEST_CASE("Compute time is added up over more pieces than there are events") {
  pvm::detail::ComputeTime time;
  pvm::detail::Stream stream;
  const auto started = std::chrono::steady_clock::now();
  for (int i = 0; i < 40; ++i) {
    time.begin(stream.get());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    time.end(stream.get());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - started;
  CHECK(time.seconds() >= 0.04);
  CHECK(time.seconds() <= passed.count() - 0.04);
  CHECK(time.seconds() == time.seconds());
}

TEST_CASE("One sequence keeps its weights on the chip where they fit") {
  using Net = pvm::Network<pvm::Input<12, 3, 3>, pvm::Layers<4, 2, 1>, pvm::Hidden<7>>;
  const auto spec = Net::spec();
  const Different device({.multiprocessors = 16});
  const pvm::TrainerOptions options{.seed = 5};
  const auto on_chip = [](auto&& trainer) {
    return train_test::contains(trainer.description(), "% of W1 on the chip");
  };
  CHECK(on_chip(pvm::Trainer<pvm::bf16>(spec, options)));
  CHECK(on_chip(pvm::Trainer<pvm::fp32>(spec, options)));

  // A batch chosen at run time gives the same bits.
  pvm::Trainer<pvm::fp32, pvm::dynamic> chosen(spec, options);
  CHECK(on_chip(chosen));
  CHECK(train(pvm::Trainer<pvm::fp32>(spec, options), 12) == train(std::move(chosen), 12));

  // So does a network that is a type, on CudaResidentEngine and on other engines.
  CHECK(train(pvm::Trainer<pvm::fp32, 1, Net>(options), 12) ==
        train(pvm::Trainer<pvm::fp32>(spec, options), 12));
  using Smaller = pvm::Network<pvm::Input<12, 3, 3>, pvm::Layers<4, 2, 1>, pvm::Hidden<6>>;
  CHECK(train(pvm::Trainer<pvm::bf16, 1, Smaller>(options), 12) ==
        train(pvm::Trainer<pvm::bf16>(Smaller::spec(), options), 12));

  // In fp32 also with a momentum that lives longer; in 16 bits outputs that read the context
  // stream.
  auto lasting = spec;
  lasting.momentum = 0.5;
  CHECK(on_chip(pvm::Trainer<pvm::fp32>(lasting, options)));
  lasting.momentum = 0.6;
  CHECK_FALSE(on_chip(pvm::Trainer<pvm::fp32>(lasting, options)));
  auto fed = spec;
  fed.feed_context_in_complex_layer = true;
  pvm::Trainer<pvm::bf16> context(fed, options);
  CHECK(train_test::contains(context.description(), "outputs that read the context"));
  CHECK_FALSE(on_chip(pvm::Trainer<pvm::fp32>(fed, options)));

  CHECK_FALSE(on_chip(pvm::Trainer<pvm::fp16, 2, Net>(options)));
  CHECK_FALSE(on_chip(pvm::Trainer<pvm::tf32>(spec, options)));
  CHECK(on_chip(pvm::Trainer<pvm::fp32>(train_test::tiny_spec(), options)));  // padded to 36
  using Own = OfSide<5, pvm::Activation<OwnPolynomial>>;  // in a kernel of its own
  pvm::Trainer<pvm::fp32, 1, Own> own(options);
  CHECK(on_chip(own));
  CHECK(train(own, 12) == train(pvm::Trainer<pvm::fp32>(OfSide<5>::spec(), options), 12));
  CHECK(on_chip(pvm::Trainer<pvm::bf16>(OfSide<5>::spec(), options)));
  CHECK_FALSE(on_chip(pvm::Trainer<pvm::bf16>(OfSide<9>::spec(), options)));
  const Different smaller({.multiprocessors = 2});
  const auto streams = [](auto&& trainer) {
    return train_test::contains(trainer.description(), "all weights streamed");
  };
  CHECK(streams(pvm::Trainer<pvm::bf16>(spec, options)));
  CHECK(streams(pvm::Trainer<pvm::fp32>(spec, options)));
  // Ten units are too many for one SM, but their weights fit into the L2 cache.
  const Different one({.multiprocessors = 1});
  using Few = pvm::Network<pvm::Input<9, 3, 3>, pvm::Layers<3, 1>, pvm::Hidden<7>>;
  CHECK(streams(pvm::Trainer<pvm::bf16>(Few::spec(), options)));
  pvm::Trainer<pvm::fp32> cached(Few::spec(), options);
  CHECK_FALSE(streams(cached));
  CHECK_FALSE(on_chip(cached));
}

TEST_CASE("Several GPUs share a network, or a sentence refuses") {
  using Net = pvm::Network<pvm::Input<12, 3, 3>, pvm::Layers<4, 2, 1>, pvm::Hidden<7>>;
  const auto spec = Net::spec();
  const auto one_gpu = [&] {
    const Different device({.multiprocessors = 16});
    return train(pvm::Trainer<pvm::bf16>(spec, {.seed = 5}), 20);
  }();
  const Different device({.multiprocessors = 8, .devices = 2, .overlap = true});
  const pvm::TrainerOptions both{.seed = 5, .devices = {0, 1}};
  pvm::Trainer<pvm::bf16> shared(spec, both);
  CHECK(shared.description().find("2 shards on GPU 0, 1, each: CUDA engine") == 0);
  CHECK(train(shared, 20) == one_gpu);
  pvm::Trainer<pvm::fp32> parts(spec, {.seed = 5, .shards = 4});
  CHECK(parts.description().find("4 shards on GPU 0, 0, 0, 0") == 0);
  {
    const pvm::Trainer<pvm::bf16> second(spec, {.seed = 5, .devices = {1}});
    int current = 0;
    CHECK(cudaGetDevice(&current) == cudaSuccess);
    CHECK(current == 1);
    CHECK(cudaSetDevice(0) == cudaSuccess);
  }
  const auto refused = [&]<class Trainer>(const pvm::Spec& of, pvm::TrainerOptions options) {
    return train_test::error_of([&] { Trainer(of, options); });
  };
  const char* const cannot = "cannot be divided among GPUs";
  CHECK(train_test::contains(refused.operator()<pvm::Trainer<pvm::tf32>>(spec, both), cannot));
  CHECK(train_test::contains(
      refused.operator()<pvm::Trainer<pvm::fp32>>(train_test::tiny_spec(), both), cannot));
  auto host = both;
  host.backend = pvm::BackendChoice::host;
  CHECK(train_test::contains(refused.operator()<pvm::Trainer<pvm::fp32>>(spec, host),
                             "devices and shards are for GPUs"));
  const Different none({.found = cudaErrorNoDevice});
  CHECK(train_test::contains(refused.operator()<pvm::Trainer<pvm::fp32>>(spec, both),
                             "no GPU can be used"));
}

/// The engines for one sequence of this program, by precision.
template <class Precision>
const pvm::detail::GpuEngines* gpus_for_one_sequence() {
  static constexpr pvm::detail::GpuEngines all{
      pvm::cuda_available, pvm::detail::make_cuda_engine<Precision, 1, pvm::RuntimeNetwork>,
      pvm::detail::list_gpus, pvm::detail::choose_gpu, nullptr};
  return &all;
}
const pvm::detail::GpuEngines* gpus_of_ranks(std::string_view precision) {
  if (precision == pvm::bf16::name) return gpus_for_one_sequence<pvm::bf16>();
  if (precision == pvm::tf32::name) return gpus_for_one_sequence<pvm::tf32>();
  return gpus_for_one_sequence<pvm::fp32>();
}

TEST_CASE("Several GPUs share the network of a batch") {
  using Batches = pvm::Trainer<pvm::fp32, pvm::dynamic>;
  const auto spec = train_test::tiny_spec();
  const pvm::TrainerOptions options{.batch = 3, .seed = 5};
  const auto one_gpu = train(Batches(spec, options), 12);
  const Different device({.devices = 2, .overlap = true});
  auto both = options;
  both.devices = {0, 1};
  Batches shared(spec, both);
  CHECK(shared.description().find("2 shards on GPU 0, 1, each: CUDA batch engine") == 0);
  CHECK(largest_difference(train(shared, 7), one_gpu) > 2e-6);
  Batches again(shared.checkpoint(), options);  // on one GPU
  CHECK(largest_difference(train(again, 12), one_gpu) < 2e-6);
  both.devices = {};
  both.shards = 2;
  CHECK(Batches(spec, both).description().find("2 shards on GPU 0, 0") == 0);
}

TEST_CASE("Ranks with a GPU each share a Trainer's network, or a sentence refuses") {
  using Net = pvm::Network<pvm::Input<12, 3, 3>, pvm::Layers<4, 2, 1>, pvm::Hidden<7>>;
  const auto spec = Net::spec();
  const auto one_gpu = [&] {
    const Different device({.multiprocessors = 16});
    return train(pvm::Trainer<pvm::bf16>(spec, {.seed = 5}), 20);
  }();
  const Different device({.multiprocessors = 8, .devices = 2, .overlap = true});
  pvm_test::with_ranks(
      2,
      [&](pvm_test::Group& group) {
        pvm::TrainerOptions options{.seed = 5, .threads = 1};
        options.ranks = &group;
        {  // the ranks have one engine at a time
          pvm::Trainer<pvm::bf16> shared(spec, options);
          CHECK(shared.description().find("2 ranks, each a shard of 2 shards, here on GPU 0") == 0);
          CHECK(train(shared, 20) == one_gpu);
        }
        options.device = 1;
        CHECK(pvm::Trainer<pvm::bf16>(spec, options).description().find("here on GPU 1") !=
              std::string::npos);
        const auto refused = [&]<class Trainer>(const pvm::Spec& of) {
          return train_test::error_of([&] { Trainer(of, options); });
        };
        const char* const cannot = "cannot be divided among GPUs";
        const auto tiny = train_test::tiny_spec();  // units of 16 hidden values
        CHECK(train_test::contains(refused.operator()<pvm::Trainer<pvm::tf32>>(spec), cannot));
        CHECK(train_test::contains(refused.operator()<pvm::Trainer<pvm::fp32>>(tiny), cannot));
        options.batch = 3;
        CHECK(train_test::contains(refused.operator()<pvm::Trainer<pvm::fp32, pvm::dynamic>>(spec),
                                   "a batch cannot be divided among GPUs of several ranks"));
        options.batch = 1;
        options.device = -1;
        pvm::Trainer<pvm::fp32> host(tiny, options);
        CHECK(train_test::contains(host.description(), "2 ranks, each a host"));
        options.backend = pvm::BackendChoice::host;
        options.devices = {0, 1};
        CHECK(train_test::contains(refused.operator()<pvm::Trainer<pvm::fp32>>(spec),
                                   "the run is to be on the host"));
      },
      pvm::dist::GpusOf(gpus_of_ranks));
}

TEST_CASE("Without NCCL, GPUs that cannot reach each other are told what would help") {
  pvm::dist::OneProcess one;
  pvm::dist::RanksBy<pvm::dist::OneProcess> ranks(one);
  const auto said = train_test::error_of(
      [&] { static_cast<void>(pvm::detail::units::make_carrier(ranks, {}, "They are far away")); });
  CHECK(said ==
        "They are far away; or build this program with NCCL (PVM_NCCL=ON), which then "
        "carries what GPUs exchange");
}

TEST_CASE("Which engine a GPU takes for one sequence depends on units, weights and momentum") {
  const Different device({.multiprocessors = 32});
  const pvm::TrainerOptions options{.seed = 5};
  const auto begins = [](auto&& trainer, const char* engine) {
    INFO(trainer.description());
    CHECK(trainer.description().find(engine) == 0);
  };
  auto spec = train_test::tiny_spec();
  begins(pvm::Trainer<pvm::fp32>(spec, options), "CUDA engine, whole units: ");  // padded to 36
  begins(pvm::Trainer<pvm::bf16>(spec, options), "CUDA engine, whole units: ");
  spec.momentum = 0.5;
  begins(pvm::Trainer<pvm::fp32>(spec, options), "CUDA engine: ");
  begins(pvm::Trainer<pvm::bf16>(spec, options), "CUDA engine, whole units: ");
  spec.momentum = 0.9;
  begins(pvm::Trainer<pvm::bf16>(spec, options), "CUDA batch engine");  // few weights
  spec.momentum = 0.95;
  begins(pvm::Trainer<pvm::fp32, pvm::dynamic>(spec, options), "CUDA engine: ");
  spec.momentum = 0.99;
  begins(pvm::Trainer<pvm::fp32, pvm::dynamic>(spec, options), "CUDA batch engine");
  spec.momentum = 0.1;
  spec.hidden_block_size = 6;
  begins(pvm::Trainer<pvm::bf16>(spec, options), "CUDA engine, whole units: ");
  for (const int side : {8, 10}) {
    spec.hidden_block_size = side;
    begins(pvm::Trainer<pvm::bf16>(spec, options), "CUDA engine, whole units: ");
    begins(pvm::Trainer<pvm::fp32>(spec, options), "CUDA engine: ");
  }
  spec.hidden_block_size = 9;  // padded to 100
  begins(pvm::Trainer<pvm::bf16>(spec, options), "CUDA engine, whole units: ");
  begins(pvm::Trainer<pvm::fp32>(spec, options), "CUDA engine: ");
  spec.hidden_block_size = 11;  // 2.9 million weights
  begins(pvm::Trainer<pvm::bf16>(spec, options), "CUDA engine: ");
}

TEST_CASE("A GPU with 99 KB of shared memory for a thread block trains everything") {
  using Net = pvm::Network<pvm::Input<12, 3, 3>, pvm::Layers<4, 2, 1>, pvm::Hidden<7>>;
  const Different device(emulated_cuda::rtx_40);
  const pvm::TrainerOptions options{.seed = 5};
  const auto runs = [&](auto&& trainer, const char* engine) {
    INFO(trainer.description());
    CHECK(train_test::contains(trainer.description(), engine));
    pvm::Trainer<pvm::fp32, pvm::dynamic> host(
        Net::spec(), {.batch = trainer.batch(), .seed = 5, .backend = pvm::BackendChoice::host});
    CHECK(largest_difference(train(trainer, 6), train(host, 6)) < 2e-5);
  };
  runs(pvm::Trainer<pvm::fp32>(Net::spec(), options), "CUDA engine");
  runs(pvm::Trainer<pvm::bf16>(Net::spec(), options), "all weights streamed");
  runs(pvm::Trainer<pvm::tf32>(Net::spec(), options), "CUDA batch engine");
  runs(pvm::Trainer<pvm::fp16, 2, Net>(options), "CUDA batch engine");
}

TEST_CASE("A rule that a GPU was not compiled for is refused in a sentence") {
  auto spec = train_test::tiny_spec();
  spec.learning_rule = "adam";
  const auto sentence =
      train_test::error_of([&] { pvm::Trainer<>(spec, {.backend = pvm::BackendChoice::cuda}); });
  CHECK(train_test::contains(sentence, "learning rule 'adam'"));
}

TEST_CASE("Where the GPU cannot be used the host is, with a warning, or a sentence refuses") {
  struct Trouble {
    emulated_cuda::Facts facts;
    const char* sentence;
  };
  const auto trouble = GENERATE(
      Trouble{{.found = cudaErrorNoDevice}, "no NVIDIA GPU is visible"},
      Trouble{{.found = cudaErrorInsufficientDriver}, "driver is missing or too old"},
      Trouble{{.kernels = cudaErrorNoKernelImageForDevice}, "has no kernels for this GPU"});
  const Different device(trouble.facts);
  const train_test::Messages messages;
  pvm::Trainer<> trainer(train_test::tiny_spec());
  CHECK(train_test::contains(trainer.description(), "host engine"));
  CHECK(messages.count(trouble.sentence) == 1);
  CHECK(train_test::contains(train_test::error_of([] {
                               pvm::Trainer<>(train_test::tiny_spec(),
                                              {.backend = pvm::BackendChoice::cuda});
                             }),
                             trouble.sentence));
}

TEST_CASE("An engine takes no more memory than it says, and says when there is too little") {
  const auto spec = train_test::tiny_spec();
  auto& memory = emulated_cuda::Memory::get();
  const std::size_t before = memory.used();
  const auto check = [&](const auto& engine) {
    CHECK(memory.used() - before <= engine.memory_needed());
    CHECK(memory.used() - before > engine.memory_needed() / 2);
  };
  check(pvm::CudaGeneralEngine<>(spec, 1));
  check(pvm::CudaBatchEngine<>(spec, 3));
  {
    const Different larger({.multiprocessors = 16});
    auto units_of_49 = spec;
    units_of_49.hidden_block_size = 7;
    check(pvm::CudaResidentEngine<pvm::bf16>(units_of_49));
    check(pvm::CudaResidentEngine<pvm::fp32>(units_of_49));
    check(pvm::CudaStreamedEngine<pvm::bf16>(units_of_49));
    check(pvm::CudaStreamedEngine<pvm::fp32>(units_of_49));
  }
  CHECK(memory.used() == before);

  const Different device({.memory = before + (std::size_t{1} << 20)});
  const auto sentence = train_test::error_of([&] { pvm::CudaGeneralEngine<>(spec, 1); });
  CHECK(train_test::contains(sentence, "MiB of device memory"));
  CHECK(train_test::contains(sentence, "1 MiB are free; use a smaller"));
  CHECK(memory.used() == before);
}

TEST_CASE("A readout on the GPU learns beside a trainer there, and goes on from its checkpoint") {
  pvm::Spec spec = train_test::tiny_spec();
  spec.delay_intermediate_learning_rate = 5;  // it begins to learn behind this step
  const auto net = pvm::make_connectome(spec);
  pvm::readout::MlpOptions options;
  options.representation = 4;
  options.first_rate = 0.3;
  const auto frames = [] { return pvm::io::Synthetic({.seed = 2, .frames = 40}); };
  const auto saved = [](pvm::readout::Readout& readout) {
    pvm::io::Extras extras;
    readout.save(extras);
    return extras;
  };
  using Trainer = pvm::Trainer<pvm::fp32, 1, pvm::RuntimeNetwork, pvm::cuda>;
  constexpr std::uint64_t steps = 60;

  pvm::readout::MlpReadout host(spec, net, options);
  Trainer beside(spec);
  beside.attach(&host);
  auto source = frames();
  beside.fit(source, pvm::Steps{steps});

  pvm::readout::CudaMlpReadout whole(spec, net, options);
  Trainer trainer(spec);
  trainer.attach(&whole);
  auto again = frames();
  trainer.fit(again, pvm::Steps{steps});
  CHECK(trainer.weights() == beside.weights());
  const auto on_gpu = saved(whole), on_host = saved(host);
  CHECK(on_gpu.texts == on_host.texts);
  for (const auto& [name, values] : on_host.floats) {
    CHECK(largest_difference(values, on_gpu.floats.at(name)) < 3e-6);
  }

  pvm::readout::CudaMlpReadout first(spec, net, options), rest(spec, net, options);
  Trainer before(spec);
  before.attach(&first);
  auto beginning = frames();
  before.fit(beginning, pvm::Steps{23});
  const pvm::io::Checkpoint checkpoint = before.checkpoint();
  Trainer after(spec);
  after.attach(&rest);
  after.restore(checkpoint);
  auto end = frames();
  after.fit(end, pvm::Steps{steps});
  CHECK(saved(rest) == on_gpu);
  CHECK(after.weights() == trainer.weights());

  // In a loop of one's own; an engine that has no place for it shows it every frame.
  pvm::readout::CudaMlpReadout own(spec, net, options), alone(spec, net, options);
  Trainer loop(spec);
  loop.attach(&own);
  pvm::Trainer<pvm::fp32, 1, pvm::RuntimeNetwork, pvm::host> on_cpu(spec);
  on_cpu.attach(&alone);
  auto one_by_one = frames();
  std::vector<std::uint8_t> frame(loop.frame_shape().size());
  for (int i = 0; i < 20; ++i) {
    const auto info = one_by_one.next(loop.frame_shape(), frame);
    if (info.starts_sequence) loop.start_sequence();
    loop.step(frame, info.label);
    on_cpu.step(frame, info.label);
  }
  const auto in_loop = saved(own), beside_host = saved(alone);
  CHECK(in_loop.texts == beside_host.texts);
  for (const auto& [name, values] : in_loop.floats) {
    CHECK(largest_difference(values, beside_host.floats.at(name)) < 1e-5);
  }
  loop.attach(nullptr);  // from then on it learns nothing
  loop.step(frame);
  CHECK(saved(own) == in_loop);
}

namespace {

/// Compares what the engine for `spec` plans to take with what it takes.
template <class Precision>
void takes_what_it_plans(const pvm::Spec& spec, int batch) {
  using namespace pvm::detail;
  const auto plan =
      plan_cuda_engine<Precision, pvm::dynamic, pvm::RuntimeNetwork>(spec, batch, {}, nullptr);
  const auto planned = static_cast<double>(pvm::sum_of(plan.parts));
  const std::size_t before = emulated_cuda::Memory::get().used();
  CHECK(plan.free == emulated_cuda::facts.memory - before);
  auto engine = make_cuda_engine<Precision, pvm::dynamic, pvm::RuntimeNetwork>(
      spec, batch, {.restored_next = true});
  const auto taken = static_cast<double>(emulated_cuda::Memory::get().used() - before);
  INFO(spec.name << ", " << Precision::name << ", batch " << batch << ": " << plan.engine
                 << ": planned " << planned << ", taken " << taken);
  CHECK(std::abs(taken / planned - 1) < 0.05);
  CHECK(engine.device_memory() == pvm::sum_of(plan.parts));
  CHECK(engine.description().substr(0, 20) == plan.engine.substr(0, 20));
  const std::size_t kept = engine.reserve_frames(std::size_t{1} << 20, 10);
  CHECK(engine.device_memory() == pvm::sum_of(plan.parts) + kept * spec.frame_size());
}

}  // namespace

TEST_CASE("Engines take the device memory that they plan, for all specs of the model zoo") {
  const Different as_large_as_an_h200({.multiprocessors = 132, .memory = std::size_t{140} << 30});
  std::set<std::size_t> seen;  // several specs differ in their rates only
  for (const auto& file : std::filesystem::directory_iterator(PVM_MODEL_ZOO)) {
    const auto spec = pvm::load_spec(file.path());
    const std::size_t weights = pvm::make_connectome(spec).weights;
    if (!seen.insert(weights).second || weights > 20'000'000) continue;
    takes_what_it_plans<pvm::fp32>(spec, 1);
    takes_what_it_plans<pvm::bf16>(spec, 1);
    takes_what_it_plans<pvm::bf16>(spec, 64);
  }
  CHECK(seen.size() > 3);
}

TEST_CASE("A GPU that is not there is planned for, and one that is can be chosen") {
  const Different without({.found = cudaErrorNoDevice});
  pvm::Spec spec = train_test::tiny_spec();
  const auto plan = pvm::plan_on_gpu<pvm::bf16>(spec, 16, &pvm::gpu_model("H100 PCIe"));
  CHECK(train_test::contains(plan.engine, "H100 PCIe"));
  CHECK(train_test::contains(plan.engine, "weights swept"));
  CHECK(plan.parts.size() > 5);
  CHECK(plan.free == std::size_t{80} << 30);
  const auto parts = pvm::plan_on_gpu<pvm::bf16>(spec, 16, &pvm::gpu_model("H200"), {.shards = 2});
  CHECK(train_test::contains(parts.engine, "2 shards on GPU 0, 0, each: CUDA batch engine: H200"));
  const auto each = pvm::plan_on_gpu<pvm::bf16>(spec, 16, &pvm::gpu_model("H200"),
                                                {.devices = {0, 1}, .shards = 2});
  CHECK(2 * pvm::sum_of(each.parts) == pvm::sum_of(parts.parts));
  CHECK(train_test::contains(train_test::error_of([] { pvm::use_gpu(0); }), "no NVIDIA GPU"));
  const Different with({});
  REQUIRE(pvm::gpus().size() == 1);
  CHECK(pvm::gpus().front().name == "emulated");
  pvm::use_gpu(0);
  CHECK(train_test::contains(train_test::error_of([] { pvm::use_gpu(1); }),
                             "there is no GPU 1; there is 0: emulated"));
  CHECK(train_test::contains(train_test::error_of([&] { pvm::Trainer<>(spec, {.device = 7}); }),
                             "there is no GPU 7"));
  CHECK(pvm::Trainer<>(spec, {.device = 0}).device_memory() > 0);
}
