// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The readout by ridge regression: it learns from a stream of labelled frames, in one pass, by
/// accumulating Gram matrices, and is solved when its heatmap is asked for.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/host/simd.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/source.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/readout/gram.hpp>
#include <pvm/readout/inputs.hpp>
#include <pvm/readout/readout.hpp>
#include <pvm/readout/solve.hpp>
#include <pvm/readout/target.hpp>

namespace pvm::inline v0::readout {

/// Which ridge readout.
struct RidgeOptions {
  InputKinds inputs{.hidden = true, .pixels = true};
  /// One set of weights for all positions, instead of one for each. Not with hidden values, because
  /// units share no weights: the same value means another thing at another position; colours are
  /// for shared weights only.
  bool shared = false;
  /// The penalty on squared weights, as a share of the inputs' mean variance.
  double penalty = 0.03;
  bool operator==(const RidgeOptions&) const = default;
};

/// A linear readout of one object. A heatmap has one value for each position: how much of its patch
/// the object covers, 0 to 1, roughly.
///
/// A shared readout learns from a quarter of the positions of a frame, in turn, since neighbouring
/// patches tell much the same: four frames see all of them.
class RidgeReadout : public Readout {
 public:
  /// Throws Error (Fault::usage) if the options make no sense.
  RidgeReadout(const Spec& spec, const Connectome& net, const RidgeOptions& options = {})
      : options_(options),
        inputs_(spec, net, options.inputs),
        hidden_values_(net.units.size() * static_cast<std::size_t>(net.hidden)),
        unit_count_(net.units.size()) {
    const InputKinds& kinds = options.inputs;
    if (!kinds.hidden && !kinds.pixels && !kinds.colours) {
      throw Error(Fault::usage, "a readout needs inputs: hidden values, pixels or colours");
    }
    if (options.shared && kinds.hidden) {
      throw Error(Fault::usage,
                  "a readout shared by all positions cannot read hidden values, "
                  "which mean something else at each; give it pixels or colours");
    }
    if (!options.shared && kinds.colours) {
      throw Error(Fault::usage,
                  "a readout with weights for each position cannot read colours, of which it "
                  "would need a table for each; let it share its weights, or read pixels");
    }
    if (!(options.penalty > 0 && options.penalty < 1e9)) {
      throw Error(Fault::usage, "a readout's penalty must be a number above 0 and below 1e9");
    }
    const std::size_t fits = options.shared ? 1 : inputs_.positions();
    for (std::size_t k = 0; k < fits; ++k) grams_.emplace_back(inputs_.size(k) + 2);
    fits_.resize(fits);
    target_.resize(inputs_.positions());
  }

  [[nodiscard]] const RidgeOptions& options() const noexcept { return options_; }
  [[nodiscard]] const Inputs& inputs() const noexcept { return inputs_; }
  /// Positions per side of the heatmap.
  [[nodiscard]] int heat_side() const noexcept override { return cells(); }
  [[nodiscard]] bool reads_hidden() const noexcept override { return options_.inputs.hidden; }
  [[nodiscard]] int cells() const noexcept { return inputs_.cells(); }
  /// The number of labelled frames that it has learned from.
  [[nodiscard]] std::uint64_t frames() const noexcept { return frames_; }
  /// The number of weights, biases included.
  [[nodiscard]] std::size_t weights() const {
    std::size_t count = 0;
    for (const Gram& gram : grams_) count += gram.columns() - 1;
    return count;
  }

  /// Learns from a frame: `hidden` are the network's hidden values after this frame,
  /// [units][hidden] (may be empty if none are read), `frame` its pixels. An unlabelled frame
  /// teaches nothing. Throws Error (Fault::usage) for a label or for sizes that are not this
  /// network's.
  void observe(std::span<const float> hidden, std::span<const std::uint8_t> frame,
               const io::Label& label) override {
    check(hidden, frame);
    if (label.state == io::LabelState::unlabelled) return;
    check_label(label, inputs_.frame_side());
    cover_cells(label, inputs_.frame_side(), target_, cells());
    learn(hidden, frame, target_);
  }

