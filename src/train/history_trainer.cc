#include "train/history_trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"

namespace lkv {
namespace {

constexpr uint32_t kInputs = HistoryNetwork::kInputs;
constexpr uint32_t kHidden = HistoryNetwork::kHidden;
constexpr size_t kBatchOfLane = 64;
constexpr float kLearningRate = 4e-3f;
// So many epochs in a row that do not lower the error are the last.
constexpr uint32_t kPatience = 2;

// Where inputs lie and how far they spread, for a scaling that stays fixed.
struct Scaling {
  std::array<float, kInputs> mean{};
  std::array<float, kInputs> deviation{};
};

Scaling ScalingOf(const HistoryExamples& examples) {
  std::array<double, kInputs> sum{};
  std::array<double, kInputs> squares{};
  for (const HistoryExamples::Lane& lane : examples.lanes) {
    for (size_t i = 0; i < lane.inputs.size(); ++i) {
      sum[i % kInputs] += lane.inputs[i];
      squares[i % kInputs] += double{lane.inputs[i]} * lane.inputs[i];
    }
  }
  const auto n = static_cast<double>(examples.size());
  Scaling scaling;
  for (uint32_t j = 0; j < kInputs; ++j) {
    const double mean = sum[j] / n;
    const double variance = std::max(squares[j] / n - mean * mean, 1e-6);
    scaling.mean[j] = static_cast<float>(mean);
    scaling.deviation[j] = static_cast<float>(std::sqrt(variance));
  }
  return scaling;
}

double MeanOf(std::span<const float> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

// The weights of a network that reads scaled inputs, one after the other, so
// that Adam need not know what they are.
class Weights {
 public:
  explicit Weights(uint32_t n_lanes)
      : n_lanes_(n_lanes), values_(kLaneAt + size_t{n_lanes} * (kHidden + 1)) {}

  float* inner() { return &values_[0]; }
  float* outer() { return &values_[kOuterAt]; }
  float* direct() { return &values_[kDirectAt]; }
  // [kHidden] of the lane, then its bias.
  float* lane(uint32_t lane) {
    return &values_[kLaneAt + size_t{lane} * (kHidden + 1)];
  }
  std::span<float> values() { return values_; }

  // With the scaling made part of the weights.
  HistoryNetwork Folded(const Scaling& scaling) {
    HistoryNetwork network(n_lanes_);
    for (uint32_t h = 0; h < kHidden; ++h) {
      network.outer[h] = outer()[h];
      for (uint32_t j = 0; j < kInputs; ++j) {
        network.inner[h * kInputs + j] =
            inner()[h * kInputs + j] / scaling.deviation[j];
      }
    }
    for (uint32_t j = 0; j < kInputs; ++j) {
      network.direct[j] = direct()[j] / scaling.deviation[j];
    }
    for (uint32_t l = 0; l < n_lanes_; ++l) {
      for (uint32_t h = 0; h < kHidden; ++h) {
        float bias = lane(l)[h];
        for (uint32_t j = 0; j < kInputs; ++j) {
          bias -= network.inner[h * kInputs + j] * scaling.mean[j];
        }
        network.hidden_bias[size_t{l} * kHidden + h] = bias;
      }
      network.bias[l] = lane(l)[kHidden];
      for (uint32_t j = 0; j < kInputs; ++j) {
        network.bias[l] -= network.direct[j] * scaling.mean[j];
      }
    }
    return network;
  }

 private:
  static constexpr size_t kOuterAt = size_t{kHidden} * kInputs;
  static constexpr size_t kDirectAt = kOuterAt + kHidden;
  static constexpr size_t kLaneAt = kDirectAt + kInputs;

  uint32_t n_lanes_;
  std::vector<float> values_;
};

class Adam {
 public:
  explicit Adam(size_t n) : mean_(n), square_(n) {}

  void Step(std::span<float> values, std::span<const float> gradient,
            float rate) {
    constexpr float kMeanKeep = 0.9f;
    constexpr float kSquareKeep = 0.999f;
    mean_weight_ *= kMeanKeep;
    square_weight_ *= kSquareKeep;
    for (size_t i = 0; i < values.size(); ++i) {
      mean_[i] += (1 - kMeanKeep) * (gradient[i] - mean_[i]);
      square_[i] +=
          (1 - kSquareKeep) * (gradient[i] * gradient[i] - square_[i]);
      const float mean = mean_[i] / (1 - mean_weight_);
      const float square = square_[i] / (1 - square_weight_);
      values[i] -= rate * mean / (std::sqrt(square) + 1e-8f);
    }
  }

 private:
  std::vector<float> mean_, square_;
  float mean_weight_ = 1, square_weight_ = 1;
};

// Adds the gradient of one example's squared error.
void AddGradient(Weights& weights, uint32_t lane, const float* x, float target,
                 Weights& gradient) {
  const float* bias = weights.lane(lane);
  float hidden[kHidden];
  float y = bias[kHidden];
  for (uint32_t j = 0; j < kInputs; ++j) y += weights.direct()[j] * x[j];
  for (uint32_t h = 0; h < kHidden; ++h) {
    hidden[h] = bias[h];
    for (uint32_t j = 0; j < kInputs; ++j) {
      hidden[h] += weights.inner()[h * kInputs + j] * x[j];
    }
    y += weights.outer()[h] * std::max(hidden[h], 0.0f);
  }
  const float error = 2 * (y - target);
  gradient.lane(lane)[kHidden] += error;
  for (uint32_t j = 0; j < kInputs; ++j) gradient.direct()[j] += error * x[j];
  for (uint32_t h = 0; h < kHidden; ++h) {
    if (hidden[h] <= 0) continue;
    gradient.outer()[h] += error * hidden[h];
    const float of_hidden = error * weights.outer()[h];
    gradient.lane(lane)[h] += of_hidden;
    for (uint32_t j = 0; j < kInputs; ++j) {
      gradient.inner()[h * kInputs + j] += of_hidden * x[j];
    }
  }
}

// Mean squared error over all examples.
double ErrorOf(const HistoryNetwork& network, const HistoryExamples& examples,
               const KernelTable& kernels) {
  double sum = 0;
  std::vector<float> columns;
  std::vector<float> forecast;
  for (uint32_t l = 0; l < examples.lanes.size(); ++l) {
    const HistoryExamples::Lane& lane = examples.lanes[l];
    columns.resize(lane.inputs.size());
    forecast.resize(lane.size());
    for (size_t i = 0; i < lane.size(); ++i) {
      for (uint32_t j = 0; j < kInputs; ++j) {
        columns[j * lane.size() + i] = lane.inputs[i * kInputs + j];
      }
    }
    network.Forecast(kernels, l, columns.data(), forecast);
    for (size_t i = 0; i < lane.size(); ++i) {
      const double error = double{forecast[i]} - lane.target[i];
      sum += error * error;
    }
  }
  return sum / static_cast<double>(examples.size());
}

double ErrorOfMeans(const HistoryExamples& examples,
                    const HistoryExamples& held_out) {
  double sum = 0;
  for (size_t l = 0; l < examples.lanes.size(); ++l) {
    const double mean = MeanOf(examples.lanes[l].target);
    for (float target : held_out.lanes[l].target) {
      sum += (target - mean) * (target - mean);
    }
  }
  return sum / static_cast<double>(held_out.size());
}

Status CheckExamples(const HistoryExamples& examples) {
  for (size_t l = 0; l < examples.lanes.size(); ++l) {
    const HistoryExamples::Lane& lane = examples.lanes[l];
    const std::string name = "lane " + std::to_string(l);
    if (lane.size() == 0) {
      return InvalidArgument(name +
                             ": has no examples; record longer texts, "
                             "of all layers");
    }
    const auto is_finite = [](float x) { return std::isfinite(x); };
    if (!std::all_of(lane.inputs.begin(), lane.inputs.end(), is_finite) ||
        !std::all_of(lane.target.begin(), lane.target.end(), is_finite)) {
      return InvalidArgument(name +
                             ": an example is not a finite number;"
                             " record the traces again");
    }
  }
  return {};
}

// One pass over the examples at most: as many batches as the smallest lane has.
class Epochs {
 public:
  Epochs(const HistoryExamples& examples, const TrainingOptions& options)
      : examples_(examples),
        scaling_(ScalingOf(examples)),
        weights_(static_cast<uint32_t>(examples.lanes.size())),
        gradient_(weights_),
        adam_(weights_.values().size()),
        random_(options.seed),
        orders_(examples.lanes.size()) {
    size_t smallest = examples.lanes.front().size();
    for (const HistoryExamples::Lane& lane : examples.lanes) {
      smallest = std::min(smallest, lane.size());
    }
    n_batches_ = std::max<size_t>(1, smallest / kBatchOfLane);
    n_steps_ = n_batches_ * options.max_epochs;
    for (size_t l = 0; l < orders_.size(); ++l) {
      orders_[l].resize(examples.lanes[l].size());
      std::iota(orders_[l].begin(), orders_[l].end(), 0u);
    }
    Initialize();
  }

  // False: stopped.
  bool Run(const std::function<bool()>& cancelled) {
    for (std::vector<uint32_t>& order : orders_) {
      // std::shuffle differs between libraries.
      for (size_t i = order.size() - 1; i > 0; --i) {
        std::swap(order[i], order[random_() % (i + 1)]);
      }
    }
    for (size_t batch = 0; batch < n_batches_; ++batch) {
      if (batch % 16 == 0 && cancelled && cancelled()) return false;
      RunBatch(batch);
    }
    return true;
  }
  HistoryNetwork network() { return weights_.Folded(scaling_); }

 private:
  void Initialize() {
    // Even over +-sqrt(3 / inputs): a deviation of 1 / sqrt(inputs).
    const auto draw = [&](uint32_t n_inputs) {
      const float unit = static_cast<float>(random_() >> 40) * 0x1p-23f - 1;
      return unit * std::sqrt(3.0f / static_cast<float>(n_inputs));
    };
    std::generate_n(weights_.inner(), size_t{kHidden} * kInputs,
                    [&] { return draw(kInputs); });
    std::generate_n(weights_.outer(), kHidden, [&] { return draw(kHidden); });
    for (uint32_t l = 0; l < examples_.lanes.size(); ++l) {
      weights_.lane(l)[kHidden] =
          static_cast<float>(MeanOf(examples_.lanes[l].target));
    }
  }

  void RunBatch(size_t batch) {
    std::fill(gradient_.values().begin(), gradient_.values().end(), 0.0f);
    for (uint32_t l = 0; l < examples_.lanes.size(); ++l) {
      const HistoryExamples::Lane& lane = examples_.lanes[l];
      for (size_t i = 0; i < kBatchOfLane; ++i) {
        const size_t at =
            orders_[l][(batch * kBatchOfLane + i) % orders_[l].size()];
        float x[kInputs];
        for (uint32_t j = 0; j < kInputs; ++j) {
          x[j] = (lane.inputs[at * kInputs + j] - scaling_.mean[j]) /
                 scaling_.deviation[j];
        }
        AddGradient(weights_, l, x, lane.target[at], gradient_);
      }
    }
    const float scale =
        1 / static_cast<float>(kBatchOfLane * examples_.lanes.size());
    for (float& g : gradient_.values()) g *= scale;
    // Falls along a half wave to a hundredth.
    const double part =
        static_cast<double>(step_++) / static_cast<double>(n_steps_);
    const double rate = 0.505 + 0.495 * std::cos(M_PI * part);
    adam_.Step(weights_.values(), gradient_.values(),
               kLearningRate * static_cast<float>(rate));
  }

  const HistoryExamples& examples_;
  const Scaling scaling_;
  Weights weights_, gradient_;
  Adam adam_;
  std::mt19937_64 random_;
  std::vector<std::vector<uint32_t>> orders_;  // of each lane's examples
  size_t n_batches_ = 0, n_steps_ = 0, step_ = 0;
};

}  // namespace

Result<TrainingResult> TrainHistoryNetwork(
    const HistoryExamples& examples, const HistoryExamples& held_out,
    const TrainingOptions& options, const KernelTable& kernels,
    const TrainingProgress& progress, const std::function<bool()>& cancelled) {
  CHECK(examples.lanes.size() == held_out.lanes.size());
  if (Status s = CheckExamples(examples); !s.ok()) return s;
  if (Status s = CheckExamples(held_out); !s.ok()) return s;
  TrainingResult result;
  result.mean_error = ErrorOfMeans(examples, held_out);
  Epochs epochs(examples, options);
  uint32_t n_in_vain = 0;
  while (result.n_epochs < options.max_epochs && n_in_vain < kPatience) {
    if (!epochs.Run(cancelled)) {
      return Cancelled("train: stopped on request; nothing was written");
    }
    HistoryNetwork network = epochs.network();
    const double error = ErrorOf(network, held_out, kernels);
    const bool is_first = result.n_epochs == 0;
    ++result.n_epochs;
    if (progress) progress(result.n_epochs, options.max_epochs);
    ++n_in_vain;
    if (is_first || error < result.error) {
      n_in_vain = 0;
      result.error = error;
      result.network = std::move(network);
    }
    if (options.out_of_time && options.out_of_time()) {
      result.timed_out =
          result.n_epochs < options.max_epochs && n_in_vain < kPatience;
      break;
    }
  }
  return result;
}

}  // namespace lkv
