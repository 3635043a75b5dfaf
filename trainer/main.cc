// SPDX-License-Identifier: Apache-2.0
// The program `wflow-train CONFIG.yaml`.
#include <fmt/format.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/program_file.h"
#include "base/text.h"
#include "base/trainer_mpi.h"
#include "trainer/analysis/analysis.h"
#include "trainer/config.h"
#include "trainer/inference/infer.h"
#include "trainer/model/back_end.h"
#include "trainer/model/layout.h"
#include "trainer/model/network.h"
#include "trainer/parallel/communicator.h"
#include "trainer/predict/predict.h"
#include "trainer/training/rate_finder.h"
#include "trainer/training/scale_plan.h"
#include "trainer/training/trainer.h"

namespace {

using wflow::Error;
using wflow::ExitCode;
namespace trainer = wflow::trainer;

// A signal handler can only reach a static.
volatile std::sig_atomic_t stop_signal = 0;
void remember_signal(int signal) {
  stop_signal = signal;
}

// In braces: a command with mpirun_name().
constexpr std::string_view kExamples = R"(
Examples:
  wflow-train train.yaml                                 train on one core, or continue where the last run stopped
  {:<53}  the same on four ranks
  wflow-train train.yaml --dry-run                       network, parameters, flops, memory, steps
  wflow-train train.yaml --dry-run --grid 2x2x1          what each rank holds and sends if 4 ranks share each sample
  wflow-train train.yaml --plan                          what each grid of the ranks needs in memory
  wflow-train train.yaml --find-rate                     a short run with rising rates, and the rate that it suggests
  wflow-train large.yaml --scale-from small/train        rate, warm-up and batch for large.yaml by a finished small run
  wflow-train train.yaml --fresh                         forget the checkpoints and start anew
  wflow-train predict training shards --split test       what the trained model says of a data set
  wflow-train analyze training                           which inputs matter for the trained model's outputs
  wflow-train infer training --observe y.h5              which parameters made an observation

The least that CONFIG.yaml needs (at top level or under train:):
  data: shards            # what wflow-convert wrote
  output: training        # checkpoints, model.pt, predictions.csv, metrics.csv, result.json

SIGTERM and SIGUSR1 write a checkpoint at the next step and end with exit code 6. With WFLOW_PASS_TIMES=off in the
environment, a plan measures everything, also what earlier plans have measured. docs/train.md has all keys.)";

struct Arguments {
  std::string config;
  bool fresh = false;
  bool fresh_on_new_data = false;
  bool dry_run = false;
  bool plan = false;
  bool json = false;
  std::string grid;
  bool find_rate = false;
  std::vector<std::string> scale_from;
  bool allow_any_ranks = false;
  std::vector<std::string> bit_flips;
  std::vector<std::string> slow_ranks;
};

// Refuses what needs libtorch before any data are read.
void check_build(const trainer::TrainConfig& config) {
  if (trainer::has_torch()) return;
  if (config.members > 1) trainer::needs_torch("'members', whose mean is written as one TorchScript file,");
  if (config.grid.ranks() > 1) trainer::needs_torch("'grid', by which several ranks share a sample,");
}

struct Configuration {
  trainer::TrainConfig train;
  trainer::SearchConfig search;
  std::string warnings;  // a line each
};

Configuration read_configuration(const std::string& path) {
  wflow::yaml::Diagnostics diagnostics(path);
  wflow::yaml::Node root = wflow::yaml::parse(wflow::read_file(path), diagnostics);
  diagnostics.throw_if_errors();
  if (const wflow::yaml::Node* block = root.find("train")) {
    const wflow::yaml::Node inner = *block;
    wflow::yaml::MapReader reader(root, "the file", diagnostics);
    reader.find("train");
    reader.finish();
    root = inner;
  }
  Configuration result{trainer::read_train_config(root, diagnostics), {}, {}};
  diagnostics.throw_if_errors();
  result.warnings = diagnostics.to_string();
  // The search is no part of the training that a checkpoint or model records.
  result.search = std::exchange(result.train.search, {});
  if (result.search.on() && result.search.rung == 0)
    throw Error(ExitCode::spec,
                fmt::format("{}: 'search' compares the trainings of a campaign's step; here is one "
                            "training (docs/train.md, Searching)",
                            path));
  trainer::TrainConfig& config = result.train;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  config.data = (folder / config.data).string();
  config.output = (folder / config.output).string();
  if (!config.stage_folder.empty()) config.stage_folder = (folder / config.stage_folder).string();
  return result;
}

