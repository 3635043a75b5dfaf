// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/optimizer.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace wflow::trainer {
namespace {

template <class Factors>
void adam_update(std::span<float> p, std::span<const float> g, std::span<float> m, std::span<float> v,
                 const Factors& f) {
  float* __restrict pp = p.data();
  const float* __restrict gp = g.data();
  float* __restrict mp = m.data();
  float* __restrict vp = v.data();
  for (std::size_t i = 0; i < p.size(); ++i) {
    const float gradient = gp[i] + f.decay * pp[i];
    mp[i] = f.beta1 * mp[i] + (1 - f.beta1) * gradient;
    vp[i] = f.beta2 * vp[i] + (1 - f.beta2) * gradient * gradient;
    pp[i] = pp[i] * f.shrink - f.rate * mp[i] / (std::sqrt(vp[i]) * f.inverse_root_correction2 + f.epsilon);
  }
}

void sgd_update(std::span<float> p, std::span<const float> g, std::span<float> m, float momentum, float rate,
                float decay, bool nesterov) {
  float* __restrict pp = p.data();
  const float* __restrict gp = g.data();
  float* __restrict mp = m.data();
  for (std::size_t i = 0; i < p.size(); ++i) {
    const float gradient = gp[i] + decay * pp[i];
    mp[i] = momentum * mp[i] + gradient;
    pp[i] -= rate * (nesterov ? gradient + momentum * mp[i] : mp[i]);
  }
}

// The momentum includes the rate, which differs from step to step and from array to array.
void lars_update(std::span<float> p, std::span<const float> g, std::span<float> m, float momentum, float rate,
                 float decay) {
  float* __restrict pp = p.data();
  const float* __restrict gp = g.data();
  float* __restrict mp = m.data();
  for (std::size_t i = 0; i < p.size(); ++i) {
    mp[i] = momentum * mp[i] + rate * (gp[i] + decay * pp[i]);
    pp[i] -= mp[i];
  }
}

bool has_momentum(OptimizerName name) {
  return name == OptimizerName::sgd || name == OptimizerName::lars || name == OptimizerName::larc;
}

// LAMB's direction: that of Adam, with decay.
template <class Factors>
float lamb_direction(float p, float m, float v, const Factors& f, float learning_rate, float decay) {
  return f.rate / learning_rate * m / (std::sqrt(v) * f.inverse_root_correction2 + f.epsilon) + decay * p;
}

}  // namespace

std::vector<double> squares_in(std::span<const float> values, const FlatLayout& layout,
                               const StateShards& shards, const AddUp& add_up) {
  return squares_of(layout, shards, add_up, [values](std::size_t /*array*/, const Range& block) {
    double sum = 0;
    for (const float v : values_in(values, block)) sum += static_cast<double>(v) * v;
    return sum;
  });
}

struct Optimizer::AdamFactors {
  float beta1, beta2, rate, inverse_root_correction2, epsilon, shrink, decay;
};

Optimizer::Optimizer(const OptimizerConfig& config, const FlatLayout& layout)
    : Optimizer(config, layout, StateShards(layout), {}) {}

Optimizer::Optimizer(const OptimizerConfig& config, const FlatLayout& layout, StateShards shards,
                     AddUp add_up)
    : config_(config), layout_(layout), shards_(std::move(shards)), add_up_(std::move(add_up)) {
  const std::int64_t size = shards_.own_size();
  if (has_momentum(config.name)) {
    slots_.push_back({"momentum", FloatBuffer(size)});
  } else {
    slots_.push_back({"first_moment", FloatBuffer(size)});
    slots_.push_back({"second_moment", FloatBuffer(size)});
  }
}

std::span<float> Optimizer::own(std::size_t array, std::span<float> all) const {
  return values_in(all, shards_.own(array));
}

std::span<float> Optimizer::in_slot(std::size_t slot, std::size_t array) {
  return shards_.kept(array, slots_[slot].values.span());
}

std::vector<double> Optimizer::squares_in(std::span<const float> values) const {
  return trainer::squares_in(values, layout_, shards_, add_up_);
}

void Optimizer::clip(std::span<float> gradients) const {
  double sum = 0;
  for (const double square : squares_in(gradients)) sum += square;
  const double norm = std::sqrt(sum);
  if (norm <= config_.clip_norm) return;
  const auto factor = static_cast<float>(config_.clip_norm / norm);
  for (std::size_t array = 0; array < layout_.entries.size(); ++array)
    for (float& g : own(array, gradients)) g *= factor;
}

