// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Measures frozen steps on a GPU by themselves, in microseconds a step: with the copies of frames
/// and results, and without them, the frames on the device (`repeat`).
///     bench_cuda_infer [SPEC.json [ROWS ...]]
///
/// Prints a row for each precision and number of streams: the kernels up to the hidden values,
/// those and the predictions, the frames a second of both, the whole step with hidden values, and
/// the whole step with predictions.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <pvm/core/random.hpp>
#include <pvm/infer/gpu/forward.hpp>
#include <pvm/model/initial_weights.hpp>
#include <pvm/model/json.hpp>

namespace {

using namespace pvm::infer;
using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

template <class Format>
void measure(const pvm::Spec& spec, const gpu::ReadRow& read_row, pvm::Team& team,
             std::size_t count) {
  gpu::GpuForward<Format> forward(spec, read_row, team, {count});
  const auto net = pvm::make_connectome(spec);
  std::vector<StreamPast> pasts(count);
  std::vector<std::uint8_t> frame(spec.frame_size());
  for (std::size_t i = 0; i < frame.size(); ++i) {
    frame[i] = static_cast<std::uint8_t>(256 * pvm::uniform(2, i));
  }
  std::vector<float> hidden(net.units.size() * static_cast<std::size_t>(net.hidden) * count);
  std::vector<float> prediction(spec.frame_size() * count);
  const auto rows = [&](bool with_prediction) {
    std::vector<Row> all;
    for (std::size_t b = 0; b < count; ++b) {
      Row row{&pasts[b], frame, {}, {}};
      if (with_prediction) {
        row.prediction = std::span(prediction).subspan(b * frame.size(), frame.size());
      } else {
        row.hidden = std::span(hidden).subspan(b * (hidden.size() / count), hidden.size() / count);
      }
      all.push_back(row);
    }
    return all;
  };
  double kernels[2], steps[2];
  for (const bool predicts : {false, true}) {
    const auto all = rows(predicts);
    for (int i = 0; i < 20; ++i) forward.step(all);
    constexpr int times = 200;
    auto begin = Clock::now();
    for (int i = 0; i < times; ++i) forward.step(all);
    steps[predicts ? 1 : 0] = microseconds_since(begin) / times;
    forward.repeat(20);
    begin = Clock::now();
    forward.repeat(times);
    kernels[predicts ? 1 : 0] = microseconds_since(begin) / times;
  }
  const auto rate = [&](double us) { return static_cast<double>(count) * 1e6 / us; };
  std::printf("| %s | %zu | %.1f | %.1f | %.0f | %.0f | %.1f | %.1f |\n", Format::name, count,
              kernels[0], kernels[1], rate(kernels[0]), rate(kernels[1]), steps[0], steps[1]);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) try {
  const pvm::Spec spec = pvm::load_spec(argc > 1 ? argv[1] : "model_zoo/small.json");
  std::vector<std::size_t> counts;
  for (int i = 2; i < argc; ++i) counts.push_back(std::strtoul(argv[i], nullptr, 10));
  if (counts.empty()) counts = {1, 16, 32, 48, 64, 128, 256, 512};
  const auto weights = pvm::initial_weights(pvm::make_connectome(spec).weights, 1);
  const gpu::ReadRow exact = gpu::rows_of(std::span<const float>(weights));
  // Weights are at most 0.015: whole numbers, and floats that fp8 has.
  const gpu::ReadRow whole = [&](const FrozenMatrix& matrix, std::size_t r, float* columns,
                                 float& scale, float& offset) {
    exact(matrix, r, columns, scale, offset);
    scale = 0.015F / 127;
    for (std::size_t c = 0; c < matrix.columns; ++c)
      columns[c] = std::nearbyint(columns[c] / scale);
  };
  pvm::Team team(static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  std::printf(
      "| weights | streams | us, hidden | and predictions | frames/s | and predictions "
      "| whole step, hidden | predictions |\n|---|---|---|---|---|---|---|---|\n");
  for (const std::size_t count : counts) {
    measure<gpu::SixteenBits<pvm::bf16>>(spec, exact, team, count);
    measure<gpu::SixteenBits<pvm::fp16>>(spec, exact, team, count);
    measure<gpu::Int8>(spec, whole, team, count);
    measure<gpu::Fp8>(spec, whole, team, count);
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_cuda_infer: %s\n", error.what());
  return 1;
}
