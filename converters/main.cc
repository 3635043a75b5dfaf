// SPDX-License-Identifier: Apache-2.0
// The command line of wflow-convert: simulation output -> training shards.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/program_file.h"
#include "base/text.h"
#include "converters/commands.h"
#include "converters/convert/conversion.h"
#include "converters/input/sample.h"

namespace {

using namespace wflow;
using namespace wflow::converters;

constexpr const char* kExamples = R"(Examples:
  wflow-convert convert.yaml                    convert all samples of the table, then write the manifest
  wflow-convert convert.yaml --dry-run          only say what would be done
  wflow-convert convert.yaml --block 3 --samples rows.csv
                                                convert one block (what a campaign does as samples end)
  wflow-convert convert.yaml --finish           write the manifest of the converted blocks
  wflow-convert inspect DATA                    summary of a data set: splits, statistics, missing samples
  wflow-convert verify DATA                     read every byte and compare the checksums
  wflow-convert shards --help                   look into a data set, export, import, merge it
  wflow-convert check u.h5 --dataset density --shape 64,64,64 --finite
                                                whether a simulation's file is what it should be

A conversion that was stopped goes on where it was when started again. The keys of the
configuration are in docs/convert.md, the exit codes in docs/exit-codes.md.)";

int run_program(int argc, char** argv) {
  open_output();
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a log shows each block as it ends
  std::signal(SIGXFSZ,
              SIG_IGN);  // a file size limit then is an error of write(2) with a message, not a signal
  CLI::App app("Converts simulation output to sharded training HDF5.", "wflow-convert");
  app.footer(kExamples);
  app.set_version_flag("--version", fmt::format("wflow-convert {}", kVersion));
  app.require_subcommand(0, 1);
  RunOptions options;
  options.threads = std::max(1U, std::thread::hardware_concurrency());
  std::uint64_t block = 0;
  std::string directory;
  app.add_option("config", options.config, "the configuration (YAML; keys at top level or under convert:)");
  auto* block_option = app.add_option("--block", block, "convert this block only");
  auto* rows = app.add_option("--samples", options.rows, "CSV table of the block's rows: id, file, targets");
  auto* finish =
      app.add_flag("--finish", options.finish, "only check the converted blocks and write the manifest");
  std::uint64_t first_blocks = 0;
  auto* first = app.add_option("--first-blocks", first_blocks,
                               "with --finish: a data set of those of the first blocks that are there, while "
                               "others are still converted")
                    ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 32));
  auto* into = app.add_option("--into", options.into, "its folder: a manifest, and links to the shards");
  app.add_option("--threads", options.threads, "threads that read and compress (default: all cores)")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--force", options.force, "convert blocks again that are there already");
  app.add_flag("--dry-run", options.dry_run, "say what would be done");
  rows->needs(block_option);
  finish->excludes(block_option);
  first->needs(finish)->needs(into);
  into->needs(first);
  auto* inspect_command = app.add_subcommand("inspect", "print a summary of a data set");
  inspect_command->add_option("directory", directory, "the data set")->required();
  auto* verify_command = app.add_subcommand("verify", "recompute the checksums of a data set");
  verify_command->add_option("directory", directory, "the data set")->required();
  std::function<int()> shards;
  add_shards_command(app, shards);
  auto* check_command =
      app.add_subcommand("check", "whether a file holds what is expected: one sentence if not");
  OutputCheck expected;
  std::string list;
  check_command->add_option("file", expected.file, "HDF5 or .npy");
  check_command->add_option("--dataset", expected.dataset,
                            "HDF5: its path in the file (default: the only one)");
  check_command->add_option("--shape", expected.shape, "lengths, slowest axis first: 64,64,64")
      ->delimiter(',');
  check_command->add_flag("--finite", expected.finite, "neither NaN nor infinity");
  check_command->add_option("--list", list, "several files, as JSON: what workers do");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    throw Error(ExitCode::usage, fmt::format("{} (--help tells the options)", error.what()));
  }
  if (*inspect_command) {
    fmt::print("{}", describe_dataset(directory));
    return 0;
  }
  if (*verify_command) return verify_and_print(directory.c_str());
  if (shards) return shards();
  if (*check_command) {
    if (list.empty() == expected.file.empty()) throw Error(ExitCode::usage, "check needs a file, or --list");
    for (const OutputCheck& output : list.empty() ? std::vector{expected} : checks_from_json(list))
      check(output);
    return 0;
  }
  if (options.config.empty())
    throw Error(ExitCode::usage, "a configuration file is needed (--help tells more)");
  if (*block_option) options.block = block;
  if (*first) options.first_blocks = first_blocks;
  run_conversion(options);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return wflow::run_main("wflow-convert", run_program, argc, argv);
}
