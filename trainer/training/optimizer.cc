// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/optimizer.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace wflow::trainer {
namespace {

double norm_of(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  return std::sqrt(sum);
}

struct AdamFactors {
  float beta1, beta2, rate, inverse_root_correction2, epsilon, shrink, decay;
};

void adam_update(std::span<float> p, std::span<const float> g, std::span<float> m, std::span<float> v,
                 const AdamFactors& f) {
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

// The factor on the rate of a weight array (You, Gitman and Ginsburg 2017):
// v = m v + rate * trust * |w| / (|g| + decay |w|) * (g + decay w). An array of zeros gets the plain rate, as
// in LARC and LAMB: its own factor would be 0, and it would never learn.
double lars_factor(std::span<const float> values, std::span<const float> gradient,
                   const OptimizerConfig& config) {
  const double w = norm_of(values);
  const double g = norm_of(gradient);
  return w > 0 && g > 0 ? config.lars_trust * w / (g + config.weight_decay * w) : 1.0;
}

// Factor that makes the norm of a weight array's update equal to that of the weights; 1 if either is 0.
double trust_ratio(std::span<const float> values, double update_norm) {
  const double w = norm_of(values);
  return w > 0 && update_norm > 0 ? w / update_norm : 1.0;
}

bool has_momentum(OptimizerName name) {
  return name == OptimizerName::sgd || name == OptimizerName::lars || name == OptimizerName::larc;
}

// LAMB (You et al. 2020): Adam's direction with decay, scaled to the norm of the weights times the rate.
// Biases and norms use Adam's step.
void lamb_update(std::span<float> p, std::span<const float> g, std::span<float> m, std::span<float> v,
                 const AdamFactors& f, float learning_rate, float decay, bool adapts) {
  std::vector<float> direction(p.size());
  for (std::size_t i = 0; i < p.size(); ++i) {
    m[i] = f.beta1 * m[i] + (1 - f.beta1) * g[i];
    v[i] = f.beta2 * v[i] + (1 - f.beta2) * g[i] * g[i];
    direction[i] =
        f.rate / learning_rate * m[i] / (std::sqrt(v[i]) * f.inverse_root_correction2 + f.epsilon) +
        decay * p[i];
  }
  const auto ratio = static_cast<float>(adapts ? trust_ratio(p, norm_of(direction)) : 1.0);
  for (std::size_t i = 0; i < p.size(); ++i) p[i] -= learning_rate * ratio * direction[i];
}

}  // namespace

Optimizer::Optimizer(const OptimizerConfig& config, const FlatLayout& layout)
    : config_(config), layout_(layout) {
  if (has_momentum(config.name)) {
    slots_.push_back({"momentum", FloatBuffer(layout.size)});
  } else {
    slots_.push_back({"first_moment", FloatBuffer(layout.size)});
    slots_.push_back({"second_moment", FloatBuffer(layout.size)});
  }
}

void Optimizer::clip(std::span<float> gradients) const {
  const double norm = norm_of(gradients);
  if (norm <= config_.clip_norm) return;
  const auto factor = static_cast<float>(config_.clip_norm / norm);
  for (float& g : gradients) g *= factor;
}

// LARC: each weight array has its own rate trust * |w| / (|g| + decay * |w|), at most the common one.
void Optimizer::adapt_rates(std::span<const float> values, std::span<float> gradients,
                            double learning_rate) const {
  for (const FlatEntry& entry : layout_.entries) {
    if (!entry.spec.decays || learning_rate <= 0) continue;
    const auto begin = static_cast<std::size_t>(entry.offset);
    const auto count = static_cast<std::size_t>(entry.count);
    const std::span<float> gradient = gradients.subspan(begin, count);
    const double w = norm_of(values.subspan(begin, count));
    const double g = norm_of(gradient);
    if (w <= 0 || g <= 0) continue;
    const double local = config_.larc_trust * w / (g + config_.weight_decay * w);
    const auto factor = static_cast<float>(std::min(local / learning_rate, 1.0));
    for (float& value : gradient) value *= factor;
  }
}

void Optimizer::step(std::span<float> values, std::span<float> gradients, double learning_rate) {
  ++steps_;
  if (config_.clip_norm > 0) clip(gradients);
  if (config_.larc_trust > 0) adapt_rates(values, gradients, learning_rate);
  const double t = static_cast<double>(steps_);
  const double correction1 = 1 - std::pow(config_.beta1, t);
  const double correction2 = 1 - std::pow(config_.beta2, t);
  for (const FlatEntry& entry : layout_.entries) {
    const auto begin = static_cast<std::size_t>(entry.offset);
    const auto count = static_cast<std::size_t>(entry.count);
    const auto part = [&](std::span<float> all) { return all.subspan(begin, count); };
    const double decay = entry.spec.decays ? config_.weight_decay : 0;
    if (config_.name == OptimizerName::lars) {
      const double local = entry.spec.decays ? lars_factor(part(values), part(gradients), config_) : 1;
      lars_update(part(values), part(gradients), part(slots_[0].values.span()),
                  static_cast<float>(config_.momentum), static_cast<float>(learning_rate * local),
                  static_cast<float>(decay));
      continue;
    }
    if (has_momentum(config_.name)) {
      sgd_update(part(values), part(gradients), part(slots_[0].values.span()),
                 static_cast<float>(config_.momentum), static_cast<float>(learning_rate),
                 static_cast<float>(decay), config_.nesterov);
      continue;
    }
    const bool decoupled = config_.name == OptimizerName::adamw || config_.name == OptimizerName::lamb;
    const AdamFactors factors = {static_cast<float>(config_.beta1),
                                 static_cast<float>(config_.beta2),
                                 static_cast<float>(learning_rate / correction1),
                                 static_cast<float>(1 / std::sqrt(correction2)),
                                 static_cast<float>(config_.epsilon),
                                 static_cast<float>(decoupled ? 1 - learning_rate * decay : 1),
                                 static_cast<float>(decoupled ? 0 : decay)};
    if (config_.name == OptimizerName::lamb) {
      if (learning_rate <= 0) continue;
      lamb_update(part(values), part(gradients), part(slots_[0].values.span()), part(slots_[1].values.span()),
                  factors, static_cast<float>(learning_rate), static_cast<float>(decay), entry.spec.decays);
      continue;
    }
    adam_update(part(values), part(gradients), part(slots_[0].values.span()), part(slots_[1].values.span()),
                factors);
  }
}

WeightAverage::WeightAverage(double decay, const FlatLayout& layout)
    : decay_(decay), average_(decay > 0 ? layout.size : 0) {}

void WeightAverage::update(std::span<const float> values, std::int64_t step) {
  if (!active()) return;
  const auto t = static_cast<double>(step);
  const auto take = static_cast<float>(1 - std::min(decay_, (t - 1) / (t + 9)));
  float* __restrict average = average_.data();
  for (std::size_t i = 0; i < values.size(); ++i) average[i] += take * (values[i] - average[i]);
}

void WeightAverage::swap(std::span<float> values) {
  if (active()) std::swap_ranges(values.begin(), values.end(), average_.data());
}

}  // namespace wflow::trainer
