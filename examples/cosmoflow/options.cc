// SPDX-License-Identifier: Apache-2.0
#include "universe.h"

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>

#include "cosmology.h"

namespace cola {
namespace {

constexpr const char* kFooter = R"(
Examples:
  wflow-cola --omega-m 0.31 --sigma8 0.82 --output universe.h5
  wflow-cola --seed 1 --index 17 --omega-m 0.31 --sigma8 0.82 --box 128 --particles 64 \
             --cells 32 --redshifts 3,1.5,0.5,0 --output out/universe-17.h5
  wflow-cola --seed 1 --rows rows.csv --output 'universe-{index}.h5'
    where rows.csv is    index,omega_m,sigma_8
                         0,0.31,0.82
                         1,0.27,0.91

The file has one dataset, density [redshift, x, y, z], and the parameters as attributes of the root group.
The same options give the same bytes on the same machine. One line is printed for each universe written.

Exit codes: 0 all universes written, 1 a simulation failed, 2 wrong options, 3 the rows file cannot be
read or is wrong, 4 the result cannot be written (universes written before that stay).)";

}  // namespace

std::optional<std::vector<UniverseSpec>> parse_command_line(int argc, char** argv) {
  UniverseSpec spec;
  std::string redshifts = "1,0", assign = "cic", rows;
  CLI::App app(
      "Makes simulated universes: Gaussian initial conditions, 2LPT and COLA particle-mesh steps,\n"
      "stored as cubes of the matter density. One thread a process.");
  app.name("wflow-cola");
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("wflow-cola ") + version());
  app.get_formatter()->column_width(26);
  // CLI11 would print defaults in its own format and types; the help gives them in words.
  app.add_option("--omega-m", spec.cosmology.omega_m, "matter density today, in critical densities [0.3]");
  app.add_option("--sigma8", spec.cosmology.sigma_8, "rms linear density in 8 Mpc/h spheres today [0.8]");
  app.add_option("--n-s", spec.cosmology.n_s, "spectral index [0.96]");
  app.set_help_flag("--help", "Print this help message and exit");  // CLI11 takes its -h for the same as --h
  app.add_option("--h", spec.cosmology.h, "Hubble constant in 100 km/s/Mpc [0.7]");
  app.add_option("--omega-b", spec.cosmology.omega_b, "baryon density, part of --omega-m [0.045]");
  app.add_option("--seed", spec.seed, "64-bit seed of the campaign [0]");
  app.add_option("--index", spec.index, "index of the universe; seed and index fix its phases [0]");
  app.add_option("--box", spec.box, "side of the periodic box in Mpc/h [128]");
  app.add_option("--particles", spec.particles, "particles a side [64]");
  app.add_option("--mesh", spec.mesh, "force mesh cells a side [twice the particles]");
  app.add_option("--cells", spec.cells, "density cells a side [32]");
  app.add_option("--steps", spec.steps, "COLA steps from redshift 9 to 0 [10]");
  app.add_option("--redshifts", redshifts, "channels of the result, in this order, each 0 to 9 [1,0]");
  app.add_option("--assign", assign, "cic: density over mean, float32; ngp: particle counts, uint16 [cic]");
  app.add_option("--rows", rows, "CSV file of universes; its header names options, its values override them");
  app.add_option("--output", spec.output, "HDF5 file to write; {index} stands for the index")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {
    app.exit(request);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw Error(ExitCode::usage, std::string(error.what()) + ". See wflow-cola --help.");
  }
  set_option(spec, "--redshifts", redshifts);
  set_option(spec, "--assign", assign);
  if (spec.output.empty()) throw Error(ExitCode::usage, "--output is empty.");
  if (rows.empty()) {
    check(spec);
    spec.output = expand_output(spec.output, spec.index);
    return std::vector<UniverseSpec>{spec};
  }
  std::ifstream file(rows);
  if (!file) throw Error(ExitCode::input, "cannot read --rows " + rows + ".");
  return read_rows(file, rows, spec);
}

}  // namespace cola
