// SPDX-License-Identifier: Apache-2.0
#include "dynamics.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "hot_spot.h"

namespace implosion {
namespace {

constexpr double kSphere = 4 * std::numbers::pi;

// The capsule, after the point designs of the National Ignition Facility.
constexpr double kVapourRadius = 9e-4;
constexpr double kVapourDensity = 0.3;  // kg/m^3
constexpr double kIceDensity = 255;
constexpr double kEfficiency = 0.0055;     // from the laser to the kinetic energy of the fuel
constexpr double kShockRadius = 5.2e-4;    // where the shell's shock fills the vapour
constexpr double kStartRadius = 2.5e-4;    // where the drive ends
constexpr double kStartPressure = 1.5e13;  // of the shell there
constexpr double kUsualAdiabat = 2;
constexpr double kFermiPressure = 2.17e11;  // Pa, of D-T at 1 g/cm^3; it goes as density^(5/3)
constexpr double kLongest = 5e-9;           // s
constexpr double kRebound = 2;              // of the smallest mean radius, where the motion ends

// A state: for each cone, radius and speed of each layer, then the heat of each zone between layers. At the
// end these.
enum Extra {
  kEnergy,
  kMass,
  kReactions,
  kReactionTime,
  kReactionTime2,
  kReactionKev,
  kRadiated,
  kAlpha,
  kExtras
};

double legendre_root(int n, int k) {
  double x = std::cos(std::numbers::pi * (k + 0.75) / (n + 0.5));
  for (int i = 0; i < 20; ++i) {
    const double derivative = n * (legendre(n - 1, x) - x * legendre(n, x)) / (1 - x * x);
    x -= legendre(n, x) / derivative;
  }
  return x;
}

// The upper half of the 16 points from -1 to 1.
Directions make_directions() {
  Directions all;
  constexpr int n = 2 * kCones;
  for (int k = 0; k < kCones; ++k) {
    const double x = legendre_root(n, k);
    const double derivative = n * legendre(n - 1, x) / (1 - x * x);
    all.cosine[k] = x;
    all.weight[k] = 2 / ((1 - x * x) * derivative * derivative);
  }
  return all;
}

double shell_mass_of(double thickness_um) {
  const double outer = kVapourRadius + 1e-6 * thickness_um;
  return kSphere / 3 * kIceDensity * (std::pow(outer, 3) - std::pow(kVapourRadius, 3));
}

double vapour_mass() {
  return kSphere / 3 * kVapourDensity * std::pow(kVapourRadius, 3);
}

}  // namespace

double legendre(int l, double cosine) {
  double before = 1, value = l == 0 ? 1 : cosine;
  for (int k = 2; k <= l; ++k) {
    const double next = ((2 * k - 1) * cosine * value - (k - 1) * before) / k;
    before = value;
    value = next;
  }
  return value;
}

const Directions& directions() {
  static const Directions all = make_directions();
  return all;
}

std::array<double, kCones> legendre_coefficients(const std::array<double, kCones>& values) {
  std::array<double, kCones> coefficients{};
  const Directions& d = directions();
  for (int k = 0; k < kCones; ++k) {
    const int l = 2 * k;
    for (int cone = 0; cone < kCones; ++cone)
      coefficients[k] += (2 * l + 1) * d.weight[cone] * values[cone] * legendre(l, d.cosine[cone]);
  }
  return coefficients;
}

double Moment::hot_spot_column() const {
  return central_ions(pressure, central_kev) * kIonMass * kColumnIntegral * std::cbrt(mean_cube);
}

Motion::Motion(const Capsule& capsule, const Physics& physics, const ProfileTable& table)
    : physics_(physics),
      table_(table),
      adiabat_(capsule.adiabat),
      mass_(shell_mass_of(capsule.thickness_um)),
      speed_(std::sqrt(2 * kEfficiency * 1e6 * capsule.laser_energy_mj / mass_)) {
  trajectory_ = integrate(
      [this](double time, std::span<const double> state, std::span<double> out) { slope(state, time, out); },
      start(capsule), kLongest, accuracy(),
      [this](const Trajectory& trajectory) { return finished(trajectory); });
}

Accuracy Motion::accuracy() const {
  Accuracy accuracy;
  accuracy.relative = physics_.tolerance;
  accuracy.first_step = 1e-12;
  const double energy = 0.05 * physics_.tolerance * mass_ * speed_ * speed_;
  for (int cone = 0; cone < kCones; ++cone) {
    for (int layer = 0; layer < physics_.layers; ++layer) {
      accuracy.absolute.push_back(0.01 * physics_.tolerance * kStartRadius);
      accuracy.absolute.push_back(0.1 * physics_.tolerance * speed_);
    }
    accuracy.absolute.insert(accuracy.absolute.end(), physics_.layers - 1, energy);
  }
  constexpr double reactions = 1e8;  // fewer do not matter
  for (const double extra : {energy, 0.1 * physics_.tolerance * vapour_mass(), reactions, 1e-9 * reactions,
                             1e-18 * reactions, reactions, energy, energy})
    accuracy.absolute.push_back(extra);
  return accuracy;
}

State Motion::start(const Capsule& capsule) const {
  State state;
  const double density = 1000 * std::pow(kStartPressure / kFermiPressure / adiabat_, 0.6);
  const int zones = std::max(1, physics_.layers - 1);
  for (const double cosine : directions().cosine) {
    const double drive = 1 + capsule.p2 * legendre(2, cosine) + capsule.p4 * legendre(4, cosine);
    for (int layer = 0; layer < physics_.layers; ++layer) {
      const double cube = std::pow(kStartRadius, 3) + 3 * mass_ / zones * layer / kSphere / density;
      state.push_back(std::cbrt(cube));
      state.push_back(-speed_ * std::sqrt(drive));
    }
    state.insert(state.end(), physics_.layers - 1, 0.0);
  }
  // The vapour behind a strong shock of the shell's speed has 3/32 m v^2 for the T of ions and electrons; the
  // shocks that give the shell a higher adiabat heat it more. The shell then compresses it adiabatically.
  const double shocked = 3.0 / 32 * kIonMass * speed_ * speed_ * std::pow(adiabat_ / kUsualAdiabat, 0.5);
  const double thermal = shocked * std::pow(kShockRadius / kStartRadius, 2);
  state.resize(state.size() + kExtras);
  double* extra = state.data() + state.size() - kExtras;
  extra[kEnergy] = 3 * vapour_mass() / kIonMass * thermal;
  extra[kMass] = vapour_mass();
  return state;
}

Motion::Zone Motion::zone(const double* cone, int layer) const {
  const double in = cone[2 * layer], in_speed = cone[2 * layer + 1];
  const double out = cone[2 * layer + 2], out_speed = cone[2 * layer + 3];
  const double heat = cone[2 * physics_.layers + layer];
  const double mass = mass_ / (physics_.layers - 1);
  const double volume = kSphere / 3 * (out * out * out - in * in * in);
  Zone zone;
  zone.density = mass / volume;
  const double cbrt = std::cbrt(1e-3 * zone.density);
  const double cold_pressure = adiabat_ * kFermiPressure * 1e-3 * zone.density * cbrt * cbrt;
  zone.cold_energy = 1.5 * cold_pressure * volume;
  zone.pressure = cold_pressure + heat / (1.5 * volume);
  zone.growth = kSphere * (out * out * out_speed - in * in * in_speed);
  // The jump of a strong shock at gamma = 5/3. A shell that only converges has no shock: the lower of two
  // measures.
  const double approach = std::min(in_speed - out_speed, -zone.growth / (kSphere * in * out));
  zone.viscosity = approach > 0 ? 4.0 / 3 * zone.density * approach * approach : 0;
  return zone;
}

void Motion::slope(std::span<const double> state, double time, std::span<double> slope) const {
  const Directions& d = directions();
  const int layers = physics_.layers;
  const double* extra = state.data() + state.size() - kExtras;
  double* change = slope.data() + slope.size() - kExtras;

  double mean_cube = 0, growth = 0, mean_radius = 0;
  for (int c = 0; c < kCones; ++c) {
    const double radius = state[c * cone_values()], speed = state[c * cone_values() + 1];
    mean_cube += d.weight[c] * radius * radius * radius;
    growth += d.weight[c] * radius * radius * speed;
    mean_radius += d.weight[c] * radius;
  }
  const double volume = kSphere / 3 * mean_cube;
  const double pressure = extra[kEnergy] / (1.5 * volume);

  for (int c = 0; c < kCones; ++c) {
    const double* cone = state.data() + c * cone_values();
    double* cone_change = slope.data() + c * cone_values();
    double inside = pressure;
    for (int layer = 0; layer < layers; ++layer) {
      double outside = 0;
      if (layer + 1 < layers) {
        const Zone fuel = zone(cone, layer);
        outside = fuel.pressure + fuel.viscosity;
        const double heat_pressure =
            fuel.pressure - fuel.cold_energy * fuel.density * (layers - 1) / (1.5 * mass_);
        cone_change[2 * layers + layer] = -(heat_pressure + fuel.viscosity) * fuel.growth;
      }
      cone_change[2 * layer] = cone[2 * layer + 1];
      cone_change[2 * layer + 1] =
          kSphere * cone[2 * layer] * cone[2 * layer] * (inside - outside) * layers / mass_;
      inside = outside;
    }
  }

  const double central = central_temperature_kev(pressure, mean_cube, extra[kMass]);
  const double ions = central_ions(pressure, central);
  const double radiated =
      physics_.radiation ? kSphere * mean_cube * radiated_power(ions, central) * table_.radiation(central)
                         : 0;
  double reactions = 0, burn_kev = 0, alpha = 0;
  if (physics_.burn) {
    const double left = 1 - 2 * extra[kReactions] * kIonMass / extra[kMass];  // two ions a reaction
    reactions = kSphere * mean_cube * ions * ions / 4 * table_.reactions(central) * left * left;
    burn_kev = table_.reacting_kev(central);
    const double column = ions * kIonMass * kColumnIntegral * std::cbrt(mean_cube);
    const double mean_kev = central / (3 * kMassIntegral);  // of the mass
    alpha = kAlphaEnergy * reactions * alpha_deposition(column, mean_kev);
  }
  change[kEnergy] = -pressure * kSphere * growth - radiated + alpha;
  change[kMass] = physics_.conduction ? kSphere * mean_radius * ablated_mass_flux(central, 1) : 0;
  change[kReactions] = reactions;
  change[kReactionTime] = reactions * time;
  change[kReactionTime2] = reactions * time * time;
  change[kReactionKev] = reactions * burn_kev;
  change[kRadiated] = radiated;
  change[kAlpha] = alpha;
}

double Motion::mean_radius(const State& state) const {
  double mean = 0;
  for (int c = 0; c < kCones; ++c) mean += directions().weight[c] * state[c * cone_values()];
  return mean;
}

// The smallest mean radius is looked for backward from the last step, which is cheap because the motion ends
// soon after it.
bool Motion::finished(const Trajectory& trajectory) const {
  const State& last = trajectory.state(trajectory.steps() - 1);
  for (int c = 0; c < kCones; ++c)
    if (last[c * cone_values()] <= 0) throw std::runtime_error("a part of the shell reaches the centre");
  const double radius = mean_radius(last);
  if (trajectory.steps() < 2 || radius <= mean_radius(trajectory.state(trajectory.steps() - 2))) return false;
  double smallest = radius;
  for (std::size_t step = trajectory.steps(); step-- > 0;) {
    const double before = mean_radius(trajectory.state(step));
    if (before > smallest) break;
    smallest = before;
  }
  return radius > kRebound * smallest;
}

Moment Motion::moment(const State& state) const {
  Moment moment;
  const Directions& d = directions();
  const int layers = physics_.layers;
  for (int c = 0; c < kCones; ++c) {
    const double* cone = state.data() + c * cone_values();
    moment.inner_radius[c] = cone[0];
    moment.outer_radius[c] = cone[2 * (layers - 1)];
    moment.shell_column[c] = 0;
    moment.mean_cube += d.weight[c] * cone[0] * cone[0] * cone[0];
    for (int layer = 0; layer < layers; ++layer) {
      const double speed = cone[2 * layer + 1];
      moment.kinetic_energy += d.weight[c] * 0.5 * mass_ / layers * speed * speed;
      if (layer + 1 == layers) break;
      const Zone fuel = zone(cone, layer);
      moment.shell_column[c] += fuel.density * (cone[2 * layer + 2] - cone[2 * layer]);
      moment.shell_energy += d.weight[c] * (fuel.cold_energy + cone[2 * layers + layer]);
    }
  }
  const double* extra = state.data() + state.size() - kExtras;
  moment.hot_spot_energy = extra[kEnergy];
  moment.hot_spot_mass = extra[kMass];
  moment.radiated_energy = extra[kRadiated];
  moment.alpha_energy = extra[kAlpha];
  moment.pressure = extra[kEnergy] / (1.5 * kSphere / 3 * moment.mean_cube);
  moment.central_kev = central_temperature_kev(moment.pressure, moment.mean_cube, moment.hot_spot_mass);
  return moment;
}

namespace {

double extra_of(const Trajectory& trajectory, Extra which) {
  const State& last = trajectory.state(trajectory.steps() - 1);
  return last[last.size() - kExtras + which];
}

}  // namespace

double Motion::neutrons() const {
  return extra_of(trajectory_, kReactions);
}

double Motion::bang_time() const {
  return extra_of(trajectory_, kReactionTime) / neutrons();
}

double Motion::burn_deviation() const {
  const double bang = bang_time();
  return std::sqrt(extra_of(trajectory_, kReactionTime2) / neutrons() - bang * bang);
}

double Motion::burn_kev() const {
  return extra_of(trajectory_, kReactionKev) / neutrons();
}

}  // namespace implosion