void print_warnings(const Configuration& configuration) {
  if (!configuration.warnings.empty()) std::fprintf(stderr, "%s\n", configuration.warnings.c_str());
}

// For a command of one process.
trainer::TrainConfig read_alone(const std::string& path) {
  Configuration configuration = read_configuration(path);
  print_warnings(configuration);
  return std::move(configuration.train);
}

void check_batch(const trainer::TrainConfig& config, const trainer::Communicator& communicator) {
  if (config.grid.choice != trainer::GridChoice::given) return;  // the planner looks at the batch
  if (communicator.size() / config.tournament.groups() / config.grid.ranks() <= config.batch) return;
  throw trainer::CommonError(ExitCode::spec,
                             fmt::format("{} ranks can't share a batch of {}: start fewer ranks or raise "
                                         "'batch'",
                                         communicator.size(), config.batch));
}

void check_world(const trainer::TrainConfig& config, const trainer::Communicator& communicator,
                 bool allow_any_ranks) {
  // Compare with the number that the task's launcher started: an MPI library that does not find its manager
  // makes each process a world of its own.
  if (const char* asked = std::getenv("WFLOW_WORLD_SIZE"); asked != nullptr && !allow_any_ranks) {
    if (wflow::text::to_integer(asked).value_or(0) == communicator.size())
      return check_batch(config, communicator);
    throw trainer::CommonError(
        ExitCode::system,
        fmt::format(
            "the task was started on {} ranks and MPI ({}) sees {}: its launcher and this program speak "
            "different process interfaces; under srun, say --mpi=pmix for Open MPI and --mpi=pmi2 for MPICH "
            "(docs/cluster.md)",
            asked, communicator.library(), communicator.size()));
  }
  if (config.ranks > 1 && communicator.size() == 1 && !allow_any_ranks) {
    throw trainer::CommonError(
        ExitCode::system,
        fmt::format("the configuration asks for {} ranks and MPI ({}) sees one: was this started without "
                    "mpirun, or by "
                    "another MPI's launcher? Use {} -n {}, or --allow-any-ranks",
                    config.ranks, communicator.library(), wflow::mpirun_name(), config.ranks));
  }
  check_batch(config, communicator);
}

void check_cores(const trainer::TrainConfig& config) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) < config.threads) {
    std::fprintf(stderr,
                 "wflow-train: warning: %lld threads a rank on %d cores; if mpirun has bound the rank to a "
                 "core, start it "
                 "with --bind-to none\n",
                 static_cast<long long>(config.threads), CPU_COUNT(&cores));
  }
}

std::vector<trainer::BitFlip> bit_flips_of(const Arguments& arguments) {
  std::vector<trainer::BitFlip> flips;
  for (const std::string& text : arguments.bit_flips) flips.push_back(trainer::read_bit_flip(text));
  return flips;
}

std::vector<trainer::SlowRank> slow_ranks_of(const Arguments& arguments) {
  std::vector<trainer::SlowRank> slow;
  for (const std::string& text : arguments.slow_ranks) slow.push_back(trainer::read_slow_rank(text));
  return slow;
}

