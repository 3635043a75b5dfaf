// SPDX-License-Identifier: Apache-2.0
// The main of every GoogleTest program. It lists the skipped tests at the end, as tests/entry.py does for
// Python, and ends with 77, which ctest reports as skipped, only if every chosen test was skipped and none
// failed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

namespace {

void list_skipped(const testing::UnitTest& unit) {
  for (int s = 0; s < unit.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *unit.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      if (!test.should_run() || !test.result()->Skipped()) continue;
      const bool has_reason = test.result()->total_part_count() > 0;
      const char* reason = has_reason ? test.result()->GetTestPartResult(0).message() : "";
      const int first_line = static_cast<int>(std::strcspn(reason, "\n"));
      std::printf("skipped: %s.%s (%.*s)\n", suite.name(), test.name(), first_line, reason);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const int code = RUN_ALL_TESTS();
  const testing::UnitTest& unit = *testing::UnitTest::GetInstance();
  list_skipped(unit);
  const int chosen = unit.test_to_run_count();
  constexpr int kAllSkipped = 77;
  return code == 0 && chosen > 0 && unit.skipped_test_count() == chosen ? kAllSkipped : code;
}
