// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The names of a spec's keys in JSON.

#include <array>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::detail {

/// The keys of a spec that have an effect.
inline constexpr std::array effective_keys = {"layer_shapes",
                                              "input_block_size",
                                              "input_channels",
                                              "hidden_block_size",
                                              "fan_in_square_size",
                                              "fan_in_radius",
                                              "lateral_radius",
                                              "context_exclude_self",
                                              "send_context_two_layers_back",
                                              "last_layer_context_to_all",
                                              "feed_context_in_complex_layer",
                                              "polynomial",
                                              "true_derivative",
                                              "opt_abs_diff",
                                              "own_activation",
                                              "learning_rule",
                                              "initial_learning_rate",
                                              "momentum",
                                              "delay_each_layer_learning",
                                              "delay_final_learning_rate",
                                              "final_learning_rate",
                                              "delay_intermediate_learning_rate",
                                              "intermediate_learning_rate",
                                              "steps"};

/// Keys that occur in the published specs but have no effect in the GPU implementations. They are
/// ignored without a warning.
inline constexpr std::array ignored_keys = {"autoencoder",
                                            "backpropagate_readout_error",
                                            "bias_free",
                                            "bias_free_readout",
                                            "dataset",
                                            "disable_feedback",
                                            "disable_lateral",
                                            "enable_feedback_at",
                                            "enable_lateral_at",
                                            "enable_readout",
                                            "ex_module",
                                            "model_type",
                                            "new_name",
                                            "normalize_output",
                                            "only_one_channel",
                                            "predict_two_steps",
                                            "readout_block_size",
                                            "readout_depth",
                                            "reverse",
                                            "save_source_files",
                                            "stereo",
                                            "supervised",
                                            "supervised_rate",
                                            "tau",
                                            "unit_type",
                                            "use_derivative",
                                            "use_error",
                                            "use_global_backprop",
                                            "use_integral",
                                            "use_t_minus_2_block",
                                            "version_major",
                                            "version_minor",
                                            "4_layer_readout",
                                            "readout_multiplier",
                                            "description"};

}  // namespace pvm::inline v0::detail