// LARC: each weight array has its own rate trust * |w| / (|g| + decay * |w|), at most the common one.
void Optimizer::adapt_rates(std::span<const float> values, std::span<float> gradients,
                            double learning_rate) const {
  if (learning_rate <= 0) return;
  const std::vector<double> weights = squares_in(values);
  const std::vector<double> changes = squares_in(gradients);
  for (std::size_t array = 0; array < layout_.entries.size(); ++array) {
    if (!layout_.entries[array].spec.decays) continue;
    const double w = std::sqrt(weights[array]);
    const double g = std::sqrt(changes[array]);
    if (w <= 0 || g <= 0) continue;
    const double local = config_.larc_trust * w / (g + weight_decay() * w);
    const auto factor = static_cast<float>(std::min(local / learning_rate, 1.0));
    for (float& value : own(array, gradients)) value *= factor;
  }
}

// The factors on the rates of the arrays (You, Gitman and Ginsburg 2017):
// v = m v + rate * trust * |w| / (|g| + decay |w|) * (g + decay w). An array of zeros gets the plain rate, as
// in LARC and LAMB: its own factor would be 0, and it would never learn.
std::vector<double> Optimizer::lars_factors(std::span<const float> values,
                                            std::span<const float> gradients) const {
  const std::vector<double> weights = squares_in(values);
  const std::vector<double> changes = squares_in(gradients);
  std::vector<double> factors(layout_.entries.size(), 1.0);
  for (std::size_t array = 0; array < factors.size(); ++array) {
    const double w = std::sqrt(weights[array]);
    const double g = std::sqrt(changes[array]);
    if (layout_.entries[array].spec.decays && w > 0 && g > 0)
      factors[array] = config_.lars_trust * w / (g + weight_decay() * w);
  }
  return factors;
}

Optimizer::AdamFactors Optimizer::adam_factors(double learning_rate, double decay) const {
  const double t = static_cast<double>(steps_);
  const double correction1 = 1 - std::pow(config_.beta1, t);
  const double correction2 = 1 - std::pow(config_.beta2, t);
  const bool decoupled = config_.name == OptimizerName::adamw || config_.name == OptimizerName::lamb;
  return {static_cast<float>(config_.beta1),
          static_cast<float>(config_.beta2),
          static_cast<float>(learning_rate / correction1),
          static_cast<float>(1 / std::sqrt(correction2)),
          static_cast<float>(config_.epsilon),
          static_cast<float>(decoupled ? 1 - learning_rate * decay : 1),
          static_cast<float>(decoupled ? 0 : decay)};
}

void Optimizer::step(std::span<float> values, std::span<float> gradients, double learning_rate) {
  ++steps_;
  if (config_.clip_norm > 0) clip(gradients);
  if (config_.larc_trust > 0) adapt_rates(values, gradients, learning_rate);
  if (config_.name == OptimizerName::lamb) return lamb_step(values, gradients, learning_rate);
  std::vector<double> factors;
  if (config_.name == OptimizerName::lars) factors = lars_factors(values, gradients);
  for (std::size_t array = 0; array < layout_.entries.size(); ++array) {
    const std::span<float> p = own(array, values);
    if (p.empty()) continue;
    const std::span<const float> g = own(array, gradients);
    const double decay = layout_.entries[array].spec.decays ? weight_decay() : 0;
    if (config_.name == OptimizerName::lars) {
      lars_update(p, g, in_slot(0, array), static_cast<float>(config_.momentum),
                  static_cast<float>(learning_rate * factors[array]), static_cast<float>(decay));
    } else if (has_momentum(config_.name)) {
      sgd_update(p, g, in_slot(0, array), static_cast<float>(config_.momentum),
                 static_cast<float>(learning_rate), static_cast<float>(decay), config_.nesterov);
    } else {
      adam_update(p, g, in_slot(0, array), in_slot(1, array), adam_factors(learning_rate, decay));
    }
  }
}

