// SPDX-License-Identifier: Apache-2.0
// Databases that are damaged, edited, cut or not there: never a silent loss.
#include <SQLiteCpp/SQLiteCpp.h>
#include <signal.h>
#include <sys/wait.h>

#include <functional>

#include "base/error.h"
#include "base/random.h"
#include "engine/store/store_fixture.h"

namespace wflow::engine::store {
namespace {

namespace fs = std::filesystem;

class Damage : public StoreFixture {
 protected:
  void edit(const std::string& sql) {
    SQLite::Database(database_path(campaign_).string(), SQLite::OPEN_READWRITE).exec(sql);
  }
  fs::path log() const { return database_path(campaign_).string() + "-wal"; }
  fs::path mark() const { return campaign_ / ".wflow" / "commits"; }

  // The sentence of the error that `body` throws.
  static std::string sentence(const std::function<void()>& body, ExitCode code = ExitCode::data) {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return {};
  }
  std::string opening_error() {
    return sentence([this] { Store store(campaign_); });
  }

  // Commits elements 0 to count - 1 one by one in a process that then dies: its write-ahead log remains.
  void commit_and_die(Element count) {
    const pid_t child = ::fork();
    if (child == 0) {
      Store store(campaign_);
      for (Element i = 0; i < count; ++i) store.commit(ends({{0, {i, i}, kDone}}));
      ::raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    ASSERT_GT(fs::file_size(log()), 4096u * count);
  }
  void replace_log(const std::string& bytes) {
    fs::remove(log());
    write_file_durably(log(), bytes);
  }
};

TEST_F(Damage, ADatabaseThatIsNone) {
  write_file_durably(database_path(campaign_), std::string(8192, 'x'));
  EXPECT_NE(opening_error().find("damaged"), std::string::npos);
}

TEST_F(Damage, NoDatabase) {
  // A wrong argument rather than damage.
  const auto open = [](const fs::path& campaign) {
    return sentence([&] { Store store(campaign); }, ExitCode::usage);
  };
  EXPECT_NE(open(campaign_ / "nowhere").find("is not a campaign directory"), std::string::npos);
  fs::remove(database_path(campaign_));
  EXPECT_NE(open(campaign_).find("no campaign was started here yet"), std::string::npos);
}

TEST_F(Damage, OfTheWriteAheadLogIsNoticedWhereverItIs) {
  commit_and_die(40);
  const fs::path copy = campaign_.string() + "_copy";
  fs::remove_all(copy);
  fs::copy(campaign_, copy, fs::copy_options::recursive);
  const std::string whole = read_file(log());
  for (std::size_t at = 5; at < whole.size(); at += whole.size() / 13) {
    fs::copy(copy, campaign_, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    replace_log(damaged);
    EXPECT_NE(opening_error().find("of 40 commits"), std::string::npos) << at;
    replace_log(whole.substr(0, at));
    EXPECT_NE(opening_error().find("--accept-loss"), std::string::npos) << at;
  }
  fs::copy(copy, campaign_, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  replace_log(whole);
  EXPECT_EQ(text_of(Store(campaign_).restore()), "0:0-39done ") << "what is whole opens";
  fs::remove_all(copy);
}

TEST_F(Damage, ALossThatIsAcceptedIsInTheHistory) {
  commit_and_die(40);
  const std::string whole = read_file(log());
  replace_log(whole.substr(0, whole.size() / 2));
  EXPECT_FALSE(opening_error().empty());
  EXPECT_FALSE(opening_error().empty()) << "asking again changes nothing";
  DatabaseOptions accept;
  accept.accept_loss = true;
  {
    Store store(campaign_, accept);
    const auto status = store.status_at_rest();
    ASSERT_EQ(status.history.size(), 1u);
    EXPECT_NE(status.history[0].text.find("of 40 commits were lost"), std::string::npos);
    EXPECT_LT(store.restore().ends.at(0).range.last, 39u);
    store.commit(ends({{0, {50, 59}, kDone}}));
  }
  EXPECT_EQ(Store(campaign_, accept).status_at_rest().history.size(), 1u) << "nothing more was lost";
}

TEST_F(Damage, AnOlderCopyOfTheDatabaseIsNoticed) {
  {
    Store store(campaign_);
    store.commit(ends({{0, {0, 9}, kDone}}));
    store.snapshot(campaign_ / "copy.db");
    store.commit(ends({{0, {10, 19}, kDone}}));
    store.next_epoch();
  }
  fs::rename(campaign_ / "copy.db", database_path(campaign_));
  EXPECT_NE(opening_error().find("the last 2 of 3 commits"), std::string::npos);
}

TEST_F(Damage, OfTheMarkItselfLosesNothing) {
  Store(campaign_).commit(ends({{0, {0, 9}, kDone}}));
  for (const char* bytes : {"", "x", "00000000000000000009 00000000000000000000000000000000\n"}) {
    write_file_durably(mark(), bytes);
    EXPECT_EQ(text_of(Store(campaign_).restore()), "0:0-9done ");
    const std::string again = read_file(mark());
    EXPECT_TRUE(again.starts_with("00000000000000000001 ")) << again;
  }
  fs::remove(mark());
  EXPECT_EQ(text_of(Store(campaign_).restore()), "0:0-9done ");
}

TEST_F(Damage, ANewDatabaseBeginsAnew) {
  Store(campaign_).commit(ends({{0, {0, 9}, kDone}}));
  Store::create(campaign_, *plan_);
  EXPECT_EQ(text_of(Store(campaign_).restore()), "");
}

// A disk that gives back other bytes than it got, or fewer: an error, or what was there.
TEST_F(Damage, OfAnyPageIsNoticedOrHarmless) {
  {
    Store store(campaign_);
    for (Element i = 0; i < 90; i += 3) store.commit(ends({{0, {i, i + 1}, i % 2 == 0 ? kDone : kFailed}}));
  }
  const std::string before = text_of(Store(campaign_).restore());
  const std::string whole = read_file(database_path(campaign_));
  std::size_t refused = 0;
  constexpr std::size_t kRounds = 600;
  for (std::size_t round = 0; round < kRounds; ++round) {
    std::string damaged = whole;
    const std::uint64_t number = hash64(round, 1);
    if (round % 10 == 0) {
      damaged.resize(number % whole.size());
    } else {
      damaged[number % whole.size()] ^= static_cast<char>(1 << (round % 8));
    }
    fs::remove(log());
    write_file_durably(database_path(campaign_), damaged);
    try {
      EXPECT_EQ(text_of(Store(campaign_).restore()), before) << round;
    } catch (const Error& error) {
      ++refused;
      EXPECT_TRUE(error.code() == ExitCode::data || error.code() == ExitCode::version ||
                  error.code() == ExitCode::usage)
          << round << ": " << error.what();
    }
  }
  EXPECT_GT(refused, kRounds / 20);
}

TEST_F(Damage, RowsThatContradictTheArraysAreNotBelieved) {
  Batch batch = ends({{0, {0, 39}, kDone}, {0, {50, 59}, kFailed}, {1, {0, 0}, kDone}});
  batch.floors = {{0, {50, 59}, 7}};
  batch.failures.emplace_back().outcome.element = 60;
  Store(campaign_).commit(batch);
  Store(campaign_).restore();
  const std::pair<const char*, const char*> edits[] = {
      {"UPDATE runs SET last = 49 WHERE first = 0 AND array = 0", "its runs add up to 50"},
      {"UPDATE runs SET last = 55 WHERE first = 0 AND array = 0", "has task 50 of simulate twice"},
      {"UPDATE runs SET last = 100 WHERE first = 50", "has tasks 50 to 100 of simulate, which has 100"},
      {"UPDATE runs SET last = 45 WHERE first = 50", "has tasks 50 to 45"},
      {"UPDATE runs SET first = -1 WHERE first = 50", "runs has tasks"},
      {"UPDATE runs SET state = 0 WHERE first = 50", "unknown state 0"},
      {"UPDATE runs SET state = 9 WHERE first = 50", "unknown state 9"},
      {"UPDATE runs SET state = 4 WHERE first = 50", "its runs add up to 50"},
      {"UPDATE runs SET array = 2 WHERE first = 50", "names task array 2 of 2"},
      {"UPDATE runs SET array = -1 WHERE first = 50", "names task array"},
      {"DELETE FROM runs WHERE first = 50", "10 tasks of simulate are failed, but its runs add up to 0"},
      {"UPDATE arrays SET done = 41 WHERE id = 0", "41 tasks of simulate are done"},
      {"UPDATE arrays SET elements = 59 WHERE id = 0", "of simulate, which has 59"},
      {"DELETE FROM arrays WHERE id = 0", "task array 0 is missing"},
      {"UPDATE floors SET last = 1000", "floors has tasks"},
      {"UPDATE attempts SET element = 1000", "attempts has tasks"},
  };
  const std::string whole = read_file(database_path(campaign_));
  for (const auto& [sql, expected] : edits) {
    edit(sql);
    const std::string said = sentence([this] { Store(campaign_).restore(); });
    EXPECT_NE(said.find(expected), std::string::npos) << sql << "\n" << said;
    EXPECT_NE(said.find("wflow snapshot"), std::string::npos) << "what to do";
    write_file_durably(database_path(campaign_), whole);
  }
  Store(campaign_).restore();
}

}  // namespace
}  // namespace wflow::engine::store
