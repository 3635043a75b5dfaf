// SPDX-License-Identifier: Apache-2.0
#include "converters/commands.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/error.h"
#include "converters/convert/conversion.h"
#include "converters/look/look.h"

namespace wflow::converters {

namespace {

struct ShardsOptions {
  std::string data;
  std::string other;
  std::string split = "train";
  std::string field;
  std::string png;
  std::int64_t id = 0;
  bool lineage = false;
  std::size_t count = 5;
  double tolerance = 0;
};

using Options = std::shared_ptr<ShardsOptions>;

CLI::App* add(CLI::App& shards, const char* name, const char* what, const Options& options,
              const char* of = "the data set") {
  CLI::App* command = shards.add_subcommand(name, what);
  command->add_option("data", options->data, of)->required();
  return command;
}

// Runs `text` and prints its result.
template <typename Text>
void print_with(CLI::App* command, std::function<int()>& chosen, Text text) {
  command->callback([&chosen, text] {
    chosen = [text] {
      fmt::print("{}", text());
      return 0;
    };
  });
}

void add_mosaic(CLI::App& shards, std::function<int()>& chosen) {
  CLI::App* command =
      shards.add_subcommand("mosaic", "slices of many samples as one PNG, placed by two parameters");
  const auto options = std::make_shared<MosaicOptions>();
  command->add_option("data", options->data, "the data set")->required();
  command->add_option("--png", options->png, "the picture to write")->required();
  command->add_option("--split", options->split, "train, validation or test (default: train)");
  command->add_option("--field", options->field, "the field shown (default: the first of two or more axes)");
  command
      ->add_option("--parameters", options->parameters,
                   "one or two of them: to the right, upwards (default: the first two that vary)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->expected(1, 2);
  command->add_option("--grid", options->grid, "tiles a side at most (default: 16)")
      ->check(CLI::Range(1, 256));
  command->add_option("--tile", options->tile, "pixels a side of a tile at most (default: 64)")
      ->check(CLI::Range(1, 4096));
  print_with(command, chosen, [options] { return draw_mosaic(*options); });
}

constexpr const char* kFooter = R"(Examples:
  wflow shards ls DATA                          the files of a data set
  wflow shards info DATA/train/shard-00000.h5   fields, chunks, filters and sizes of one file
  wflow shards verify DATA                      read every byte, compare the checksums
  wflow shards head DATA --split test -n 3      the first samples
  wflow shards table DATA > samples.csv         id, split and targets of every sample
  wflow shards sample DATA 17 --field u         one sample: where it came from, values, a picture
  wflow shards sample DATA 17 --png u.png
  wflow shards stats DATA                       distributions; constant fields, duplicates, outliers
  wflow shards summary DATA                     fields, histograms, splits and some samples as JSON
  wflow shards diff DATA OTHER --tolerance 1e-6 two data sets, sample by sample (exit code 4: they differ)
  wflow shards sample DATA 17 --lineage         its files, parameters, task, worker, time, version of the study
  wflow shards mosaic DATA --png all.png        slices of many samples, placed by two parameters
  wflow shards export DATA OUT --to zarr        for other tools: tfrecord, webdataset, npy, zarr
  wflow shards import --layout mlperf DIR OUT   CosmoFlow of MLPerf HPC: HDF5 or TFRecord files
  wflow shards merge A B OUT                    several data sets as one
  wflow shards reshard DATA OUT --size 512MiB   the same samples in shards of another size
  wflow shards reshard DATA OUT --bricks 64x64x64 each sample in bricks, for ranks that share samples
  wflow shards sort DATA OUT --by type,length   the same samples, with those that are alike side by side)";

}  // namespace

int verify_and_print(const char* directory) {
  const Verification result = verify_dataset(directory);
  for (const std::string& problem : result.problems) fmt::print("{}\n", problem);
  if (result.problems.empty()) {
    fmt::print("{} shards are as they were written\n", result.shards);
    return static_cast<int>(ExitCode::ok);
  }
  throw Error(ExitCode::data,
              fmt::format("{} is damaged, as listed above; convert the blocks concerned again with --force",
                          directory));
}

void add_shards_command(CLI::App& app, std::function<int()>& chosen) {
  CLI::App* shards = app.add_subcommand("shards", "look into a data set");
  shards->require_subcommand(1);
  shards->footer(kFooter);
  const auto options = std::make_shared<ShardsOptions>();
  print_with(add(*shards, "ls", "list the shards of a data set", options), chosen,
             [options] { return list_shards(options->data); });
  print_with(add(*shards, "info", "one shard: fields, chunks, filters, sizes", options, "a shard (.h5)"),
             chosen, [options] { return describe_shard(options->data); });
  add(*shards, "verify", "recompute the checksums", options)->callback([&chosen, options] {
    chosen = [options] { return verify_and_print(options->data.c_str()); };
  });
  CLI::App* head = add(*shards, "head", "the first samples of a split", options);
  head->add_option("--split", options->split, "train, validation or test (default: train)");
  head->add_option("-n,--count", options->count, "how many (default: 5)");
  print_with(head, chosen, [options] { return show_head(options->data, options->split, options->count); });
  add(*shards, "table", "a row for each sample: id, split, targets that are numbers", options)
      ->callback([&chosen, options] {
        chosen = [options] {
          print_samples(options->data);
          return 0;
        };
      });
  CLI::App* sample = add(*shards, "sample", "one sample: lineage, values, a picture", options);
  sample->add_option("id", options->id, "its number")->required();
  sample->add_option("--field", options->field,
                     "the field of the picture (default: the first of two or more axes)");
  sample->add_option("--png", options->png, "write the picture to this file");
  sample->add_flag("--lineage", options->lineage,
                   "files, parameters, task, worker, time and version of the study");
  print_with(sample, chosen, [options] {
    return options->lineage ? show_lineage(options->data, options->id)
                            : show_sample(options->data, options->id, options->field, options->png);
  });
  add_mosaic(*shards, chosen);
  print_with(add(*shards, "stats", "distributions, and what looks wrong", options), chosen,
             [options] { return show_statistics(options->data); });
  CLI::App* summary = add(*shards, "summary", "what wflow report shows, as JSON", options);
  summary->add_option("-n,--count", options->count, "samples (default: 5)");
  print_with(summary, chosen, [options] { return summarise(options->data, options->count); });
  add_exchange_commands(*shards, chosen);
  CLI::App* diff = add(*shards, "diff", "compare two data sets, sample by sample", options);
  diff->add_option("other", options->other, "the other data set")->required();
  diff->add_option("--tolerance", options->tolerance, "how far values may differ (default: 0)");
  diff->callback([&chosen, options] {
    chosen = [options] {
      const Comparison result = compare_data(options->data, options->other, options->tolerance);
      fmt::print("{}", result.text);
      return static_cast<int>(result.same ? ExitCode::ok : ExitCode::data);
    };
  });
}

}  // namespace wflow::converters
