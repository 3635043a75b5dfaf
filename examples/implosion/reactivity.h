// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace implosion {

// Where the fit of dt_reactivity() holds.
constexpr double kColdestKev = 0.2;
constexpr double kHottestKev = 100;

// <sigma v> of D + T -> n + alpha in a Maxwellian plasma, in m^3/s: the fit of H.-S. Bosch and G. M. Hale,
// Nucl. Fusion 32, 611 (1992), table VII, good to 0.25 %. Below its range 0, above it the value at its end.
double dt_reactivity(double temperature_kev);

}  // namespace implosion
