// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

#include "pvm_tracking.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#if defined(__CUDACC__)
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/readout/gpu/tracking.hpp>
#endif

namespace readout_commands {

#if defined(__CUDACC__)

struct ManyFrames::OnGpu {
  OnGpu(pvm::Tracker& tracker, Use use_) : use(std::move(use_)), tracking(tracker) {}

  Use use;
  pvm::CudaTracking tracking;
  std::vector<std::uint8_t> frames;
  std::vector<pvm::io::FrameInfo> infos;
};

ManyFrames::ManyFrames(pvm::Tracker& tracker, pvm::BackendChoice backend, Use use) {
  std::string why;
  if (backend == pvm::BackendChoice::host || !pvm::cuda_available(&why)) return;
  try {
    gpu_ = std::make_unique<OnGpu>(tracker, std::move(use));
  } catch (const pvm::Error& error) {  // a frame too large, or a GPU without memory
    if (backend == pvm::BackendChoice::cuda) throw;
    pvm::log(pvm::Severity::warning, std::string("the CPU is used: ") + error.what());
  }
}

bool ManyFrames::take(const std::vector<std::uint8_t>& frame, const pvm::io::FrameInfo& info) {
  if (!gpu_) return false;
  gpu_->frames.insert(gpu_->frames.end(), frame.begin(), frame.end());
  gpu_->infos.push_back(info);
  if (gpu_->infos.size() >= pvm::CudaTracking::frames()) flush();
  return true;
}

void ManyFrames::flush() {
  if (!gpu_ || gpu_->infos.empty()) return;
  const auto found = gpu_->tracking.track(gpu_->frames);
  for (std::size_t i = 0; i < found.size(); ++i) gpu_->use(found[i], gpu_->infos[i]);
  gpu_->frames.clear();
  gpu_->infos.clear();
}

#else

struct ManyFrames::OnGpu {};
ManyFrames::ManyFrames(pvm::Tracker& /*tracker*/, pvm::BackendChoice /*backend*/, Use /*use*/) {}
bool ManyFrames::take(const std::vector<std::uint8_t>& /*frame*/,
                      const pvm::io::FrameInfo& /*info*/) {
  return false;
}
void ManyFrames::flush() {}

#endif

ManyFrames::~ManyFrames() = default;

}  // namespace readout_commands
