// SPDX-License-Identifier: Apache-2.0
#include "converters/input/arrange.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "converters/convert/test_support.h"

namespace wflow::converters {
namespace {

using Kind = Transform::Kind;

TransformState state_of(const std::vector<std::size_t>& shape, const std::string& layout) {
  std::size_t cells = 1;
  for (const std::size_t length : shape) cells *= length;
  std::vector<float> values(cells);
  std::iota(values.begin(), values.end(), 0.0F);
  TransformState state{{DType::float32, shape, std::vector<std::uint8_t>(cells * sizeof(float))}, layout, 1};
  std::memcpy(state.array.bytes.data(), values.data(), state.array.bytes.size());
  return state;
}

std::vector<double> values_of_state(TransformState state) {
  convert_values(state.array, DType::float64);
  std::vector<double> values(state.array.bytes.size() / sizeof(double));
  std::memcpy(values.data(), state.array.bytes.data(), state.array.bytes.size());
  return values;
}

using Shape = std::vector<std::size_t>;
using Numbers = std::vector<double>;

TransformState applied(TransformState state, const Transform& transform, const Parameters& parameters = {}) {
  apply_transforms({&transform, 1}, parameters, state);
  return state;
}

TEST(Transform, CropTakesTheMiddle) {
  const TransformState cropped = applied(state_of({2, 4, 6}, "CHW"), {.kind = Kind::crop, .numbers = {2, 2}});
  EXPECT_EQ(cropped.array.shape, (Shape{2, 2, 2}));
  EXPECT_EQ(values_of_state(cropped), (Numbers{8, 9, 14, 15, 32, 33, 38, 39}));
  EXPECT_EQ(cropped.array.dtype, DType::float32);
  for (const Numbers& lengths : {Numbers{2}, Numbers{5, 2}, Numbers{2, 2, 2}})
    EXPECT_TRUE(error_of([&] {
                  applied(state_of({2, 4, 6}, "CHW"), {.kind = Kind::crop, .numbers = lengths});
                }).starts_with("4: crop: ["));
}

TEST(Transform, SubcubesLieOneBehindTheOther) {
  const TransformState cut = applied(state_of({2, 4, 4}, "CHW"), {.kind = Kind::subcubes, .a = 2});
  EXPECT_EQ(cut.pieces, 4U);
  EXPECT_EQ(cut.array.shape, (Shape{2, 2, 2}));
  const Numbers values = values_of_state(cut);
  EXPECT_EQ(Numbers(values.begin(), values.begin() + 8), (Numbers{0, 1, 4, 5, 16, 17, 20, 21}));
  EXPECT_EQ(Numbers(values.end() - 8, values.end()), (Numbers{10, 11, 14, 15, 26, 27, 30, 31}));
  EXPECT_TRUE(error_of([&] {
                applied(state_of({3, 4}, "HW"), {.kind = Kind::subcubes, .a = 2});
              }).starts_with("4: the transform 'subcubes' fails: its shape (3, 4) is not divisible by 2"));
  // Steps that keep the shape may follow.
  EXPECT_EQ(values_of_state(applied(cut, {.kind = Kind::scale, .a = 2, .b = 1}))[3], 11);
  EXPECT_TRUE(error_of([&] {
                applied(cut, {.kind = Kind::downsample, .a = 2});
              }).starts_with("3: the transform 'downsample' fails: steps that change the shape"));
}

TEST(Transform, HistogramsOfBlocks) {
  const TransformState counted =
      applied(state_of({4, 4}, "HW"), {.kind = Kind::histogram, .a = 2, .numbers = {0, 5, 10}});
  EXPECT_EQ(counted.layout, "CHW");
  EXPECT_EQ(counted.array.shape, (Shape{2, 2, 2}));
  // Cells 0 1 4 5 | 2 3 6 7 | 8 9 12 13 | 10 11 14 15; 10 is in the last interval, larger values are in none.
  EXPECT_EQ(values_of_state(counted), (Numbers{0.75, 0.5, 0, 0, 0.25, 0.5, 0.5, 0.25}));
}

TEST(Transform, OneHot) {
  TransformState classes = state_of({3}, "T");
  const TransformState hot = applied(classes, {.kind = Kind::one_hot, .a = 3});
  EXPECT_EQ(hot.layout, "CT");
  EXPECT_EQ(hot.array.dtype, DType::uint8);
  EXPECT_EQ(values_of_state(hot), (Numbers{1, 0, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(error_of([&] { applied(classes, {.kind = Kind::one_hot, .a = 2}); }),
            "4: one_hot: 2 takes classes from 0 to 1, and it has the value 2");
  EXPECT_TRUE(error_of([&] {
                applied(state_of({2, 2}, "CT"), {.kind = Kind::one_hot, .a = 8});
              }).starts_with("4: one_hot makes channels"));
}

TEST(Transform, ExpressionsKnowParameters) {
  const std::vector<std::string> names = {"a", "b"};
  const std::vector<double> numbers = {10, 0.5};
  const TransformState result = applied(
      state_of({4}, "T"), {.kind = Kind::expression, .text = "where(x < 2, a, x * b)"}, {names, numbers});
  EXPECT_EQ(values_of_state(result), (Numbers{10, 10, 1, 1.5}));
  EXPECT_EQ(result.array.dtype, DType::float32);
  EXPECT_EQ(error_of([&] {
              applied(state_of({4}, "T"), {.kind = Kind::expression, .text = "x + bb"}, {names, numbers});
            }),
            "3: the expression 'x + bb' needs 'bb', which is neither x nor a parameter; did you mean 'b'?");
}

TEST(Transform, CastsCheckTheRange) {
  TransformState state = state_of({4}, "T");
  const Transform scale{.kind = Kind::scale, .a = 100.4, .b = 0};
  apply_transforms({&scale, 1}, {}, state);
  Array array = state.array;
  EXPECT_EQ(error_of([&] { cast_values(array, DType::uint8); }),
            "4: its value 301.20001220703125 does not fit into dtype: uint8");
  cast_values(array, DType::int16);
  EXPECT_EQ(values_of_state({array, "T", 1}), (Numbers{0, 100, 201, 301}));
}

// In blocks, with and without a step between them that has no kernel: the same bits as step by step.
TEST(Transform, StepsTogetherAreStepsOneByOne) {
  using Kind = Transform::Kind;
  const Transform log1p{.kind = Kind::log1p};
  const Transform clip{.kind = Kind::clip, .a = 0.5, .b = 3};
  const Transform scale{.kind = Kind::scale, .a = 0.3, .b = -0.1};
  const Transform asinh{.kind = Kind::asinh, .a = 2};
  for (const std::size_t count : {1U, 4096U, 10'001U}) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = 0.01F * static_cast<float>(i);
    for (const std::vector<Transform>& steps :
         {std::vector<Transform>{log1p, clip, scale}, {clip, asinh, log1p, scale}, {asinh, asinh, clip}}) {
      TransformState together{{DType::float32, {count}, std::vector<std::uint8_t>(count * sizeof(float))},
                              "W"};
      std::memcpy(together.array.bytes.data(), values.data(), count * sizeof(float));
      TransformState alone = together;
      apply_transforms(steps, {}, together);
      for (const Transform& step : steps) apply_transforms({&step, 1}, {}, alone);
      EXPECT_EQ(together.array.bytes, alone.array.bytes);
    }
  }
}

}  // namespace
}  // namespace wflow::converters
