// SPDX-License-Identifier: Apache-2.0
#include "reactivity.h"

#include <algorithm>
#include <cmath>

namespace implosion {

double dt_reactivity(double temperature_kev) {
  if (temperature_kev < kColdestKev) return 0;
  constexpr double gamow = 34.3827;  // sqrt(keV)
  constexpr double mass = 1124656;   // keV: the reduced mass
  constexpr double c1 = 1.17302e-9, c2 = 1.51361e-2, c3 = 7.51886e-2, c4 = 4.60643e-3, c5 = 1.35e-2,
                   c6 = -1.0675e-4, c7 = 1.366e-5;
  const double t = std::min(temperature_kev, kHottestKev);
  const double theta = t / (1 - t * (c2 + t * (c4 + t * c6)) / (1 + t * (c3 + t * (c5 + t * c7))));
  const double xi = std::cbrt(gamow * gamow / (4 * theta));
  return 1e-6 * c1 * theta * std::sqrt(xi / (mass * t * t * t)) * std::exp(-3 * xi);
}

}  // namespace implosion