  /// The same for a target heatmap, [cells][cells].
  void learn(std::span<const float> hidden, std::span<const std::uint8_t> frame,
             std::span<const float> target) {
    check(hidden, frame);
    refuse_frozen();
    options_.shared ? learn_shared(frame, target) : learn_each(hidden, frame, target);
    ++frames_;
    solved_ = false;
  }

  /// Writes the heatmap, [cells][cells]. Solves first if anything has been learned since.
  void heat(std::span<const float> hidden, std::span<const std::uint8_t> frame,
            std::span<float> out) override {
    check(hidden, frame);
    heat_of_frame(frame, out);
    add_hidden(hidden, out);
  }

  /// `heat` in two parts, for frames whose hidden values come later: what the frame alone says, and
  /// then what `hidden` adds to it. Their sizes must be right.
  void heat_of_frame(std::span<const std::uint8_t> frame, std::span<float> out) {
    solve();
    if (options_.shared) {
      std::fill(out.begin(), out.end(), biases_.front());
    } else {
      std::copy(biases_.begin(), biases_.end(), out.begin());
    }
    if (inputs_.kinds().pixels) simd::for_best_isa(HeatOfPixels{*this, frame, out});
    if (inputs_.kinds().colours) add_colours(frame, out);
  }
  void add_hidden(std::span<const float> hidden, std::span<float> out) const {
    if (inputs_.kinds().hidden) simd::for_best_isa(HeatOfHidden{*this, hidden, out});
  }

  /// Fits the weights to what has been learned; `heat` does it when needed.
  void solve() {
    if (std::exchange(solved_, true)) return;
    std::vector<std::size_t> columns;
    for (std::size_t k = 0; k < grams_.size(); ++k) {
      const std::size_t size = inputs_.size(k);
      columns.resize(size);
      std::iota(columns.begin(), columns.end(), 0);
      const auto fit = [&](const Gram& gram) {
        fits_[k] = fit_ridge(gram, columns, size + 1, size, options_.penalty);
      };
      if (buffered_ == 0) {
        fit(grams_[k]);
      } else {  // on a copy, so that it does not depend on when one asks where blocks of rows end
        Gram all = grams_[k];
        add_buffered(k, all);
        fit(all);
      }
    }
    arrange();
  }

  /// Releases what only learning needs, which is most of the memory. Solves first. Heatmaps stay
  /// what they were; it cannot learn or be saved any more (Fault::usage).
  void freeze() {
    solve();
    frozen_ = true;
    grams_ = {};
    fits_ = {};
    rows_ = {};
    hiddens_ = {};
    targets_ = {};
    frames_of_rows_ = {};
  }
  /// Everything that it has learned, for a readout that learns elsewhere in the same way.
  struct Sums {
    std::uint64_t frames = 0;
    std::vector<double> triangles;  ///< of all Gram matrices, one after the other
    std::vector<std::size_t> rows;  ///< that each of them has
    /// The frames that the Gram matrices lack, of a readout with weights for each position: [frame]
    /// [hidden value], [frame][position], [frame][byte].
    std::size_t buffered = 0;
    std::vector<float> hidden, targets;
    std::vector<std::uint8_t> pixels;
  };
  [[nodiscard]] Sums sums() const {
    refuse_frozen();
    Sums all{frames_, {}, {}, buffered_, hiddens_, targets_, frames_of_rows_};
    for (const Gram& gram : grams_) {
      const auto triangle = gram.triangle();
      all.triangles.insert(all.triangles.end(), triangle.begin(), triangle.end());
      all.rows.push_back(gram.rows());
    }
    return all;
  }
  void set_sums(Sums all) {
    refuse_frozen();
    clear();
    const double* sum = all.triangles.data();
    for (std::size_t k = 0; k < grams_.size(); ++k) {
      const std::size_t size = grams_[k].columns() * (grams_[k].columns() + 1) / 2;
      grams_[k].restore({sum, size}, all.rows[k]);
      sum += size;
    }
    frames_ = all.frames;
    buffered_ = all.buffered;
    hiddens_ = std::move(all.hidden);
    targets_ = std::move(all.targets);
    frames_of_rows_ = std::move(all.pixels);
  }
  /// The fits as `heat` reads them, solved: what is linear in hidden values and pixels (bytes), by
  /// position or shared, one after the other; and a table of colours with `table_width` values for
  /// each, one per radius, which is empty if no colours are read.
  struct Arranged {
    std::span<const float> linear, biases, tables;
    std::span<const std::size_t> start;  ///< of each position in `linear`
  };
  [[nodiscard]] Arranged arranged() {
    solve();
    return {linear_, biases_, tables_, start_};
  }
  static constexpr std::size_t table_width = 4;  ///< a value per radius, and one to fill a vector

