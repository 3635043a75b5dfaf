// SPDX-License-Identifier: Apache-2.0
// The target of libFuzzer: reading and planning any text gives a plan or an Error (specs/README.md).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "specs/plan/plan.h"
#include "specs/study/reading.h"

namespace {

using namespace wflow;

constexpr std::size_t kMostBytes = 64 << 10;
constexpr specs::ArrayId kMostArrays = 20;

void look_at(const specs::Plan& plan) {
  WFLOW_CHECK(!specs::describe(plan).empty());
  WFLOW_CHECK(!specs::plan_to_dot(plan).empty());
  specs::plan_to_json(plan);
  const specs::ArrayId arrays = plan.array_count();
  WFLOW_CHECK(arrays > 0);
  for (specs::ArrayId i = 0; i < std::min(arrays, kMostArrays); ++i) {
    const specs::ArrayId array = i % 2 == 0 ? i / 2 : arrays - 1 - i / 2;
    WFLOW_CHECK(plan.task_template(array).array == array);
    for (const specs::Edge& edge : plan.edges(array)) WFLOW_CHECK(edge.parent < arrays);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > kMostBytes) return 0;
  const std::string text(reinterpret_cast<const char*>(data), size);
  specs::ReadOptions options;
  options.directory = std::filesystem::temp_directory_path();
  try {
    const auto read = specs::read_study_text(text, options.directory / "fuzz.yaml", "fuzz.yaml", options);
    // A list of all samples' directories is long, not interesting.
    const bool long_list = read.study.samples && read.study.samples->design.count > 10'000 &&
                           text.find("MERLIN_PATHS_ALL") != std::string::npos;
    if (!long_list) look_at(specs::Plan(read.study, "/campaign"));
  } catch (const Error& error) {
    WFLOW_CHECK(error.code() != ExitCode::internal);
  }
  return 0;
}
