// SPDX-License-Identifier: Apache-2.0
#include "converters/config.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

#include "base/error.h"

namespace wflow::converters {
namespace {

struct Read {
  ConvertConfig config;
  std::string errors;
};

Read read(const std::string& text) {
  yaml::Diagnostics diagnostics("c.yaml");
  const yaml::Node root = yaml::parse(text, diagnostics);
  Read result{read_convert_config(root, diagnostics), {}};
  result.errors = diagnostics.to_string();
  return result;
}

TEST(ConvertConfig, ReadsBackAsItWasWritten) {
  const std::vector<std::string> texts = {
      "samples: t.csv\noutput: out\n",
      "from: simulate\nfile: u.npy\nsplit: {train: 320, validation: 40, test: 40, seed: 7}\ncount: "
      "400\nshard_samples: 40\n",
      "samples: t.csv\noutput: out\nformat: raw\nshape: [2, 8, 8, 8]\nraw: {dtype: uint16, byte_order: big, "
      "offset: 256}\n"
      "dtype: float32\nchannels: ['z=1', 'z=0']\ntargets: [a, b]\nunits: 'M: #1'\ncompression: none\nlevel: "
      "6\n"
      "check_finite: false\non_missing: fail\nmax_missing: 0.125\ndelete_inputs: true\nname: 007\n"
      "split: {train: 0.7, validation: 0.2}\n",
      "from: simulate\nfile: u.h5\nlayout: CHW\nformat: hdf5\nslice: '0, ::2'\ntargets: [a]\n"
      "split: {train: 0.5, group_by: seed}\n",
      "from: simulate\ninputs: [a, b]\ntargets:\n"
      "  u: {file: [a.npy, b.npy], layout: _HW, pad: [2, 8, 9], pad_value: -1.5, channels: [p, q], units: "
      "K}\n"
      "  e: {file: log, regex: 'E = (\\S+)', match: last, dtype: uint16}\n"
      "  p1: {file: a.npy, narrow: true, transform: [{crop: [4, 5]}, {histogram: [2, 0, 1, 2.5]}, {subcubes: "
      "8}, {expression: 'log(x + b)'}, "
      "{min_max: [-1, 1]}]}\n"
      "  p2: {file: a.npy, transform: [{one_hot: 7}, quantile]}\n"
      "  p3: {file: a.npy, transform: [{quantile: normal}]}\n"
      "  j: {file: r.json, json: $.a.b, chunk: [64, 32]}\n"
      "  q: {file: q.npy, chunk: none}\n"
      "  r: {file: r.bin, shape: [4, 6], raw: {dtype: int16, order: fortran, record_markers: 4}}\n"
      "  g: {file: snap, gadget: {grid: 8, types: [0, 1]}, transform: [log1p, asinh: 2, clip: [0, 5], scale: "
      "[2, 1], "
      "downsample: 2]}\n"
      "  t: {file: t.csv, columns: [x, v]}\n"
      "  n: {file: n.nc, variable: u}\n"
      "  l: {file: l.npy, layout: TC, ragged: T, pad_value: 2}\n"
      "  s: parameter\n"
      "  all: parameters\n"
      "  k: {parameter: kappa}\n"};
  for (const std::string& text : texts) {
    const Read first = read(text);
    EXPECT_EQ(first.errors, "");
    const std::string written = yaml::emit(to_yaml(first.config));
    const Read second = read(written);
    EXPECT_EQ(second.errors, "") << written;
    EXPECT_EQ(second.config, first.config) << written;
  }
}

TEST(ConvertConfig, AllErrorsAtOnceWithPlaceAndSuggestion) {
  const std::string errors =
      read(
          "from: simulate\nfile: u.h5\nformat: hdf\nchanels: [a]\nlevel: 99\nmax_missing: 2\n"
          "targets: [a, a]\nsplit: {train: 0.9, validation: 3, tests: 1}\n")
          .errors;
  for (const char* part :
       {"c.yaml:3:9: error: 'format' must be one of auto, hdf5, npy, npz, raw, netcdf, csv, text, json, "
        "gadget, image, tfrecord, found the text 'hdf'",
        "did you mean 'hdf5'?", "c.yaml:4:1: error: unknown key 'chanels'", "did you mean 'channels'?",
        "c.yaml:5:8: error: 'level' must be between 1 and 12, found 99", "c.yaml:6:14",
        "'targets' names 'a' twice", "mixes counts and fractions", "unknown key 'tests'"}) {
    EXPECT_NE(errors.find(part), std::string::npos) << part << "\nin\n" << errors;
  }
}

TEST(ConvertConfig, BricksFitTheField) {
  const auto errors = [](const std::string& field) {
    return read("from: simulate\ninputs:\n  u: {file: u.npy, " + field + "}\ntargets: [a]\n").errors;
  };
  EXPECT_EQ(errors("layout: CDHW, chunk: [4, 4, 4]"), "");
  EXPECT_NE(errors("layout: _HW, chunk: [4, 4, 4]").find("'chunk' has 3 numbers, and 'layout' names 2 axes"),
            std::string::npos);
  EXPECT_NE(errors("chunk: [4, 0]").find("'chunk' must be between 1 and"), std::string::npos);
  EXPECT_NE(errors("chunk: [1, 1, 1, 1, 1]").find("one to four numbers, or none"), std::string::npos);
  EXPECT_NE(errors("layout: TC, ragged: T, chunk: [8]").find("neither with 'ragged'"), std::string::npos);
}

TEST(ConvertConfig, SourceIsOneOfTwo) {
  EXPECT_NE(read("output: x\n").errors.find("needs one of 'from'"), std::string::npos);
  EXPECT_NE(read("from: a\nfile: b\nsamples: c\n").errors.find("exclude each other"), std::string::npos);
  EXPECT_NE(read("from: a\n").errors.find("'from' needs the key 'file'"), std::string::npos);
  EXPECT_NE(read("samples: a\n").errors.find("needs the key 'output'"), std::string::npos);
  EXPECT_NE(read("- 1\n").errors.find("must be a mapping"), std::string::npos);
}

TEST(ConvertConfig, RawNeedsItsForm) {
  EXPECT_NE(read("samples: t\noutput: o\nformat: raw\n").errors.find("format raw needs 'raw: {dtype: ...}'"),
            std::string::npos);
  EXPECT_NE(read("samples: t\noutput: o\nraw: {dtype: float32}\n").errors.find("need the key 'shape'"),
            std::string::npos);
  EXPECT_NE(read("samples: t\noutput: o\nformat: npy\nshape: [4]\nraw: {dtype: float32}\n")
                .errors.find("'raw' needs format: raw"),
            std::string::npos);
  EXPECT_NE(read("samples: t\noutput: o\nshape: [2, 2, 2, 2, 2]\n").errors.find("at most four axes"),
            std::string::npos);
  EXPECT_NE(read("samples: t\noutput: o\nshape: [2, 4, 4, 4]\nchannels: [a]\n")
                .errors.find("names 1 channels, but 'shape' has 2"),
            std::string::npos);
}

// 24 samples became 22/2/0, and 60 became 50/8/2.
TEST(Split, EvenPartsAreWithinOneSampleOfTheirShareInEveryPrefix) {
  const SplitMap few({}, 24);
  EXPECT_GE(few.size(1), 2U);
  EXPECT_GE(few.size(2), 2U);
  EXPECT_EQ(SplitMap({}, 60).size(0), 48U);
  EXPECT_EQ(SplitMap({}, 60).size(1), 6U);
  const std::vector<std::array<double, 3>> requests = {
      {0.8, 0.1, 0.1}, {0.7, 0.15, 0.15},  {0.5, 0.25, 0},       {0.9, 0.05, 0.05},
      {1, 0, 0},       {0.34, 0.33, 0.33}, {0.625, 0.25, 0.125}, {0.01, 0.005, 0}};
  for (const auto& parts : requests) {
    for (const std::uint64_t seed : {1, 2, 3}) {
      const SplitMap split({.parts = parts, .seed = seed}, 1000);
      std::array<double, 3> seen{};
      for (std::uint64_t sample = 0; sample < 1000; ++sample) {
        if (const auto part = split.of(sample, 0)) ++seen[*part];
        for (std::size_t k = 0; k < 3; ++k)
          ASSERT_LT(std::abs(seen[k] - parts[k] * static_cast<double>(sample + 1)), 1)
              << parts[0] << " at " << sample;
      }
      for (std::size_t k = 0; k < 3; ++k) EXPECT_EQ(static_cast<double>(split.size(k)), seen[k]);
    }
  }
}

TEST(Split, AnEvenSplitDependsOnTheSeedAndNotOnTheNumberOfSamples) {
  const SplitMap before({}, 100), grown({}, 250, {100}), other({.seed = 2}, 100);
  int differ = 0;
  for (std::uint64_t sample = 0; sample < 100; ++sample) {
    EXPECT_EQ(before.of(sample, 1), grown.of(sample, 2));
    differ += before.of(sample, 0) != other.of(sample, 0) ? 1 : 0;
  }
  EXPECT_GT(differ, 10);
  // Not the same place in each ten: the test samples of a grid would have one value of its fast axis.
  std::set<std::uint64_t> places;
  for (std::uint64_t sample = 0; sample < 100; ++sample) {
    if (before.of(sample, 0) == 2U) places.insert(sample % 10);
  }
  EXPECT_GT(places.size(), 4U);
}

TEST(ConvertConfig, TheOrderOfASplit) {
  const std::string head = "samples: t\noutput: o\n";
  EXPECT_EQ(read(head).config.split.order, SplitOrder::even);
  EXPECT_EQ(read(head + "split: {train: 0.5}\n").config.split.order, SplitOrder::even);
  EXPECT_EQ(read(head + "split: {group_by: g}\n").config.split.order, SplitOrder::hash);
  EXPECT_EQ(read(head + "split: {stratify_by: g}\n").config.split.order, SplitOrder::hash);
  EXPECT_EQ(read(head + "count: 4\nsplit: {train: 2, validation: 1, test: 1}\n").config.split.order,
            SplitOrder::count);
  EXPECT_EQ(read(head + "split: {order: hash}\n").config.split.order, SplitOrder::hash);
  EXPECT_NE(read(head + "split: {order: even, group_by: g}\n").errors.find("go with order: hash"),
            std::string::npos);
}

TEST(ConvertConfig, ALayoutThatContradictsTheShapeIsAnError) {
  EXPECT_NE(read("samples: t\noutput: o\nlayout: CDHW\nshape: [4, 4]\n")
                .errors.find("'layout' names 4 axes, and 'shape' has 2"),
            std::string::npos);
  EXPECT_EQ(read("samples: t\noutput: o\nlayout: HW\nshape: [1, 1, 4, 4]\n").errors, "");
}

// By count, too: test samples stay test samples, and each growth is split in the same proportions.
TEST(Split, CountsOfAGrowingCampaignMoveNoSample) {
  const SplitRequest request = {
      .fractions = false, .parts = {160, 20, 20}, .seed = 3, .order = SplitOrder::count};
  const SplitMap before(request, 200);
  const SplitMap once(request, 400, {200});
  const SplitMap twice(request, 450, {200, 400});
  for (std::uint64_t sample = 0; sample < 200; ++sample) {
    EXPECT_EQ(before.of(sample, 0), once.of(sample, 0));
    EXPECT_EQ(before.of(sample, 0), twice.of(sample, 0));
  }
  for (std::uint64_t sample = 200; sample < 400; ++sample) EXPECT_EQ(once.of(sample, 0), twice.of(sample, 0));
  EXPECT_EQ(once.size(0), 320U);
  EXPECT_EQ(twice.size(0), 360U);
  EXPECT_EQ(twice.size(1), 45U);
  EXPECT_EQ(twice.size(2), 45U);
  std::array<std::uint64_t, 3> seen{};
  for (std::uint64_t sample = 0; sample < 450; ++sample) ++seen[twice.of(sample, 0).value()];
  EXPECT_EQ(seen, (std::array<std::uint64_t, 3>{360, 45, 45}));
  EXPECT_THROW(SplitMap(request, 400), Error);
}

TEST(Split, PartsHaveTheAskedSizes) {
  const SplitMap counts({.fractions = false, .parts = {320, 40, 40}, .seed = 3, .order = SplitOrder::count},
                        400);
  std::array<std::uint64_t, 3> seen{};
  for (std::uint64_t i = 0; i < 400; ++i) ++seen[counts.of(i, 0).value()];
  EXPECT_EQ(seen, (std::array<std::uint64_t, 3>{320, 40, 40}));
  const SplitMap fractions({.order = SplitOrder::count}, 37);  // 0.8, 0.1, 0.1
  EXPECT_EQ(fractions.size(0) + fractions.size(1) + fractions.size(2), 37U);
  EXPECT_EQ(fractions.size(0), 30U);
  const SplitMap part({.fractions = true, .parts = {0.5, 0.25, 0}, .seed = 1, .order = SplitOrder::count},
                      100);
  std::size_t unused = 0;
  for (std::uint64_t i = 0; i < 100; ++i) unused += part.of(i, 0) ? 0 : 1;
  EXPECT_EQ(unused, 25U);
}

TEST(Split, WhatDoesNotFitIsSaid) {
  EXPECT_NE(
      read("samples: t\noutput: o\ncount: 10\nsplit: {train: 5, validation: 2, test: 2}\n")
          .errors.find("c.yaml:4:8: error: 'split' does not fit: 5 + 2 + 2 is 9, but there are 10 samples"),
      std::string::npos);
  EXPECT_NE(read("samples: t\noutput: o\nsplit: {train: 0.9, validation: 0.2, test: 0.1}\n")
                .errors.find("more than 1"),
            std::string::npos);
  EXPECT_THROW(SplitMap({.fractions = false, .parts = {1, 1, 1}, .seed = 1, .order = SplitOrder::count}, 4),
               Error);
}

TEST(ConvertConfig, FieldsOfAMapping) {
  const ConvertConfig config =
      read(
          "from: s\ninputs: {theta: {parameters: [a, b]}, u: {file: u.nc, variable: v}}\n"
          "targets: {s8: {parameter: sigma_8}, a: parameter}\n")
          .config;
  ASSERT_EQ(config.fields.size(), 4U);
  EXPECT_FALSE(config.short_form);
  EXPECT_EQ(config.fields[1].selector.format, Format::netcdf);
  EXPECT_EQ(config.fields[1].selector.dataset, "v");
  EXPECT_EQ(config.fields[3].role, Role::target);
  EXPECT_EQ(parameter_columns(config), (std::vector<std::string>{"a", "b", "sigma_8"}));
  EXPECT_EQ(parameter_columns(read("samples: t\noutput: o\n").config), std::nullopt);
}

TEST(ConvertConfig, WrongFieldsAreNamed) {
  const std::string errors =
      read(
          "from: s\ninputs:\n  u: {fiel: u.npy}\n  id: {file: a.npy}\n  v: {file: b.npy, layout: HWX}\n"
          "  w: {regex: 'E = .*', file: log}\n  z: {file: c.npy, layout: CHW, pad: [2, 3]}\ntargets: [a, "
          "a]\n")
          .errors;
  for (const char* part :
       {"c.yaml:3:7: error: unknown key 'fiel' in the field 'u'; did you mean 'file'?",
        "c.yaml:4:3: error: a field can't be named 'id'", "'layout' HWX: 'X' is no axis",
        "'regex' has no group", "'pad' has 2 axes, and 'layout' names 3", "'targets' names 'a' twice",
        "a field without 'file' is read from the sample's own file"}) {
    EXPECT_NE(errors.find(part), std::string::npos) << part << "\nin\n" << errors;
  }
  EXPECT_NE(read("from: s\ninputs: [a]\n").errors.find("'inputs' and 'targets' go together"),
            std::string::npos);
}

TEST(Split, ByHashASampleStaysWhereItIs) {
  const SplitRequest request{
      .fractions = true, .parts = {0.6, 0.2, 0.2}, .seed = 7, .order = SplitOrder::hash, .group_by = {}};
  const SplitMap few(request, 100);
  const SplitMap many(request, 10000);
  std::array<std::uint64_t, 3> seen{};
  for (std::uint64_t i = 0; i < 10000; ++i) {
    const std::uint64_t identity = identity_of(std::to_string(i));
    ++seen[many.of(i, identity).value()];
    if (i < 100) {
      EXPECT_EQ(few.of(i, identity), many.of(i, identity));
    }
  }
  EXPECT_NEAR(static_cast<double>(seen[0]), 6000, 200);
  EXPECT_NEAR(static_cast<double>(seen[1]), 2000, 160);
  // docs/formats/shards.md states the functions: other programs may compute them.
  EXPECT_EQ(identity_of(""), 0xcbf29ce484222325ULL);
  EXPECT_EQ(identity_of("a"), 0xaf63dc4c8601ec8cULL);
  const SplitMap all(
      {.fractions = true, .parts = {1, 0, 0}, .seed = 1, .order = SplitOrder::hash, .group_by = {}}, 10);
  for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_EQ(all.of(i, identity_of(std::to_string(i))), 0U);
}

TEST(ShardSamples, AimAt512MiB) {
  ConvertConfig config;
  config.fields = short_fields({}, {});
  EXPECT_EQ(shard_samples_of(config, 1000), 64U);
  EXPECT_EQ(shard_samples_of(config, 10), 10U);
  EXPECT_EQ(shard_samples_of(config, 100000, std::uint64_t{1} << 20), 512U);
  config.fields[0].shape = {4, 128, 128, 128};  // 32 MiB as float32
  EXPECT_EQ(shard_samples_of(config, 100000), 16U);
  config.shard_samples = 5;
  EXPECT_EQ(shard_samples_of(config, 100000), 5U);
}

TEST(NormalShape, LeadingAxesComeAndGo) {
  using Shape = std::array<std::size_t, 4>;
  EXPECT_EQ(normal_shape({8, 8, 8}), (Shape{1, 8, 8, 8}));
  EXPECT_EQ(normal_shape({5}), (Shape{1, 1, 1, 5}));
  EXPECT_EQ(normal_shape({1, 2, 8, 8, 8}), (Shape{2, 8, 8, 8}));
  EXPECT_FALSE(normal_shape({2, 2, 8, 8, 8}));
  EXPECT_FALSE(normal_shape({8, 0, 8}));
  EXPECT_FALSE(normal_shape({}));
}

}  // namespace
}  // namespace wflow::converters