  /// Forgets everything.
  void clear() {
    refuse_frozen();
    for (Gram& gram : grams_) gram.clear();
    buffered_ = 0;
    hiddens_.clear();
    frames_of_rows_.clear();
    targets_.clear();
    frames_ = 0;
    solved_ = false;
  }

  /// Adds everything to `extras`, so that learning can go on bit by bit. Solves first.
  void save(io::Extras& extras) override {
    refuse_frozen();
    solve();
    const auto flag = [](bool value) { return std::string(value ? "1" : "0"); };
    extras.texts["readout"] = "ridge";
    extras.texts["readout.hidden"] = flag(options_.inputs.hidden);
    extras.texts["readout.pixels"] = flag(options_.inputs.pixels);
    extras.texts["readout.colours"] = flag(options_.inputs.colours);
    extras.texts["readout.shared"] = flag(options_.shared);
    extras.texts["readout.penalty"] = exact_text(options_.penalty);
    extras.texts["readout.frames"] = std::to_string(frames_);
    auto& weights = extras.floats["readout/weights"];
    weights.clear();
    for (const LinearFit& fit : fits_) {
      weights.insert(weights.end(), fit.weights.begin(), fit.weights.end());
      weights.push_back(fit.bias);
    }
    auto& sums = extras.doubles["readout/sums"];
    auto& rows = extras.doubles["readout/rows"];
    sums.clear();
    rows.clear();
    for (const Gram& gram : grams_) {
      const auto triangle = gram.triangle();
      sums.insert(sums.end(), triangle.begin(), triangle.end());
      rows.push_back(static_cast<double>(gram.rows()));
    }
    extras.texts["readout.buffered"] = std::to_string(buffered_);
    auto& buffer = extras.floats["readout/buffer"];
    buffer.clear();
    if (options_.shared) {
      const std::size_t stride = Gram::stride_of(grams_.front().columns());
      buffer.assign(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(buffered_ * stride));
      return;
    }
    buffer.insert(buffer.end(), hiddens_.begin(), hiddens_.end());
    buffer.insert(buffer.end(), targets_.begin(), targets_.end());
    buffer.insert(buffer.end(), frames_of_rows_.begin(), frames_of_rows_.end());
  }

  /// The options with which the readout in `extras` was made. Throws Error (Fault::checkpoint) if
  /// there is no ridge readout.
  static RidgeOptions options_of(const io::Extras& extras) {
    if (text_of(extras, "readout") != "ridge") {
      throw Error(Fault::checkpoint, "the file's readout is " + quote(text_of(extras, "readout")) +
                                         " and not a ridge regression");
    }
    return {{number_of(extras, "readout.hidden") != 0, number_of(extras, "readout.pixels") != 0,
             number_of(extras, "readout.colours") != 0},
            number_of(extras, "readout.shared") != 0,
            number_of(extras, "readout.penalty")};
  }

