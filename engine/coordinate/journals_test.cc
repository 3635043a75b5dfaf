// SPDX-License-Identifier: Apache-2.0
#include "engine/coordinate/journals.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "base/clock.h"
#include "base/file.h"
#include "base/process.h"
#include "engine/query/test_campaign.h"
#include "engine/wire/worker_journal.h"

namespace wflow::engine {
namespace {

namespace fs = std::filesystem;

const std::string kWorker = "test-1-orphans";

// Starts a process as a task of the worker would; only init remains as its parent.
pid_t start_orphan(const std::string& worker) {
  const std::string variable = "WFLOW_EVENTS=/tmp/.wflow/workers/" + worker + "/1.events";
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  const char* const command[] = {"sleep", "600", nullptr};
  const char* const environment[] = {variable.c_str(), nullptr};
  ::execve("/bin/sleep", const_cast<char* const*>(command), const_cast<char* const*>(environment));
  ::_exit(1);
}

bool has_environment(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return text.find(kWorker) != std::string::npos;
}

TEST(JournalReading, DoesNotWaitForOrphans) {
  const wire::TemporaryCampaign campaign;
  const pid_t orphan = start_orphan(kWorker);
  ASSERT_GT(orphan, 0);
  while (!has_environment(orphan)) ::usleep(100);  // exec
  JournalReading reading(campaign.path(), {kWorker, true});
  EXPECT_FALSE(reading.take(100)) << "it has only been killed";
  ASSERT_EQ(reading.descriptors().size(), 1U);
  pollfd ended{reading.descriptors()[0], POLLIN, 0};
  ASSERT_EQ(::poll(&ended, 1, 60'000), 1);
  const auto read = reading.take(100.01);
  ASSERT_TRUE(read) << "a zombie is no orphan";
  EXPECT_EQ(read->orphans, 1U);
  EXPECT_TRUE(read->results.empty());
  int status = 0;
  EXPECT_EQ(::waitpid(orphan, &status, 0), orphan);
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST(JournalReading, OfAnotherMachineEndsNoProcess) {
  const wire::TemporaryCampaign campaign;
  JournalReading reading(campaign.path(), {kWorker, false});
  const auto read = reading.take(100);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->orphans, 0U);
}

TEST(JournalReading, SaysThatTheJournalIsMissing) {
  const wire::TemporaryCampaign campaign;
  const fs::path journal = campaign.path() / ".wflow" / "workers" / (kWorker + ".journal");
  EXPECT_FALSE(JournalReading(campaign.path(), {kWorker, false}).take(100)->damaged);
  write_file_durably(wire::count_file(journal), wire::frame_count(0));
  EXPECT_FALSE(JournalReading(campaign.path(), {kWorker, false}).take(100)->damaged) << "it held nothing";
  write_file_durably(wire::count_file(journal), wire::frame_count(13));
  EXPECT_EQ(JournalReading(campaign.path(), {kWorker, false}).take(100)->damaged.value_or(""),
            "the journal is missing: 13 of its results are lost, so that up to 13 finished tasks run again");
  remove_journal(campaign.path(), kWorker);
  EXPECT_FALSE(fs::exists(wire::count_file(journal)));
}

class KnownWorkersTest : public ::testing::Test {
 protected:
  fs::path add_journal(const std::string& worker, bool with_result, std::chrono::hours age) const {
    std::string bytes =
        wire::frame_record(wire::JournalHeader{worker, "default", {"far", "b", "n", 7, 7}, {}, 0, 0});
    wire::Results results;
    results.done.push_back({1, 0, 0, 1, 0, 0, 0, 0});
    if (with_result) bytes += wire::frame_record(results);
    const fs::path file = campaign_.path() / ".wflow" / "workers" / (worker + ".journal");
    write_file_durably(file, bytes);
    fs::last_write_time(file, fs::file_time_type::clock::now() - age);
    return file;
  }
  std::vector<std::string> known() {
    std::vector<std::string> ids;
    for (const KnownWorker& worker : known_workers(campaign_.path(), {}, store_)) ids.push_back(worker.id);
    return ids;
  }
  static store::Store& with_record(const TestCampaign& campaign, std::optional<store::Store>& store) {
    campaign.create_record();
    return store.emplace(campaign.path());
  }

  TestCampaign campaign_{3};
  std::optional<store::Store> opened_;
  store::Store& store_ = with_record(campaign_, opened_);
};

TEST_F(KnownWorkersTest, AJournalOfANewerVersionIsRefusedAndKept) {
  const fs::path file = add_journal("w", true, std::chrono::hours(100));
  std::string bytes = read_file(file);
  for (std::size_t at = 0; (at = bytes.find("WfJ1", at)) != std::string::npos;) bytes[at + 3] = '2';
  write_file_durably(file, bytes);
  try {
    known();
    FAIL() << "its results would be lost";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::version);
    EXPECT_NE(std::string(error.what()).find("newer wflow"), std::string::npos) << error.what();
  }
  EXPECT_EQ(read_file(file), bytes);
}

TEST_F(KnownWorkersTest, AnEmptyJournalThatIsOldIsRemoved) {
  using std::chrono::hours;
  const fs::path forgotten = add_journal("forgotten", false, hours(25));
  const fs::path recent = add_journal("recent", false, hours(1));
  const fs::path result = add_journal("result", true, hours(1000));
  EXPECT_EQ(known(), (std::vector<std::string>{"recent", "result"}));
  EXPECT_FALSE(fs::exists(forgotten));
  EXPECT_TRUE(fs::exists(recent)) << "its worker may just be starting";
  EXPECT_TRUE(fs::exists(result));
}

TEST_F(KnownWorkersTest, AHeldJournalIsThatOfALivingWorker) {
  add_journal("dead", true, std::chrono::hours(1));
  const fs::path journal = add_journal("living", true, std::chrono::hours(1));
  const FileDescriptor held = open_file(journal, O_RDWR);
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  const std::vector<KnownWorker> workers = known_workers(campaign_.path(), {}, store_);
  ASSERT_EQ(workers.size(), 2U);
  EXPECT_EQ(workers[0].id, "dead");
  EXPECT_FALSE(workers[0].locked);
  EXPECT_TRUE(workers[1].locked);
}

// It was killed before it joined: nothing else would ever remove its journal and its folder.
TEST_F(KnownWorkersTest, AnEmptyJournalOfAWorkerThatHasEndedHereIsRemoved) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  wire::JournalHeader header;
  header.worker = "killed";
  header.guardian = identify(child);
  const fs::path journal = campaign_.path() / ".wflow" / "workers" / "killed.journal";
  write_file_durably(journal, wire::frame_record(header));
  make_directories(campaign_.path() / ".wflow" / "workers" / "killed");
  EXPECT_EQ(known(), std::vector<std::string>{"killed"});
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(known().empty());
  EXPECT_TRUE(fs::is_empty(journal.parent_path()));
}

}  // namespace
}  // namespace wflow::engine