int run(const Arguments& arguments, trainer::Communicator& communicator) {
  const bool leader = communicator.rank() == 0;
  try {
    const Configuration given = [&] {
      try {
        Configuration configuration = read_configuration(arguments.config);
        if (leader) print_warnings(configuration);
        check_build(configuration.train);
        return configuration;
      } catch (const Error& error) {
        throw trainer::CommonError(error.code(), error.what());
      }
    }();
    const trainer::TrainConfig& config = given.train;
    check_world(config, communicator, arguments.allow_any_ranks);
    // The order of sums depends on the number of threads: parts of samples have one each.
    const int threads = config.cuts.on ? 1 : static_cast<int>(config.threads);
    trainer::set_compute_threads(threads, config.deterministic);
    if (leader) check_cores(config);
    std::signal(SIGTERM, remember_signal);
    std::signal(SIGUSR1, remember_signal);
    const trainer::RunOptions options = {
        arguments.fresh,         arguments.fresh_on_new_data, [] { return stop_signal != 0; },
        bit_flips_of(arguments), slow_ranks_of(arguments),    given.search};
    if (arguments.find_rate) {
      trainer::find_rate(config, communicator, options);
      return static_cast<int>(stop_signal != 0 ? ExitCode::interrupted : ExitCode::ok);
    }
    const auto train = config.tournament.part   ? trainer::train_tournament_task
                       : config.tournament.on() ? trainer::train_tournament
                       : config.members > 1     ? trainer::train_members
                                                : trainer::train;
    const trainer::Outcome outcome = train(config, communicator, options);
    return static_cast<int>(outcome == trainer::Outcome::finished ? ExitCode::ok : ExitCode::interrupted);
  } catch (const trainer::CommonError& error) {
    if (leader) std::fprintf(stderr, "wflow-train: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const Error& error) {
    if (communicator.size() == 1) throw;
    std::fprintf(stderr, "wflow-train: rank %d: %s\n", communicator.rank(), error.what());
    communicator.abort(static_cast<int>(error.code()));
  } catch (const std::exception& error) {
    if (communicator.size() == 1) throw;
    std::fprintf(stderr, "wflow-train: rank %d: internal error: %s (please report it)\n", communicator.rank(),
                 error.what());
    communicator.abort(static_cast<int>(ExitCode::internal));
  }
}

void add_threads(CLI::App& command, int& threads) {
  command.add_option("--threads", threads, "threads")->check(CLI::Range(1, 1024))->capture_default_str();
}

void add_split(CLI::App& command, std::string& split) {
  command.add_option("--split", split, "train, validation, test or all, of a data set")
      ->check(CLI::IsMember({"train", "validation", "test", "all"}))
      ->capture_default_str();
}

constexpr const char* kPredictExamples = R"(
Examples:
  wflow predict training points.csv                      a row of predictions for each row of inputs
  wflow predict training shards --split test             predictions beside the truths, errors at the end
  wflow predict network.pt shards -o predictions.h5      of anybody's TorchScript file; fields go to HDF5
  wflow predict training shards --layer latent           the values of a layer, such as an encoder's code
  wflow predict gan/training 100 -o made.h5              100 samples of a generator

DATA is a data set of wflow-convert, or a table with a column for each input of the model. Of a model that reads random numbers
only, DATA is the number of samples to make.)";

struct PredictArguments {
  trainer::PredictOptions options;
  int threads = 1;
};

CLI::App& add_predict(CLI::App& app, PredictArguments& arguments) {
  trainer::PredictOptions& options = arguments.options;
  CLI::App& command = *app.add_subcommand("predict", "what an exported model says of samples");
  command.footer(kPredictExamples);
  command.add_option("MODEL", options.model, "a training's folder, or a TorchScript file")->required();
  command.add_option("DATA", options.data, "a data set's folder, a table (.csv), or a number of samples")
      ->required();
  command.add_option("--seed", options.seed, "of random inputs")->capture_default_str();
  command.add_option("-o,--output", options.output, "file for them: .csv or .h5 [standard output, as CSV]");
  add_split(command, options.split);
  command.add_option("--layer", options.layer,
                     "one output only: a head, or a layer of the network [all heads]");
  command.add_option("--batch", options.batch, "samples a forward pass")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 20))
      ->capture_default_str();
  add_threads(command, arguments.threads);
  return command;
}

constexpr const char* kAnalyzeExamples = R"(
Examples:
  wflow analyze campaign/train                           shares of the variance by input, with 95 % intervals
  wflow analyze training --points 16384 --seed 2         narrower intervals, from other points
  wflow analyze training --gaussian-process              of few samples: beside a Gaussian process of them
  wflow analyze training --folds 5                       its errors by cross-validation: trains five networks

