// SPDX-License-Identifier: Apache-2.0
#include "simulation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace cola {
namespace {

constexpr double kPower = -2.5;   // n of the modified operators: u(a) = a^n
constexpr double kTargetA = 1.0;  // steps are equal in a from the start to here

// The factors of one step from a to a + da, the velocity known at a_v. TZE13 section 4.2 and appendix A.3,
// with the acceleration F = 1.5 Om a (force - D1 first - (D2 - D1^2) second).
class Operators {
 public:
  Operators(const Growth& growth, double omega_m, Scheme scheme)
      : growth_(growth), omega_m_(omega_m), scheme_(scheme) {}

  void set_kick(double a, double a_v, double a_h, StepFactors& f) const {
    const double kick = scheme_ == Scheme::cola ? (std::pow(a_h, kPower) - std::pow(a_v, kPower)) /
                                                      (kPower * std::pow(a, kPower - 1) * growth_.q(a))
                                                : growth_.integral_over_q(a_v, a_h, 1) / a;
    const double source = 1.5 * omega_m_ * a * kick;
    f.kick_force = static_cast<float>(source);
    if (scheme_ == Scheme::plain_pm) return;
    const double d1 = growth_.d1(a);
    f.kick_first = static_cast<float>(-source * d1);
    f.kick_second = static_cast<float>(-source * (growth_.d2(a) - d1 * d1));
  }

  // From a to b, either way in time, with the velocity of a_h.
  void set_drift(double a, double b, double a_h, StepFactors& f) const {
    f.drift_velocity = static_cast<float>(scheme_ == Scheme::cola
                                              ? growth_.integral_over_q(a, b, kPower) / std::pow(a_h, kPower)
                                              : growth_.integral_over_q(a, b, 0));
    if (scheme_ == Scheme::plain_pm) return;
    f.drift_first = static_cast<float>(growth_.d1(b) - growth_.d1(a));
    f.drift_second = static_cast<float>(growth_.d2(b) - growth_.d2(a));
  }

 private:
  const Growth& growth_;
  double omega_m_;
  Scheme scheme_;
};

}  // namespace

Simulation::Simulation(int particles_a_side, int mesh)
    : side_(particles_a_side), mesh_(mesh), particles_(static_cast<std::size_t>(side_) * side_ * side_) {}

void Simulation::place(const Displacements& displacements, double box, const Growth& growth,
                       const StepPlan& plan) {
  const double per_cell = mesh() / box;
  const double spacing = static_cast<double>(mesh()) / side_;
  const double d1 = growth.d1(plan.start_a), d2 = growth.d2(plan.start_a);
  const bool moving = plan.scheme == Scheme::plain_pm;
  const double t1 = moving ? growth.t_d1(plan.start_a) : 0, t2 = moving ? growth.t_d2(plan.start_a) : 0;
  const auto size = static_cast<double>(mesh());
  const auto n = static_cast<std::size_t>(side_);
  for (std::size_t i = 0; i < particles_.size(); ++i) {
    const std::size_t lattice[3] = {i / (n * n), i / n % n, i % n};
    Particle& p = particles_[i];
    for (int axis = 0; axis < 3; ++axis) {
      const double first = displacements.first[i].v[axis] * per_cell;
      const double second = displacements.second[i].v[axis] * per_cell;
      p.first.v[axis] = static_cast<float>(first);
      p.second.v[axis] = static_cast<float>(second);
      p.velocity.v[axis] = static_cast<float>(t1 * first + t2 * second);
      const double x = static_cast<double>(lattice[axis]) * spacing + d1 * first + d2 * second;
      const auto wrapped = static_cast<float>(x - size * std::floor(x / size));
      p.position.v[axis] = wrapped < static_cast<float>(size) ? wrapped : 0.0f;
    }
  }
}

void Simulation::run(const Cosmology& cosmology, const Displacements& displacements, double box,
                     const StepPlan& plan, std::span<const double> scale_factors, const Snapshot& snapshot) {
  const Growth growth(cosmology.omega_m);
  const Operators operators(growth, cosmology.omega_m, plan.scheme);
  std::vector<std::size_t> due(scale_factors.size());
  std::iota(due.begin(), due.end(), std::size_t{0});
  std::stable_sort(due.begin(), due.end(),
                   [&](std::size_t i, std::size_t j) { return scale_factors[i] < scale_factors[j]; });
  auto next = due.begin();

  place(displacements, box, growth, plan);
  for (; next != due.end() && scale_factors[*next] <= plan.start_a; ++next) {
    snapshot(*next, {particles_, StepFactors{}});
  }
  if (next == due.end()) return;

  const double mean = static_cast<double>(particles_.size()) / std::pow(mesh(), 3);
  const auto time_of = [&](int step) {
    return step == plan.steps ? kTargetA : plan.start_a + (kTargetA - plan.start_a) * step / plan.steps;
  };
  mesh_.clear_density();
  deposit(particles_, mesh_.density(), mesh());
  double a_v = plan.start_a;
  for (int step = 0; step < plan.steps && next != due.end(); ++step) {
    const double a = time_of(step), b = time_of(step + 1), a_h = (a + b) / 2;
    StepFactors factors;
    operators.set_kick(a, a_v, a_h, factors);
    operators.set_drift(a, b, a_h, factors);
    mesh_.solve(mean);
    mesh_.clear_density();
    const bool last = step + 1 == plan.steps;
    step_particles(particles_, mesh_.force(), last ? nullptr : mesh_.density(), mesh(), factors);
    a_v = a_h;
    // A snapshot is a drift back from b with the velocity of this step, so it leaves no trace in the run.
    for (; next != due.end() && scale_factors[*next] <= b; ++next) {
      StepFactors back;
      operators.set_drift(b, scale_factors[*next], a_h, back);
      snapshot(*next, {particles_, back});
    }
  }
}

}  // namespace cola
