// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>

#include "cosmology.h"
#include "universe.h"

namespace {

int report(const char* sentence, cola::ExitCode code) {
  std::fprintf(stderr, "wflow-cola: %s\n", sentence);
  return static_cast<int>(code);
}

// One line for each universe, after its file is safe: a campaign's log is counted by these.
void announce(const cola::UniverseSpec& spec, double seconds) {
  const cola::Cosmology& c = spec.cosmology;
  std::printf("universe %" PRIu64 ": omega_m=%.9g sigma_8=%.9g n_s=%.9g h=%.9g omega_b=%.9g %.2f s\n",
              spec.index, c.omega_m, c.sigma_8, c.n_s, c.h, c.omega_b, seconds);
  if (std::fflush(stdout) != 0) throw cola::Error(cola::ExitCode::output, "cannot write to standard output.");
}

}  // namespace

int main(int argc, char** argv) {
  using Clock = std::chrono::steady_clock;
  // A file size limit then is a failed write with a sentence, as a full disk is.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const auto specs = cola::parse_command_line(argc, argv);
    if (!specs) return 0;
    std::unique_ptr<cola::Simulation> simulation;
    for (const cola::UniverseSpec& spec : *specs) {
      const auto start = Clock::now();
      const int mesh = spec.mesh_or_default();
      if (!simulation || simulation->particles_a_side() != spec.particles || simulation->mesh() != mesh) {
        simulation.reset();  // before the new one is made: a mesh can be most of the memory
        simulation = std::make_unique<cola::Simulation>(spec.particles, mesh);
      }
      const cola::Cubes cubes = cola::make_universe(spec, *simulation);
      cola::write_file_durably(spec.output, cola::density_file_image(spec, cubes));
      announce(spec, std::chrono::duration<double>(Clock::now() - start).count());
    }
    return 0;
  } catch (const cola::Error& error) {
    return report(error.what(), error.code());
  } catch (const std::bad_alloc&) {
    return report("not enough memory for this --mesh and --particles.", cola::ExitCode::failed);
  } catch (const std::exception& error) {
    return report(error.what(), cola::ExitCode::failed);
  }
}
