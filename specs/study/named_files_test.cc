// SPDX-License-Identifier: Apache-2.0
#include "specs/study/named_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wflow::specs {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> named(const std::string& command, const std::string& restart = "") {
  Study study;
  study.file = "/data/s/study.yaml";
  Step step;
  step.command = command;
  step.restart = restart;
  return named_files(study, step);
}

TEST(NamedFiles, AreThoseBesideTheStudy) {
  EXPECT_THAT(named("python3 /data/s/sim.py '/data/s/in/mesh.h5' --table=/data/s/t.csv /other/x.py", "/data/s/again.sh"),
              ElementsAre("sim.py", "in/mesh.h5", "t.csv", "again.sh"));
  EXPECT_THAT(named("cd /data/s/; /data/s/./sim.py; /data/s/sim.py"), ElementsAre("sim.py"));
  EXPECT_THAT(named("/scratch/data/s/sim.py /data/s2/sim.py /data/s/../x.py"), IsEmpty());
}

TEST(NamedFiles, LeaveOutWhatIsWrittenAndWhatVaries) {
  EXPECT_THAT(named("echo a > /data/s/log; echo b >>/data/s/log 2> \"/data/s/err\" &> /data/s/both"), IsEmpty());
  EXPECT_THAT(named("cat /data/s/a | tee -a /data/s/b\ntouch /data/s/c"), ElementsAre("a"));
  EXPECT_THAT(named("sim /data/s/cfg_$(A).yaml /data/s/$(A)/x /data/s/*.py"), IsEmpty());
}

TEST(NamedFiles, AreSwitchedOff) {
  Study study;
  study.file = "/data/s/study.yaml";
  Step step;
  step.command = "/data/s/sim.py";
  step.sources_off = true;
  EXPECT_THAT(named_files(study, step), IsEmpty());
}

}  // namespace
}  // namespace wflow::specs