TRAINING is the folder of a finished training whose inputs are numbers. analysis.json and analysis.csv are written into it.)";

struct AnalyzeArguments {
  trainer::AnalyzeOptions options;
  int threads = 1;
};

CLI::App& add_analyze(CLI::App& app, AnalyzeArguments& arguments) {
  trainer::AnalyzeOptions& options = arguments.options;
  CLI::App& command =
      *app.add_subcommand("analyze", "which inputs of a trained network matter, and how sure");
  command.footer(kAnalyzeExamples);
  command.add_option("TRAINING", options.training, "the folder of a finished training")->required();
  command.add_option("--points", options.points, "points of each set of the design, a power of two")
      ->capture_default_str();
  command.add_option("--seed", options.seed, "of the points and of the bootstrap")->capture_default_str();
  command.add_option("--resamples", options.resamples, "bootstrap samples for the intervals")
      ->check(CLI::Range(std::size_t{2}, std::size_t{100000}))
      ->capture_default_str();
  command.add_flag("--gaussian-process", options.gaussian_process,
                   "fit a Gaussian process to the training samples, at most 2,000, and analyze it beside the "
                   "network");
  command
      .add_option(
          "--folds", options.folds,
          "cross-validation: train the network again without each of so many parts of its samples, and "
          "test it on that part")
      ->check(CLI::Range(std::size_t{2}, std::size_t{1000}));
  command.add_option("--data", options.data, "its data set [that of the training]");
  add_threads(command, arguments.threads);
  return command;
}

constexpr const char* kInferExamples = R"(
Examples:
  wflow infer campaign/train --observe observed.h5       draws of the parameters that made an observation
  wflow infer training --observe points.csv -o found     each row is an observation; files go to the folder found
  wflow infer training --calibrate                       test samples: is the truth where the posterior says?
  wflow infer training --observe y.h5 --propose 1000     samples for a further round, for this observation
  wflow infer training --simulator ./libdetector.so --observe y.h5   the random draws of a simulator (docs/traces.md)
  wflow infer training --command "python3 simulator.py" --observe y.h5   of a simulator that speaks PPX

TRAINING is the folder of a finished training with 'loss: mixture' and the parameters as targets. posterior.h5 has the draws,
inference.json their summaries.)";

struct InferArguments {
  trainer::InferOptions options;
  trainer::TraceInferOptions traces;
  std::vector<const CLI::Option*> of_simulators;  // options that need one
  bool unbounded = false;
  int threads = 1;
};

