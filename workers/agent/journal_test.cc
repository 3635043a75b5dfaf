// SPDX-License-Identifier: Apache-2.0
#include "workers/agent/journal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "engine/wire/temporary_campaign.h"
#include "engine/wire/worker_journal.h"

namespace wflow::workers {
namespace {

namespace wire = engine::wire;

wire::Results results(std::uint64_t sequence) {
  return {sequence, {{1, 0, sequence, 1, 0, 0, 0, 0}}, {}, {}};
}

wire::JournalHeader header() {
  wire::JournalHeader header;
  header.worker = "w";
  return header;
}

Journal journal_in(const wire::TemporaryCampaign& campaign) {
  return {create_journal_file(campaign.path(), "w"), header()};
}

TEST(Journal, IsALivingWorkersUntilItIsClosed) {
  const wire::TemporaryCampaign campaign;
  {
    Journal journal = journal_in(campaign);
    journal.append(results(1));
    journal.append(results(2));
    EXPECT_FALSE(journal.empty());
    EXPECT_TRUE(wire::find_worker_journals(campaign.path()).at(0).alive);
    EXPECT_THROW(create_journal_file(campaign.path(), "w"), Error);
  }
  const auto left = wire::find_worker_journals(campaign.path());
  ASSERT_EQ(left.size(), 1U);
  EXPECT_FALSE(left[0].alive);
  EXPECT_EQ(left[0].records.results.size(), 2U);
}

TEST(Journal, BeginsAnewWhenCleared) {
  const wire::TemporaryCampaign campaign;
  {
    Journal journal = journal_in(campaign);
    journal.append(results(1));
    journal.clear();
    EXPECT_TRUE(journal.empty());
    journal.append(results(2));
  }
  const auto left = wire::find_worker_journals(campaign.path());
  ASSERT_EQ(left.at(0).records.results.size(), 1U);
  EXPECT_EQ(left[0].records.results[0].sequence, 2U);
}

TEST(Journal, RecoversFromACutRecord) {
  const wire::TemporaryCampaign campaign;
  {
    Journal journal = journal_in(campaign);
    journal.append(results(1));
    const std::string cut = wire::frame_record(results(2)).substr(0, 13);
    const auto fd = open_file(campaign.path() / ".wflow/workers/w.journal", O_WRONLY | O_APPEND);
    write_all(fd.get(), cut, "journal");
    EXPECT_EQ(journal.recover().results.size(), 1U);
    journal.append(results(3));
  }
  const auto left = wire::find_worker_journals(campaign.path());
  ASSERT_EQ(left.at(0).records.results.size(), 2U);
  EXPECT_EQ(left[0].records.results[1].sequence, 3U);
}

// The limit acts like a full disk: the second record does not fit.
TEST(Journal, GoesOnAfterARecordThatCouldNotBeWritten) {
  const wire::TemporaryCampaign campaign;
  {
    Journal journal = journal_in(campaign);
    journal.append(results(1));
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit limit{journal.size() + 13, before.rlim_max};
    const auto handler = ::signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    EXPECT_THROW(journal.append(results(2)), Error);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    ::signal(SIGXFSZ, handler);
    journal.append(results(3));
  }
  const auto left = wire::find_worker_journals(campaign.path());
  ASSERT_EQ(left.at(0).records.results.size(), 2U);
  EXPECT_EQ(left[0].records.results[1].sequence, 3U);
}

// A disk that takes a part of a record, and then refuses to be cut back.
class FailingFile : public JournalFile {
 public:
  explicit FailingFile(std::string& bytes, bool& fails) : bytes_(bytes), fails_(fails) {}
  void append(std::string_view bytes) override {
    bytes_ += fails_ ? bytes.substr(0, 13) : bytes;
    if (fails_) throw Error(ExitCode::system, "full");
  }
  void truncate(std::uint64_t size) override {
    if (fails_) throw Error(ExitCode::system, "broken");
    bytes_.resize(size);
  }
  std::string read() override { return bytes_; }
  void remove() override {}
  void sync() override {}
  void note_results(std::uint64_t count) override { noted_ = count; }
  std::optional<std::uint64_t> noted_results() override { return noted_; }