  /// Continues from what `save` has added, with the same bits. Throws Error (Fault::checkpoint) if
  /// it is of another network, of other options, or damaged; then nothing has changed.
  void restore(const io::Extras& extras) override {
    if (!(options_of(extras) == options_)) {
      throw Error(Fault::checkpoint, "the file's readout has other inputs or another penalty");
    }
    const auto& weights = floats_of(extras, "readout/weights");
    const auto& sums = doubles_of(extras, "readout/sums");
    const auto& rows = doubles_of(extras, "readout/rows");
    std::size_t count = 0;
    for (const Gram& gram : grams_) count += gram.columns() * (gram.columns() + 1) / 2;
    if (weights.size() != this->weights() || sums.size() != count || rows.size() != grams_.size()) {
      throw Error(Fault::checkpoint, "the file's readout has " + std::to_string(weights.size()) +
                                         " weights and this network's has " +
                                         std::to_string(this->weights()) +
                                         ": it is another network's readout, or damaged");
    }
    const double frames = number_of(extras, "readout.frames");
    const auto buffered = static_cast<std::size_t>(number_of(extras, "readout.buffered"));
    const auto& buffer = floats_of(extras, "readout/buffer");
    if (buffered >= Gram::block_rows || buffer.size() != buffered * buffered_values()) {
      throw Error(Fault::checkpoint,
                  "the file's readout has lost rows of its buffer: it is damaged");
    }
    clear();
    restore_buffer(buffered, buffer);
    frames_ = static_cast<std::uint64_t>(frames);
    const float* weight = weights.data();
    const double* sum = sums.data();
    for (std::size_t k = 0; k < fits_.size(); ++k) {
      fits_[k].weights.assign(weight, weight + inputs_.size(k));
      weight += inputs_.size(k);
      fits_[k].bias = *weight++;
      const std::size_t size = grams_[k].columns() * (grams_[k].columns() + 1) / 2;
      grams_[k].restore({sum, size}, static_cast<std::size_t>(rows[k]));
      sum += size;
    }
    arrange();
    solved_ = true;
  }

 private:
  void check(std::span<const float> hidden, std::span<const std::uint8_t> frame) const {
    inputs_.check(hidden.size(), frame.size(), hidden_values_);
  }

  void refuse_frozen() const {
    if (frozen_) throw Error(Fault::usage, "this readout is frozen: it only makes heatmaps");
  }

  // A row of a Gram matrix: the inputs, 1, the target, and zeros up to the stride.

  void write_row(std::size_t position, std::span<const float> hidden,
                 std::span<const std::uint8_t> frame, float target, float* row) const {
    inputs_.write(position, hidden, frame, histograms_, row);
    const std::size_t size = inputs_.size(position);
    row[size] = 1;
    row[size + 1] = target;
  }

  void learn_shared(std::span<const std::uint8_t> frame, std::span<const float> target) {
    const std::size_t stride = Gram::stride_of(grams_.front().columns());
    const auto side = static_cast<std::size_t>(cells());
    const std::size_t first_row = frames_ & 1;
    const std::size_t first_column = frames_ >> 1 & 1;
    if (inputs_.kinds().colours) {
      inputs_.count_colours(frame, histograms_, scratch_,
                            {static_cast<int>(first_row), static_cast<int>(first_column), 2});
    }
    for (std::size_t row = first_row; row < side; row += 2) {
      for (std::size_t column = first_column; column < side; column += 2) {
        const std::size_t p = row * side + column;
        rows_.resize(Gram::block_rows * stride);
        write_row(p, {}, frame, target[p], rows_.data() + buffered_ * stride);
        if (++buffered_ == Gram::block_rows) flush();
      }
    }
  }

  /// Rows are gathered for one position after the other when the buffer is full, so that each Gram
  /// matrix passes through the cache once for many frames.
  void learn_each(std::span<const float> hidden, std::span<const std::uint8_t> frame,
                  std::span<const float> target) {
    const auto append = [this](auto& all, const auto& values) {
      all.resize(buffered_ * values.size());
      all.insert(all.end(), values.begin(), values.end());
    };
    if (inputs_.kinds().hidden) append(hiddens_, hidden);
    append(frames_of_rows_, frame);
    append(targets_, target);
    if (++buffered_ == Gram::block_rows) flush();
  }

  /// How many values there are in the buffer for each of its rows.
  [[nodiscard]] std::size_t buffered_values() const {
    if (options_.shared) return Gram::stride_of(grams_.front().columns());
    return (inputs_.kinds().hidden ? hidden_values_ : 0) + inputs_.positions() + frame_bytes();
  }
  [[nodiscard]] std::size_t frame_bytes() const {
    const auto side = static_cast<std::size_t>(inputs_.frame_side());
    return side * side * static_cast<std::size_t>(inputs_.channels());
  }
  void restore_buffer(std::size_t count, const std::vector<float>& buffer) {
    buffered_ = count;
    if (options_.shared) {
      rows_.assign(Gram::block_rows * buffered_values(), 0.0F);
      std::copy(buffer.begin(), buffer.end(), rows_.begin());
      return;
    }
    auto from = buffer.begin();
    const auto take = [&](auto& to, std::size_t each) {
      to.resize(count * each);
      for (auto& value : to) value = static_cast<std::remove_reference_t<decltype(value)>>(*from++);
    };
    take(hiddens_, inputs_.kinds().hidden ? hidden_values_ : 0);
    take(targets_, inputs_.positions());
    take(frames_of_rows_, frame_bytes());
  }