CLI::App& add_infer(CLI::App& app, InferArguments& arguments) {
  trainer::InferOptions& options = arguments.options;
  CLI::App& command = *app.add_subcommand("infer", "which parameters made an observation, and how sure");
  command.footer(kInferExamples);
  command.add_option("TRAINING", options.training, "the folder of a finished training")->required();
  command.add_option("--observe", options.observe,
                     "observations: an HDF5 file with the network's inputs, a table (.csv), or a data set "
                     "[the test samples of the training]");
  add_split(command, options.split);
  command.add_option("--draws", options.draws, "draws for each observation")
      ->check(CLI::Range(std::size_t{100}, std::size_t{10000000}))
      ->capture_default_str();
  command.add_option("--seed", options.seed, "of the draws")->capture_default_str();
  command.add_flag("--calibrate", options.calibrate,
                   "compare the posteriors with the known parameters: coverage and rank statistics");
  command.add_option("--samples", options.samples,
                     "of one observation: write this many draws to samples.csv, to simulate them");
  command.add_option("--propose", options.proposals,
                     "of one observation: write this many samples for a further round to proposals.csv");
  trainer::TraceInferOptions& traces = arguments.traces;
  command.add_option(
      "--simulator", traces.simulator,
      "after a training with 'model: inference': the plugin's library. Its random draws are the "
      "parameters");
  command.add_option("--command", traces.command,
                     "in place of a library: a program that speaks PPX, for a shell. It finds the address in "
                     "$WFLOW_PPX_ADDRESS");
  const std::string group = "With --simulator or --command";
  const auto add = [&](const char* name, auto& value, const char* text) {
    CLI::Option* option = command.add_option(name, value, text)->group(group)->capture_default_str();
    arguments.of_simulators.push_back(option);
    return option;
  };
  add("--method", traces.method,
      "ic: draws that the network proposes; is: draws from the prior; both weighted by the likelihood; rmh: "
      "Markov "
      "chains")
      ->check(CLI::IsMember({"ic", "is", "rmh"}));
  add("--traces", traces.traces, "runs of the simulator for each observation")
      ->check(CLI::Range(std::size_t{10}, std::size_t{1000000000}));
  add("--chains", traces.chains, "rmh: Markov chains")->check(CLI::Range(std::size_t{1}, std::size_t{1000}));
  add("--burn-in", traces.burn_in, "rmh: share of a chain before its first state that counts")
      ->check(CLI::Range(0.0, 0.9));
  add("--observations", traces.observations, "how many of them, from the first on [1; with --calibrate 100]");
  add("--symbol", traces.symbol, "the function that the library exports");
  add("-j,--cores", traces.cores, "cores for the runs [all]");
  command.add_flag("--unbounded", arguments.unbounded,
                   "keep draws outside of the range that the training samples' parameters have");
  command.add_option("-o,--output", options.output, "folder for the files [that of the training]");
  command.add_option("--data", options.data, "data set of the training [as the training names it]");
  add_threads(command, arguments.threads);
  return command;
}

void run_infer(InferArguments& arguments) {
  trainer::InferOptions& options = arguments.options;
  options.bounded = !arguments.unbounded;
  if (arguments.traces.simulator.empty() && arguments.traces.command.empty()) {
    for (const CLI::Option* option : arguments.of_simulators)
      if (option->count() > 0)
        throw Error(ExitCode::usage, fmt::format("{} needs --simulator or --command", option->get_name()));
    return trainer::infer(options);
  }
  if (options.samples + options.proposals > 0 || arguments.unbounded)
    throw Error(ExitCode::usage,
                "--samples, --propose and --unbounded are for trainings with 'loss: mixture', without "
                "--simulator and --command");
  trainer::TraceInferOptions& traces = arguments.traces;
  traces.training = options.training;
  traces.observe = options.observe;
  traces.split = options.split;
  traces.seed = options.seed;
  traces.calibrate = options.calibrate;
  traces.output = options.output;
  traces.data = options.data;
  trainer::infer_traces(traces);
}