 protected:
  std::string& bytes_;
  bool& fails_;
  std::optional<std::uint64_t> noted_;
};

// A full disk can be cut back.
class FullFile final : public FailingFile {
 public:
  using FailingFile::FailingFile;
  void truncate(std::uint64_t size) override { bytes_.resize(size); }
};

TEST(Journal, KnowsItsSizeAfterARollBackThatFailed) {
  std::string bytes;
  bool fails = false;
  Journal journal(std::make_unique<FailingFile>(bytes, fails), header());
  journal.append(results(1));
  const std::uint64_t whole = bytes.size();
  fails = true;
  EXPECT_THROW(journal.append(results(2)), Error);
  EXPECT_THROW(journal.append(results(3)), Error);
  EXPECT_EQ(bytes.size(), whole + 13) << "nothing is written behind the rest of a record";
  fails = false;
  journal.append(results(4));
  EXPECT_EQ(bytes.size(), journal.size());
  const wire::Records records = journal.recover();
  EXPECT_FALSE(records.damaged);
  ASSERT_EQ(records.results.size(), 2U);
  EXPECT_EQ(records.results[1].sequence, 4U);
}

// A guardian reads what its agent left: a disk that refuses a truncation costs no results.
TEST(Journal, RecoversFromADiskThatRefusesTruncation) {
  std::string bytes;
  bool fails = false;
  Journal journal(std::make_unique<FailingFile>(bytes, fails), header());
  journal.append(results(1));
  const std::uint64_t whole = bytes.size();
  bytes += "torn";
  fails = true;
  EXPECT_EQ(journal.recover().results.size(), 1U);
  fails = false;
  journal.append(results(2));
  EXPECT_EQ(bytes.substr(whole, 4).find("torn"), std::string::npos);
  EXPECT_EQ(journal.recover().results.size(), 2U);
}

// tests/simulation, with disks that refuse truncations: the count beside the file must stay that of the
// results in it.
TEST(Journal, CountsWhatADiskDidNotClear) {
  std::string bytes;
  bool fails = false;
  auto file = std::make_unique<FailingFile>(bytes, fails);
  FailingFile& disk = *file;
  Journal journal(std::move(file), header());
  journal.append(results(1));
  journal.append(results(2));
  fails = true;
  EXPECT_THROW(journal.clear(), Error);
  fails = false;
  journal.append(results(3));
  EXPECT_EQ(wire::parse_records(bytes).results.size(), 3U);
  EXPECT_EQ(disk.noted_results(), 3U);
}

// A full disk is cut back, and takes no header after that: the next clear() writes it.
TEST(Journal, WritesALaterHeaderThatAFullDiskDidNotTake) {
  std::string bytes;
  bool fails = false;
  Journal journal(std::make_unique<FullFile>(bytes, fails), header());
  journal.append(results(1));
  wire::JournalHeader changed = journal.header();
  changed.lost_s = 600;
  journal.set_header(changed);
  fails = true;
  EXPECT_THROW(journal.clear(), Error);
  fails = false;
  journal.clear();
  EXPECT_EQ(wire::parse_records(bytes).header.value().lost_s, 600);
}

TEST(Journal, SaysHowManyResultsAreGone) {
  const wire::TemporaryCampaign campaign;
  std::uint64_t after_two = 0;
  {
    Journal journal = journal_in(campaign);
    journal.append(results(1));
    journal.clear();
    for (std::uint64_t i = 2; i <= 3; ++i) journal.append(results(i));
    after_two = journal.size();
    for (std::uint64_t i = 4; i <= 6; ++i) journal.append(results(i));
    wire::Results failure;
    failure.outcomes.resize(1);
    journal.append(failure);
  }
  const auto file = campaign.path() / ".wflow/workers/w.journal";
  EXPECT_FALSE(wire::find_worker_journals(campaign.path()).at(0).records.damaged);
  std::filesystem::resize_file(file, after_two);
  const auto left = wire::find_worker_journals(campaign.path());
  EXPECT_EQ(left.at(0).records.results.size(), 2U);
  EXPECT_EQ(left.at(0).records.damaged.missing, 4U);
  EXPECT_EQ(
      left.at(0).records.damaged.sentence(),
      "the journal was cut or replaced: 4 of its results are lost, so that up to 4 finished tasks run again");
}

// The reader reports damaged records and finds the ones behind them.
TEST(Journal, SaysWhatIsDamaged) {
  const wire::TemporaryCampaign campaign;
  Journal journal = journal_in(campaign);
  const std::uint64_t at = journal.size();
  journal.append(results(1));
  journal.append(results(2));
  const auto fd = open_file(campaign.path() / ".wflow/workers/w.journal", O_WRONLY);
  ASSERT_EQ(::pwrite(fd.get(), "x", 1, static_cast<off_t>(at + 20)), 1);
  const wire::Records records = journal.recover();
  ASSERT_EQ(records.results.size(), 1U);
  EXPECT_EQ(records.results[0].sequence, 2U);
  EXPECT_EQ(records.damaged.places, 1U);
}

// A coordinator that looks at any moment finds whose journal it is.
TEST(Journal, SaysAlwaysWhoseItIs) {
  const wire::TemporaryCampaign campaign;
  Journal journal = journal_in(campaign);
  const auto lost_s = [&] {
    return wire::find_worker_journals(campaign.path()).at(0).records.header.value().lost_s;
  };
  EXPECT_EQ(lost_s(), 0);
  journal.append(results(1));
  wire::JournalHeader changed = journal.header();
  changed.lost_s = 600;
  journal.set_header(changed);
  EXPECT_EQ(lost_s(), 600);
  journal.clear();
  EXPECT_TRUE(journal.empty());
  EXPECT_EQ(lost_s(), 600);
  journal.append(results(2));
  EXPECT_EQ(journal.recover().results.size(), 1U);
  journal.clear();
  EXPECT_EQ(lost_s(), 600);
}

TEST(Journal, GoesWhenRemoved) {
  const wire::TemporaryCampaign campaign;
  journal_in(campaign).remove();
  EXPECT_TRUE(wire::find_worker_journals(campaign.path()).empty());
}

}  // namespace
}  // namespace wflow::workers
