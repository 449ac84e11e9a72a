// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: a metric is a type with static constexpr const char* name

#include <pvm/train/metrics.hpp>

struct Nameless {
  double value(const pvm::Moment&) { return 1; }
};

pvm::Metrics metrics{"run.jsonl", 1000, Nameless{}};