// LAMB (You et al. 2020, algorithm 2): Adam's direction with decay, scaled to the norm of the weights times
// the rate. Biases and norms use Adam's step.
void Optimizer::lamb_step(std::span<float> values, std::span<float> gradients, double learning_rate) {
  if (learning_rate <= 0) return;
  const auto rate = static_cast<float>(learning_rate);
  const auto decay_of = [&](std::size_t array) {
    return static_cast<float>(layout_.entries[array].spec.decays ? weight_decay() : 0);
  };
  const AdamFactors f = adam_factors(learning_rate, 0);
  const std::vector<double> weights = squares_in(values);
  const std::vector<double> directions =
      squares_of(layout_, shards_, add_up_, [&](std::size_t array, const Range& block) {
        const std::int64_t begin = block.begin - shards_.own(array).begin;
        const std::span<float> m = values_in(in_slot(0, array), {begin, begin + block.count()});
        const std::span<float> v = values_in(in_slot(1, array), {begin, begin + block.count()});
        const std::span<const float> g = values_in(gradients, block);
        const std::span<const float> p = values_in(values, block);
        const float decay = decay_of(array);
        double sum = 0;
        for (std::size_t i = 0; i < p.size(); ++i) {
          m[i] = f.beta1 * m[i] + (1 - f.beta1) * g[i];
          v[i] = f.beta2 * v[i] + (1 - f.beta2) * g[i] * g[i];
          const double direction = lamb_direction(p[i], m[i], v[i], f, rate, decay);
          sum += direction * direction;
        }
        return sum;
      });
  for (std::size_t array = 0; array < layout_.entries.size(); ++array) {
    const double w = std::sqrt(weights[array]);
    const double u = std::sqrt(directions[array]);
    // Makes the norm of the array's change the rate times that of its weights; 1 if either is 0.
    const auto ratio = static_cast<float>(layout_.entries[array].spec.decays && w > 0 && u > 0 ? w / u : 1.0);
    const float decay = decay_of(array);
    const std::span<float> p = own(array, values);
    const std::span<const float> m = in_slot(0, array);
    const std::span<const float> v = in_slot(1, array);
    for (std::size_t i = 0; i < p.size(); ++i)
      p[i] -= rate * ratio * lamb_direction(p[i], m[i], v[i], f, rate, decay);
  }
}

WeightAverage::WeightAverage(double decay, StateShards shards, const FlatLayout& layout)
    : decay_(decay),
      shards_(std::move(shards)),
      arrays_(layout.entries.size()),
      average_(decay > 0 ? shards_.own_size() : 0) {}

// Calls `change` with this rank's values of an array and their average.
template <class Value, class Change>
void WeightAverage::for_each(std::span<Value> values, const Change& change) {
  for (std::size_t array = 0; array < arrays_; ++array) {
    change(values_in(values, shards_.own(array)), shards_.kept(array, average_.span()));
  }
}

void WeightAverage::update(std::span<const float> values, std::int64_t step) {
  if (!active()) return;
  const auto t = static_cast<double>(step);
  const auto take = static_cast<float>(1 - std::min(decay_, (t - 1) / (t + 9)));
  for_each(values, [take](std::span<const float> from, std::span<float> to) {
    const float* __restrict value = from.data();
    float* __restrict average = to.data();
    for (std::size_t i = 0; i < from.size(); ++i) average[i] += take * (value[i] - average[i]);
  });
}

void WeightAverage::swap(std::span<float> values) {
  if (!active()) return;
  for_each(values, [](std::span<float> own, std::span<float> average) {
    std::swap_ranges(own.begin(), own.end(), average.begin());
  });
}

void WeightAverage::begin_with(std::span<const float> values) {
  if (!active()) return;
  for_each(values, [](std::span<const float> own, std::span<float> average) {
    std::ranges::copy(own, average.begin());
  });
}

void outer_step(const OuterConfig& config, std::span<float> anchor, std::span<float> momentum,
                std::span<float> mean) {
  if (config.is_mean()) return;
  for (std::size_t i = 0; i < mean.size(); ++i) {
    const double moved = static_cast<double>(anchor[i]) - static_cast<double>(mean[i]);
    double direction = moved;
    if (!momentum.empty()) {
      momentum[i] = static_cast<float>(config.momentum * static_cast<double>(momentum[i]) + moved);
      direction += config.momentum * static_cast<double>(momentum[i]);
    }
    mean[i] = static_cast<float>(static_cast<double>(anchor[i]) - config.rate * direction);
    anchor[i] = mean[i];
  }
}

nlohmann::json OuterRecord::to_json() const {
  return {{"steps", steps}, {"left_out", left_out}};
}

OuterRecord OuterRecord::from_json(const nlohmann::json& json) {
  return {json.at("steps").get<std::int64_t>(), json.at("left_out").get<std::int64_t>()};
}

}  // namespace wflow::trainer
