// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace wflow::trainer {
namespace {

double norm_of(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  return std::sqrt(sum);
}

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

// LAMB's direction: that of Adam, with decay.
template <class Factors>
float lamb_direction(float p, float m, float v, const Factors& f, float learning_rate, float decay) {
  return f.rate / learning_rate * m / (std::sqrt(v) * f.inverse_root_correction2 + f.epsilon) + decay * p;
}

}  // namespace

struct Optimizer::AdamFactors {
  float beta1, beta2, rate, inverse_root_correction2, epsilon, shrink, decay;
};

Optimizer::Optimizer(const OptimizerConfig& config, const FlatLayout& layout)
    : Optimizer(config, layout, StateShards(layout.size), {}) {}

Optimizer::Optimizer(const OptimizerConfig& config, const FlatLayout& layout, StateShards shards,
                     AddUp add_up)
    : config_(config), layout_(layout), shards_(std::move(shards)), add_up_(std::move(add_up)) {
  const std::int64_t size = shards_.own().count();
  if (has_momentum(config.name)) {
    slots_.push_back({"momentum", FloatBuffer(size)});
  } else {
    slots_.push_back({"first_moment", FloatBuffer(size)});
    slots_.push_back({"second_moment", FloatBuffer(size)});
  }
}

Range Optimizer::own_part(const FlatEntry& entry) const {
  return intersection({entry.offset, entry.offset + entry.count}, shards_.own());
}

std::span<float> Optimizer::in_slot(std::size_t slot, const Range& range) {
  return slots_[slot].values.span().subspan(static_cast<std::size_t>(range.begin - shards_.own().begin),
                                            static_cast<std::size_t>(range.count()));
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
    if (!entry.spec.decays || learning_rate <= 0 || own_part(entry).count() == 0) continue;
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
  for (const FlatEntry& entry : layout_.entries) {
    const Range own = own_part(entry);
    if (own.count() == 0) continue;
    const auto whole = [&](std::span<float> all) {
      return all.subspan(static_cast<std::size_t>(entry.offset), static_cast<std::size_t>(entry.count));
    };
    const auto part = [&](std::span<float> all) {
      return all.subspan(static_cast<std::size_t>(own.begin), static_cast<std::size_t>(own.count()));
    };
    const double decay = entry.spec.decays ? config_.weight_decay : 0;
    if (config_.name == OptimizerName::lars) {
      const double local = entry.spec.decays ? lars_factor(whole(values), whole(gradients), config_) : 1;
      lars_update(part(values), part(gradients), in_slot(0, own), static_cast<float>(config_.momentum),
                  static_cast<float>(learning_rate * local), static_cast<float>(decay));
    } else if (has_momentum(config_.name)) {
      sgd_update(part(values), part(gradients), in_slot(0, own), static_cast<float>(config_.momentum),
                 static_cast<float>(learning_rate), static_cast<float>(decay), config_.nesterov);
    } else {
      adam_update(part(values), part(gradients), in_slot(0, own), in_slot(1, own),
                  adam_factors(learning_rate, decay));
    }
  }
}

// LAMB (You et al. 2020, algorithm 2): Adam's direction with decay, scaled to the norm of the weights times
// the rate. Biases and norms use Adam's step. The norm of a direction is a sum over blocks, which belong to
// one rank each.
void Optimizer::lamb_step(std::span<float> values, std::span<float> gradients, double learning_rate) {
  if (learning_rate <= 0) return;
  const auto rate = static_cast<float>(learning_rate);
  const auto decay_of = [&](const FlatEntry& entry) { return entry.spec.decays ? config_.weight_decay : 0; };
  const AdamFactors f = adam_factors(learning_rate, 0);
  constexpr std::int64_t kBlock = StateShards::kBlock;
  // For each entry, the first of its blocks in `squares`.
  std::vector<std::size_t> first;
  std::size_t blocks = 0;
  for (const FlatEntry& entry : layout_.entries) {
    first.push_back(blocks);
    blocks += static_cast<std::size_t>((entry.offset + entry.count - 1) / kBlock - entry.offset / kBlock + 1);
  }
  std::vector<double> squares(blocks, 0.0);
  for (std::size_t e = 0; e < layout_.entries.size(); ++e) {
    const FlatEntry& entry = layout_.entries[e];
    const Range own = own_part(entry);
    const auto decay = static_cast<float>(decay_of(entry));
    const std::span<float> m = in_slot(0, own);
    const std::span<float> v = in_slot(1, own);
    for (std::int64_t at = own.begin; at < own.end; ++at) {
      const auto i = static_cast<std::size_t>(at - own.begin);
      const float g = gradients[static_cast<std::size_t>(at)];
      m[i] = f.beta1 * m[i] + (1 - f.beta1) * g;
      v[i] = f.beta2 * v[i] + (1 - f.beta2) * g * g;
      const float direction =
          lamb_direction(values[static_cast<std::size_t>(at)], m[i], v[i], f, rate, decay);
      squares[first[e] + static_cast<std::size_t>(at / kBlock - entry.offset / kBlock)] +=
          static_cast<double>(direction) * direction;
    }
  }
  if (shards_.active()) add_up_(squares);
  for (std::size_t e = 0; e < layout_.entries.size(); ++e) {
    const FlatEntry& entry = layout_.entries[e];
    const Range own = own_part(entry);
    if (own.count() == 0) continue;
    const std::size_t end = e + 1 < first.size() ? first[e + 1] : blocks;
    double square = 0;
    for (std::size_t block = first[e]; block < end; ++block) square += squares[block];
    const std::span<const float> whole =
        values.subspan(static_cast<std::size_t>(entry.offset), static_cast<std::size_t>(entry.count));
    const auto ratio = static_cast<float>(entry.spec.decays ? trust_ratio(whole, std::sqrt(square)) : 1.0);
    const auto decay = static_cast<float>(decay_of(entry));
    const std::span<const float> m = in_slot(0, own);
    const std::span<const float> v = in_slot(1, own);
    for (std::int64_t at = own.begin; at < own.end; ++at) {
      const auto i = static_cast<std::size_t>(at - own.begin);
      float& p = values[static_cast<std::size_t>(at)];
      p -= rate * ratio * lamb_direction(p, m[i], v[i], f, rate, decay);
    }
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
