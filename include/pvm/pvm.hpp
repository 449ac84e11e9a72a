// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Includes the whole library except for the headers that need OpenCV or libzip: for frame sources
/// and previews include pvm/io/<what>.hpp as well.

#include <pvm/core/config.hpp>
#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/random.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/host/engine.hpp>
#include <pvm/infer/predictor.hpp>
#include <pvm/io/any_source.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/source.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/initial_weights.hpp>
#include <pvm/model/json.hpp>
#include <pvm/model/network.hpp>
#include <pvm/model/schedule.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/readout/ridge.hpp>
#include <pvm/readout/tracker.hpp>
#include <pvm/train/callback.hpp>
#include <pvm/train/command.hpp>
#include <pvm/train/checkpoints.hpp>
#include <pvm/train/divergence.hpp>
#include <pvm/train/last_pass.hpp>
#include <pvm/train/metric.hpp>
#include <pvm/train/metrics.hpp>
#include <pvm/train/modes.hpp>
#include <pvm/train/progress.hpp>
#include <pvm/train/record.hpp>
#include <pvm/train/report.hpp>
#include <pvm/train/script.hpp>
#include <pvm/train/tensorboard.hpp>
#include <pvm/train/time_limit.hpp>
#include <pvm/train/trace_file.hpp>
#include <pvm/train/trainer.hpp>
#include <pvm/unit/activation.hpp>
#include <pvm/unit/deferred.hpp>
#include <pvm/unit/learning_rule.hpp>