  /// Adds the buffered rows of Gram matrix k to `gram`.
  void add_buffered(std::size_t k, Gram& gram) {
    const std::size_t count = buffered_;
    if (options_.shared) return gram.add(rows_.data(), count);
    const auto part = [count](const auto& all, std::size_t t) {
      const std::size_t each = all.size() / count;
      return std::span(all).subspan(t * each, each);
    };
    const std::size_t stride = Gram::stride_of(gram.columns());
    rows_.assign(count * stride, 0.0F);
    for (std::size_t t = 0; t < count; ++t) {
      float* row = rows_.data() + t * stride;
      inputs_.write(k, part(hiddens_, t), part(frames_of_rows_, t), {}, row);
      row[inputs_.size(k)] = 1;
      row[inputs_.size(k) + 1] = part(targets_, t)[k];
    }
    gram.add(rows_.data(), count);
  }

  void flush() {
    for (std::size_t k = 0; k < grams_.size(); ++k) add_buffered(k, grams_[k]);
    buffered_ = 0;
    hiddens_.clear();
    frames_of_rows_.clear();
    targets_.clear();
  }

  /// Puts the fits into the order in which `heat` reads them: for every fit the hidden and pixel
  /// weights, with 1/2 times their sum taken off the bias, since inputs enter minus 1/2; and the
  /// weights of the colours as tables, a value per radius for each reduced colour.
  void arrange() {
    const std::size_t colours = inputs_.colour_size();
    linear_.clear();
    start_.assign(1, 0);
    biases_.clear();
    for (std::size_t k = 0; k < fits_.size(); ++k) {
      const LinearFit& fit = fits_[k];
      const std::size_t plain = inputs_.size(k) - colours;
      double bias = fit.bias;
      for (std::size_t i = 0; i < plain; ++i) {
        const bool of_pixel = i >= inputs_.hidden_size(k);
        bias -= 0.5 * static_cast<double>(fit.weights[i]);
        linear_.push_back(of_pixel ? fit.weights[i] / 255.0F : fit.weights[i]);
      }
      start_.push_back(linear_.size());
      biases_.push_back(static_cast<float>(bias));
    }
    if (colours > 0) arrange_tables();
  }

  void arrange_tables() {
    const ColourBins& bins = inputs_.bins();
    tables_.assign(bins.colours() * table_width, 0.0F);
    const int block = inputs_.frame_side() / cells();
    const float one = 1.0F / static_cast<float>(block * block);
    const float* weights = fits_.front().weights.data() + inputs_.pixel_size();
    float* table = tables_.data();
    for (std::size_t c = 0; c < bins.colours(); ++c, table += table_width) {
      bins.for_each_bin(c, [&](std::size_t bin, float share) {
        for (std::size_t r = 0; r < Inputs::radii.size(); ++r) {
          table[r] += one * share * weights[r * bins.size() + bin];
        }
      });
    }
  }

  /// A weighted sum of pieces of an input: `add` goes through one of them. Sums are added at the
  /// end, not once for each piece, because pieces are short; and there are three, because each
  /// addition waits for the one before.
  struct WeightedSum {
    const float* weights;  ///< of the next piece
    simd::Lanes first = {}, second = {}, third = {};
    float rest = 0;