int body(int argc, char** argv) {
  wflow::open_output();
  wflow::follow_launcher(trainer::built_with_mpich(), argv);
  CLI::App app("wflow-train: trains a network on a data set of wflow-convert, on any number of MPI ranks.");
  app.footer(fmt::format(kExamples, fmt::format("{} -n 4 wflow-train train.yaml", wflow::mpirun_name())));
  Arguments arguments;
  app.add_option("CONFIG", arguments.config, "YAML file with the training's configuration");
  app.add_flag("--fresh", arguments.fresh,
               "remove earlier checkpoints of the output directory and start anew");
  app.add_flag("--fresh-on-new-data", arguments.fresh_on_new_data,
               "the same if the data have changed since, which is an error otherwise");
  app.add_flag("--dry-run", arguments.dry_run,
               "print network, parameters, flops, memory and steps; train nothing");
  app.add_flag(
      "--plan", arguments.plan,
      "print the memory of each grid of the ranks, and the seconds of a step where the training has planned; "
      "exit code 3 if 'memory' is less than all need; train nothing");
  app.add_flag("--json", arguments.json, "with --plan: for programs")->needs("--plan");
  app.add_option(
         "--grid", arguments.grid,
         "with --dry-run: print the parts, halos and memory of ranks that share each sample, in this many "
         "parts along depth, height and width, in place of those of 'grid'")
      ->type_name("DxHxW");
  app.add_flag(
      "--find-rate", arguments.find_rate,
      "run 120 steps with rising learning rates from the initial weights, print the losses and a rate "
      "to use; train nothing");
  app.add_option("--scale-from", arguments.scale_from,
                 "print rate, warm-up and batch for CONFIG, predicted from finished small trainings with "
                 "'noise_scale'; train nothing")
      ->type_name("FOLDER")
      ->allow_extra_args(false);
  app.add_flag("--allow-any-ranks", arguments.allow_any_ranks,
               "run on one rank though the file says 'ranks: N'");
  app.add_option("--inject-bit-flips", arguments.bit_flips,
                 "test of the guard: flip a bit in memory; weights|activations|gradients|optimizer, then "
                 "step=N, bit=N, seed=N, rank=N after commas")
      ->type_name("WHERE,...")
      ->allow_extra_args(false);
  app.add_option("--inject-slow-rank", arguments.slow_ranks,
                 "test of what is said of slow nodes: ranks sleep in each step, or in a part of the steps; "
                 "seconds=S, then rank=N or host=NAME, and share=P after commas")
      ->type_name("SECONDS,...")
      ->allow_extra_args(false);
  bool check_libtorch = false;
  app.add_flag("--check-libtorch", check_libtorch, "load libtorch, and say which one")
      ->group("");  // wflow doctor
  PredictArguments predict;
  const CLI::App& predict_command = add_predict(app, predict);
  AnalyzeArguments analyze;
  const CLI::App& analyze_command = add_analyze(app, analyze);
  InferArguments infer;
  const CLI::App& infer_command = add_infer(app, infer);
  app.set_version_flag("--version", fmt::format("wflow-train {}{}", wflow::kVersion,
                                                trainer::has_torch() ? "" : " (without libtorch)"));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  if (check_libtorch) {
    trainer::load_torch();
    fmt::print("libtorch {}\n", trainer::torch_version());
    return 0;
  }
  for (const CLI::App* command : {&predict_command, &infer_command, &analyze_command})
    if (command->parsed() && !trainer::has_torch()) trainer::needs_torch("wflow " + command->get_name());
  if (predict_command.parsed()) {
    trainer::set_compute_threads(predict.threads, false);
    trainer::predict(predict.options);
    return 0;
  }
  if (infer_command.parsed()) {
    trainer::set_compute_threads(infer.threads, false);
    run_infer(infer);
    return static_cast<int>(ExitCode::ok);
  }
  if (analyze_command.parsed()) {
    trainer::set_compute_threads(analyze.threads, false);
    trainer::analyze(analyze.options);
    return 0;
  }
  if (arguments.config.empty())
    throw Error(ExitCode::usage, "name the YAML file of the training: wflow-train --help");
  bit_flips_of(arguments);  // reports wrong ones before MPI_Init
  slow_ranks_of(arguments);
  std::optional<trainer::SpaceGrid> grid;
  if (!arguments.grid.empty()) grid = trainer::read_space_grid(arguments.grid);
  if (grid && !arguments.dry_run)
    throw Error(ExitCode::usage,
                "--grid needs --dry-run, which prints the plan: a training has the key 'grid'");
  if (arguments.dry_run) {
    std::fputs(trainer::describe_run(read_alone(arguments.config), grid).c_str(), stdout);
    return 0;
  }
  if (arguments.plan) {
    const trainer::MemoryTable table = trainer::memory_table(read_alone(arguments.config));
    std::fputs(arguments.json ? (table.json.dump(2) + "\n").c_str() : table.text.c_str(), stdout);
    if (!table.refusal.empty()) throw Error(ExitCode::spec, table.refusal);
    return 0;
  }
  if (!arguments.scale_from.empty()) {
    std::vector<trainer::SmallRun> runs;
    for (const std::string& folder : arguments.scale_from) runs.push_back(trainer::read_small_run(folder));
    std::fputs(trainer::describe_scale(read_alone(arguments.config), runs).c_str(), stdout);
    return 0;
  }
  trainer::Communicator communicator(argc, argv);
  return run(arguments, communicator);
}

}  // namespace

int main(int argc, char** argv) {
  return wflow::run_main("wflow-train", body, argc, argv);
}
