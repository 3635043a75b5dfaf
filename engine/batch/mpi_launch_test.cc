// SPDX-License-Identifier: Apache-2.0
#include "engine/batch/mpi_launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace wflow::engine::batch {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
using testing::SizeIs;

MpiLaunch launch(const std::string& manager, MpiLibrary library = MpiLibrary::open_mpi) {
  MpiLaunch launch;
  launch.manager = manager;
  launch.nodes = {"n1", "n2"};
  launch.procs = 3;
  launch.library = library;
  launch.mpi_types = {"pmix", "none", "pmi2"};
  return launch;
}

TEST(MpiLaunch, IsSrunsInSlurm) {
  const auto words = launch_words(launch("slurm"));
  EXPECT_EQ(words.front(), "srun");
  for (const char* word : {"--nodes=2", "--ntasks=3", "--overlap", "--kill-on-bad-exit=1", "--wait=0",
                           "--nodelist=n1,n2", "--mpi=pmix"})
    EXPECT_THAT(words, Contains(word));
  EXPECT_THAT(words, Not(Contains("--exact")));
  EXPECT_THAT(launch_words(launch("slurm", MpiLibrary::mpich)), Contains("--mpi=pmi2"));
}

// Slurm's PMIx numbers the nodes of a step as those of the job: both lists have to be the same.
TEST(MpiLaunch, SlurmsPmixCountsTheNodesOfTheStep) {
  MpiLaunch some = launch("slurm");
  some.nodes = {"n4", "n2"};
  some.job_nodes = {"n1", "n2", "n3", "n4"};
  const auto expected = ElementsAre(Pair("SLURM_PMIX_FENCE", "tree"), Pair("SLURM_JOB_NODELIST", "n2,n4"));
  EXPECT_THAT(launch_variables(some), expected);
  some.options = {"--mpi=pmix_v4"};
  EXPECT_THAT(launch_variables(some), expected);
  some.options = {"--mpi=pmi2"};
  EXPECT_THAT(launch_variables(some), IsEmpty());
}

TEST(MpiLaunch, VariablesAreForPmixOnSeveralNodes) {
  const auto variables = [](const char* manager, const auto& change) {
    MpiLaunch some = launch(manager);
    some.job_nodes = {"n1", "n2", "n3"};
    change(some);
    return launch_variables(some);
  };
  EXPECT_THAT(variables("slurm", [](MpiLaunch&) {}), SizeIs(2));
  EXPECT_THAT(variables("flux", [](MpiLaunch&) {}), IsEmpty());
  EXPECT_THAT(variables("slurm", [](MpiLaunch& some) { some.library = MpiLibrary::mpich; }), IsEmpty());
  EXPECT_THAT(variables("slurm", [](MpiLaunch& some) { some.mpi_types = {"none"}; }), IsEmpty());
  EXPECT_THAT(variables("slurm", [](MpiLaunch& some) { some.nodes = {"n1"}; }), IsEmpty());
  EXPECT_THAT(variables("slurm", [](MpiLaunch& some) { some.job_nodes = {"n1"}; }), IsEmpty());
}

TEST(MpiLaunch, RefusesWhatWouldBeManyWorlds) {
  MpiLaunch wrong = launch("slurm");
  wrong.options = {"--mpi=pmi2"};
  try {
    launch_words(wrong);
    FAIL() << "Open MPI does not speak pmi2";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), HasSubstr("3 worlds of one process"));
  }
  wrong.library = MpiLibrary::mpich;
  EXPECT_THAT(launch_words(wrong), Contains("--mpi=pmi2"));
  wrong.options = {"--mpi=pmix_v4"};
  EXPECT_THROW(launch_words(wrong), Error);
  wrong.library = MpiLibrary::unknown;  // a script: it cannot be known
  EXPECT_THAT(launch_words(wrong), Contains("--mpi=pmix_v4"));
}

TEST(MpiLaunch, LeavesToMpirunWhatSlurmCanNotStart) {
  MpiLaunch without = launch("slurm");
  without.mpi_types = {"none", "pmi2"};
  const auto words = launch_words(without);
  EXPECT_THAT(words.front(), HasSubstr("mpirun"));
  EXPECT_THAT(words, Contains("n1:2,n2:2"));
  EXPECT_THAT(words, Contains("WFLOW_LEASE"));
}

TEST(MpiLaunch, OfOtherManagers) {
  EXPECT_THAT(launch_words(launch("flux")),
              ElementsAre("flux", "run", "--nodes=2", "--ntasks=3", "--requires=hosts:n1,n2"));
  MpiLaunch here = launch("");
  here.nodes.clear();
  EXPECT_THAT(launch_words(here), Contains("--oversubscribe"));
  here.procs = 1;
  EXPECT_THAT(launch_words(here), IsEmpty());
}

TEST(MpiLaunch, LooksForTheLibraryInTheProgram) {
  std::string folder = (std::filesystem::temp_directory_path() / "wflow-launch-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const auto library_of = [&](const std::string& bytes) {
    std::ofstream(folder + "/program", std::ios::binary) << bytes;
    return mpi_library_of(folder + "/program");
  };
  using namespace std::string_literals;
  EXPECT_EQ(library_of("\x7f"
                       "ELF\0libm.so.6\0libmpi.so.40\0"s),
            MpiLibrary::open_mpi);
  EXPECT_EQ(library_of("\x7f"
                       "ELF\0libmpich.so.12\0"s),
            MpiLibrary::mpich);
  EXPECT_EQ(library_of("\x7f"
                       "ELF\0libmpi.so.12\0"s),
            MpiLibrary::mpich)
      << "its interface, of Intel say";
  EXPECT_EQ(library_of("\x7f"
                       "ELF\0libm.so.6\0"s),
            MpiLibrary::unknown);
  EXPECT_EQ(library_of("#!/bin/sh\nexec x libmpi.so.40\n"), MpiLibrary::unknown);
  EXPECT_EQ(mpi_library_of(folder + "/none"), MpiLibrary::unknown);
  std::filesystem::remove_all(folder);
}

TEST(MpiLaunch, ReadsWhatSrunKnows) {
  EXPECT_THAT(
      parse_mpi_types("MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin versions "
                      "available: pmix_v4\n"),
      ElementsAre("pmix", "none", "pmi2"));
  EXPECT_THAT(parse_mpi_types("srun: MPI types are...\nsrun: pmix\nsrun: none\n"),
              ElementsAre("pmix", "none"));
}

}  // namespace
}  // namespace wflow::engine::batch