    template <class Value>
    [[gnu::always_inline]] inline void add(const Value* values, std::size_t count) {
      std::size_t i = 0;
      for (; i + 3 * simd::width <= count; i += 3 * simd::width) {
        add_lanes(first, i, values);
        add_lanes(second, i + simd::width, values);
        add_lanes(third, i + 2 * simd::width, values);
      }
      for (; i + simd::width <= count; i += simd::width) add_lanes(first, i, values);
      for (; i < count; ++i) rest += weights[i] * static_cast<float>(values[i]);
      weights += count;
    }
    template <class Value>
    [[gnu::always_inline]] inline void add_lanes(simd::Lanes& sum, std::size_t i,
                                                 const Value* values) const {
      simd::Lanes some = {};
      for (std::size_t l = 0; l < simd::width; ++l) some[l] = static_cast<float>(values[i + l]);
      sum += simd::at(weights + i) * some;
    }
    [[nodiscard, gnu::always_inline]] inline float value() const {
      return simd::sum((first + second) + third) + rest;
    }
  };

  /// Adds the part of the heatmap that is linear in hidden values.
  struct HeatOfHidden {
    const RidgeReadout& self;
    std::span<const float> hidden;
    std::span<float> out;

    [[gnu::always_inline]] inline void operator()() const {
      const Inputs& inputs = self.inputs_;
      const std::size_t each = self.hidden_values_ / self.unit_count_;
      for (std::size_t p = 0; p < inputs.positions(); ++p) {
        WeightedSum sum{self.linear_.data() + self.start_[p]};
        for (const std::uint32_t unit : inputs.units()[p]) {
          sum.add(hidden.data() + unit * each, each);
        }
        out[p] += sum.value();
      }
    }
  };

  /// Adds the part that is linear in pixels.
  struct HeatOfPixels {
    const RidgeReadout& self;
    std::span<const std::uint8_t> frame;
    std::span<float> out;

    [[gnu::always_inline]] inline void operator()() const {
      const Inputs& inputs = self.inputs_;
      const auto cells = static_cast<std::size_t>(inputs.cells());
      const std::size_t block = static_cast<std::size_t>(inputs.frame_side()) / cells;
      const std::size_t line = block * static_cast<std::size_t>(inputs.channels());
      for (std::size_t p = 0; p < inputs.positions(); ++p) {
        const std::size_t fit = self.options_.shared ? 0 : p;
        WeightedSum sum{self.linear_.data() + self.start_[fit] + inputs.hidden_size(fit)};
        const std::uint8_t* from =
            frame.data() + p / cells * block * cells * line + p % cells * line;
        for (std::size_t i = 0; i < block; ++i, from += cells * line) sum.add(from, line);
        out[p] += sum.value();
      }
    }
  };

  /// The part that colours have: each pixel looks its reduced colour up.
  void add_colours(std::span<const std::uint8_t> frame, std::span<float> out) {
    using Four = float __attribute__((vector_size(16), aligned(4), may_alias));
    const std::size_t positions = inputs_.positions();
    sums_.assign(positions * table_width, 0.0F);
    inputs_.for_each_pixel(frame, [&](std::size_t position, const std::uint8_t* pixel) {
      *reinterpret_cast<Four*>(sums_.data() + position * table_width) +=
          *reinterpret_cast<const Four*>(tables_.data() +
                                         inputs_.bins().colour(pixel) * table_width);
    });
    for (std::size_t p = 0; p < positions; ++p) out[p] += sums_[p * table_width];
    pooled_.resize(sums_.size());
    for (std::size_t r = 1; r < Inputs::radii.size(); ++r) {
      pool_cells(sums_, pooled_, cells(), table_width, Inputs::radii[r], scratch_);
      for (std::size_t p = 0; p < positions; ++p) out[p] += pooled_[p * table_width + r];
    }
  }

  RidgeOptions options_;
  Inputs inputs_;
  std::size_t hidden_values_;
  std::size_t unit_count_;
  std::vector<Gram> grams_;      // one, or one for each position
  std::vector<LinearFit> fits_;  // likewise
  std::uint64_t frames_ = 0;
  bool solved_ = false;
  bool frozen_ = false;  // see `freeze`

  std::size_t buffered_ = 0;  // rows (shared) or frames that the Gram matrices lack
  std::vector<float> rows_;   // [rows][stride]
  std::vector<float> hiddens_, targets_, histograms_;
  std::vector<std::uint8_t> frames_of_rows_;
  std::vector<float> target_;

  std::vector<float> linear_, biases_, tables_;  // see `arrange`
  std::vector<std::size_t> start_;
  std::vector<float> sums_, pooled_, scratch_;
};

}  // namespace pvm::inline v0::readout
