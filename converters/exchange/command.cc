// SPDX-License-Identifier: Apache-2.0
#include "converters/commands.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/text.h"
#include "base/yaml.h"
#include "converters/exchange/exchange.h"

namespace wflow::converters {

namespace {

unsigned all_cores() {
  return std::max(1U, std::thread::hardware_concurrency());
}

void add_threads(CLI::App* command, unsigned& threads) {
  threads = all_cores();
  command->add_option("--threads", threads, "threads (default: all cores)")->check(CLI::Range(1, 1024));
}

void add_export(CLI::App& shards, std::function<int()>& chosen) {
  CLI::App* command =
      shards.add_subcommand("export", "write a data set as TFRecord, WebDataset, NPY or Zarr");
  const auto options = std::make_shared<ExportOptions>();
  const std::map<std::string, ExportFormat> formats = {{"tfrecord", ExportFormat::tfrecord},
                                                       {"webdataset", ExportFormat::webdataset},
                                                       {"npy", ExportFormat::npy},
                                                       {"zarr", ExportFormat::zarr}};
  const auto format = std::make_shared<std::string>();
  command->add_option("data", options->data, "the data set")->required();
  command->add_option("out", options->out, "the folder to make")->required();
  command->add_option("--to", *format, "tfrecord, webdataset, npy or zarr")
      ->required()
      ->check(CLI::IsMember({"tfrecord", "webdataset", "npy", "zarr"}));
  command->add_flag("--exact", options->exact, "tfrecord: float64 as bytes, in place of the nearest float32");
  add_threads(command, options->threads);
  command->callback([&chosen, options, format, formats] {
    options->format = formats.at(*format);
    chosen = [options] {
      fmt::print("{}", export_data(*options));
      return 0;
    };
  });
}

void add_rewrite_options(CLI::App* command, const std::shared_ptr<RewriteOptions>& options) {
  const auto size = std::make_shared<std::string>();
  CLI::Option* samples = command->add_option("--shard-samples", options->shard_samples, "samples a block")
                             ->check(CLI::PositiveNumber);
  command
      ->add_option_function<std::string>(
          "--size",
          [options](const std::string& text) {
            const auto bytes = yaml::parse_bytes(text);
            if (!bytes || *bytes <= 0)
              throw Error(ExitCode::usage, fmt::format("--size is a size such as 512MiB, not '{}'", text));
            options->shard_bytes = static_cast<std::uint64_t>(*bytes);
          },
          "about this size a block, as stored (default: 512MiB)")
      ->excludes(samples);
  add_threads(command, options->threads);
}

void print_rewritten(std::function<int()>& chosen, const std::shared_ptr<RewriteOptions>& options) {
  chosen = [options] {
    fmt::print("{}", rewrite_data(*options));
    return 0;
  };
}

void add_merge(CLI::App& shards, std::function<int()>& chosen) {
  CLI::App* command = shards.add_subcommand("merge", "several data sets as one");
  const auto options = std::make_shared<RewriteOptions>();
  const auto paths = std::make_shared<std::vector<std::string>>();
  command->add_option("data", *paths, "the data sets, and the folder to make")->required();
  command->add_flag("--renumber", options->renumber,
                    "new ids for the further data sets: each begins behind the one before");
  add_rewrite_options(command, options);
  command->callback([&chosen, options, paths] {
    if (paths->size() < 3)
      throw Error(ExitCode::usage, "merge needs two data sets or more, and then the folder to make");
    options->sources.assign(paths->begin(), paths->end() - 1);
    options->out = paths->back();
    print_rewritten(chosen, options);
  });
}

// "64x64x64" or "none".
std::vector<std::size_t> read_bricks(const std::string& text) {
  std::vector<std::size_t> bricks;
  if (text == "none") return bricks;
  for (const std::string& word : text::split(text, 'x')) {
    const auto cells = text::to_integer(word);
    if (!cells || *cells < 1 || bricks.size() == kMostRank)
      throw Error(ExitCode::usage,
                  fmt::format("--bricks is the cells of a brick along the last axes, such as 64x64x64, or "
                              "none; not '{}'",
                              text));
    bricks.push_back(static_cast<std::size_t>(*cells));
  }
  return bricks;
}

void add_reshard(CLI::App& shards, std::function<int()>& chosen) {
  CLI::App* command =
      shards.add_subcommand("reshard", "a data set in shards of another size, or with samples in bricks");
  const auto options = std::make_shared<RewriteOptions>();
  const auto data = std::make_shared<std::string>();
  command->add_option("data", *data, "the data set")->required();
  command->add_option("out", options->out, "the folder to make")->required();
  command->add_option_function<std::string>(
      "--bricks", [options](const std::string& text) { options->bricks = read_bricks(text); },
      "store each sample in bricks of so many cells along its last axes: 64x64x64; none: whole");
  add_rewrite_options(command, options);
  command->callback([&chosen, options, data] {
    options->sources = {*data};
    print_rewritten(chosen, options);
  });
}

void add_sort(CLI::App& shards, std::function<int()>& chosen) {
  CLI::App* command =
      shards.add_subcommand("sort", "a data set with its samples in the order of labels and lengths");
  const auto options = std::make_shared<RewriteOptions>();
  const auto data = std::make_shared<std::string>();
  command->add_option("data", *data, "the data set")->required();
  command->add_option("out", options->out, "the folder to make")->required();
  command
      ->add_option(
          "--by", options->sort_by,
          "keys, the first decides: a label or input of one number, or length (of the ragged field): "
          "type,length")
      ->delimiter(',')
      ->required();
  add_rewrite_options(command, options);
  command->callback([&chosen, options, data] {
    options->sources = {*data};
    print_rewritten(chosen, options);
  });
}

void add_import(CLI::App& shards, std::function<int()>& chosen) {
  CLI::App* command = shards.add_subcommand("import", "a public data set as one of ours");
  const auto options = std::make_shared<ImportOptions>();
  const auto paths = std::make_shared<std::vector<std::string>>();
  const auto dtype = std::make_shared<std::string>();
  command->add_option("files", *paths, "files or folders, and the folder to make")->required();
  command->add_option("--layout", "mlperf: CosmoFlow of MLPerf HPC, HDF5 or TFRecord")
      ->required()
      ->check(CLI::IsMember({"mlperf"}));
  command->add_option("--labels", options->labels, "names of the parameters: omega_m,sigma_8")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--shape", options->shape, "TFRecord: lengths of x, channels last: 128,128,128,4")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--dtype", *dtype, "TFRecord: type of x (default: int16 or float32, by its size)")
      ->check(CLI::IsMember(dtype_names()));
  command->add_flag("--physical", options->physical, "HDF5: physPar as the targets, not unitPar");
  command->add_option("--subcubes", options->subcubes, "cut each volume into cubes of this edge");
  command->add_option("--shard-samples", options->shard_samples, "samples a block (default: about 512 MiB)");
  command
      ->add_option("--split", options->split, "parts of files in no folder train or validation: 0.8,0.1,0.1")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--seed", options->seed, "of that split (default: 1)");
  add_threads(command, options->threads);
  command->callback([&chosen, options, paths, dtype] {
    if (paths->size() < 2)
      throw Error(ExitCode::usage, "import needs files or a folder of them, and then the folder to make");
    options->sources.assign(paths->begin(), paths->end() - 1);
    options->out = paths->back();
    if (!dtype->empty()) options->dtype = parse_dtype(*dtype);
    chosen = [options] {
      import_mlperf(*options);
      return 0;
    };
  });
}

}  // namespace

void add_exchange_commands(CLI::App& shards, std::function<int()>& chosen) {
  add_export(shards, chosen);
  add_import(shards, chosen);
  add_merge(shards, chosen);
  add_reshard(shards, chosen);
  add_sort(shards, chosen);
}

}  // namespace wflow::converters
