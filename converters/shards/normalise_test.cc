// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/manifest.h"

#include <gtest/gtest.h>

#include <cmath>

namespace wflow::converters {
namespace {

FieldInfo field_of(const Normalisation& normalisation) {
  FieldInfo field;
  field.name = "u";
  field.layout = "CT";
  field.shape = {2, 3};
  field.statistics = {{2, 4, 0, 10, {{0, 0}, {0.5, 2}, {1, 10}}}, {5, 0, 5, 5, {{0, 5}, {0.5, 5}, {1, 5}}}};
  field.normalisation = normalisation;
  return field;
}

std::vector<float> applied(const FieldInfo& field, std::vector<float> values) {
  apply_normalisation(field, values);
  return values;
}

using Floats = std::vector<float>;

TEST(Normalise, EachKind) {
  const Floats values = {2, 6, 10, 5, 5, 5};
  EXPECT_EQ(applied(field_of({}), values), values);
  EXPECT_EQ(applied(field_of({"standardise", 0, 1}), values), (Floats{0, 1, 2, 0, 0, 0}));
  EXPECT_EQ(applied(field_of({"min_max", -1, 1}), {0, 5, 10, 5, 5, 5}), (Floats{-1, 0, 1, -1, -1, -1}));
  EXPECT_EQ(applied(field_of({"quantile", 0, 1, "uniform"}), {0, 2, 6, 5, 5, 5}),
            (Floats{0, 0.5, 0.75, 0.5, 0.5, 0.5}));
  const Floats normal = applied(field_of({"quantile", 0, 1, "normal"}), {2, 6, 99, 5, 5, 5});
  EXPECT_NEAR(normal[0], 0, 1e-6);
  EXPECT_NEAR(normal[1], 0.6744898, 1e-5);  // the upper quartile of a normal distribution
  EXPECT_NEAR(normal[2], 3.7190165, 1e-4);  // beyond the training values: the level 1 - 1e-4
}

TEST(Normalise, AndBack) {
  for (const Normalisation& kind :
       {Normalisation{"standardise", 0, 1}, Normalisation{"min_max", -1, 1},
        Normalisation{"quantile", 0, 1, "uniform"}, Normalisation{"quantile", 0, 1, "normal"}}) {
    const FieldInfo field = field_of(kind);
    const Floats values = {1, 6, 9, 5, 5, 5};
    Floats round = applied(field, values);
    undo_normalisation(field, round);
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(round[i], values[i], 1e-4) << kind.kind << kind.shape;
  }
}

TEST(Normalise, OfSomeChannels) {
  Floats second = {5, 7};
  apply_normalisation(field_of({"standardise", 0, 1}), second, 1, 1);
  EXPECT_EQ(second, (Floats{0, 2}));
}

// The second channel is 5 in all training samples; the same numbers are in python/tests/data_test.py.
TEST(Normalise, AConstantChannelIsShifted) {
  const Floats values = {2, 6, 10, 5, 7, 4.5};
  const FieldInfo standard = field_of({"standardise", 0, 1});
  Floats round = applied(standard, values);
  EXPECT_EQ(round, (Floats{0, 1, 2, 0, 2, -0.5}));
  undo_normalisation(standard, round);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(round[i], values[i], 1e-5);
  const FieldInfo range = field_of({"min_max", -1, 1});
  round = applied(range, values);
  EXPECT_EQ(Floats(round.begin() + 3, round.end()), (Floats{-1, 1, -1.5}));
  undo_normalisation(range, round);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(round[i], values[i], 1e-5);
}

}  // namespace
}  // namespace wflow::converters
