// SPDX-License-Identifier: Apache-2.0
#include "steps/packed_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "steps/test_samples.h"

namespace wflow::steps {
namespace {

class PackedOutput : public ::testing::Test {
 protected:
  FileDescriptor stream(const std::string& bytes) {
    FileDescriptor fd = open_file(place_.path() + "/stream", O_RDWR | O_CREAT | O_TRUNC);
    ::unlink((place_.path() + "/stream").c_str());
    write_all(fd.get(), bytes, "stream");
    return fd;
  }
  void add(PackWriter& writer, specs::Element element, const std::string& out, const std::string& err,
           std::uint64_t lease = 1, std::uint32_t attempt = 0, double ended_s = 0, std::uint32_t count = 1) {
    const FileDescriptor out_stream = stream(out);
    const FileDescriptor err_stream = stream(err);
    PackedEntry entry;
    entry.element = element;
    entry.lease = lease;
    entry.attempt = attempt;
    entry.ended_s = ended_s;
    entry.count = count;
    writer.append(entry, "== title", out_stream.get(), err_stream.get());
  }
  std::vector<std::pair<std::string, std::string>> texts(specs::Element element) {
    std::vector<std::pair<std::string, std::string>> all;
    for (const auto& found : find_packed(directory_, element))
      all.emplace_back(packed_out(found), packed_err(found));
    return all;
  }
  using Texts = std::vector<std::pair<std::string, std::string>>;

  TemporaryDirectory place_;
  std::filesystem::path directory_ = packed_directory(place_.path());
};

TEST_F(PackedOutput, KeepsBothStreamsOfEveryExecution) {
  PackWriter writer(directory_, "host-1-a");
  add(writer, 5, "out 5\n", "err 5\n");
  add(writer, 6, "", "");
  add(writer, 7, std::string("\0binary", 7), "");
  add(writer, 8, "", "only errors");
  EXPECT_EQ(texts(5), (Texts{{"out 5\n", "err 5\n"}}));
  EXPECT_TRUE(texts(6).empty());
  EXPECT_EQ(texts(7), (Texts{{std::string("\0binary", 7), ""}}));
  EXPECT_EQ(texts(8), (Texts{{"", "only errors"}}));
  EXPECT_EQ(std::filesystem::file_size(directory_ / "host-1-a.0.index"), 3U * 52U);
  EXPECT_EQ(read_file(directory_ / "host-1-a.0.log").substr(0, 21), "== title\nout 5\nerr 5\n");
}

TEST_F(PackedOutput, OrdersExecutionsOfAllWorkersByTheirEnd) {
  PackWriter first(directory_, "host-1-a");
  PackWriter second(directory_, "host-2-b");
  add(second, 3, "second", "", 9, 1, 20);
  add(first, 3, "first", "", 4, 0, 10);
  add(first, 30, "bundle", "", 4, 0, 10, 10);
  EXPECT_EQ(texts(3), (Texts{{"first", ""}, {"second", ""}}));
  EXPECT_EQ(texts(39), (Texts{{"bundle", ""}}));
  EXPECT_TRUE(texts(40).empty());
}

// An agent that was killed between entry and result, and its guardian.
TEST_F(PackedOutput, AnExecutionThatIsEnteredTwiceCountsOnce) {
  {
    PackWriter agent(directory_, "host-1-a");
    add(agent, 3, "text", "");
  }
  PackWriter guardian(directory_, "host-1-a");
  add(guardian, 3, "text", "");
  EXPECT_EQ(texts(3), (Texts{{"text", ""}}));
}

TEST_F(PackedOutput, SurvivesAWriterThatDiedWithinAnEntry) {
  {
    PackWriter agent(directory_, "host-1-a");
    add(agent, 3, "three", "");
    add(agent, 4, "four", "");
  }
  ASSERT_EQ(::truncate((directory_ / "host-1-a.0.index").c_str(), 52 + 30), 0);
  EXPECT_TRUE(texts(4).empty());
  PackWriter guardian(directory_, "host-1-a");
  add(guardian, 4, "four again", "");
  EXPECT_EQ(texts(3), (Texts{{"three", ""}}));
  EXPECT_EQ(texts(4), (Texts{{"four again", ""}}));
}

// As on a full disk: the second entry does not fit.
TEST_F(PackedOutput, GoesOnAfterAnEntryThatCouldNotBeWritten) {
  PackWriter writer(directory_, "host-1-a");
  add(writer, 3, "3", "");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit{52 + 30, before.rlim_max};
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_THROW(add(writer, 4, "4", ""), Error);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  add(writer, 5, "5", "");
  EXPECT_EQ(texts(3), (Texts{{"3", ""}}));
  EXPECT_TRUE(texts(4).empty());
  EXPECT_EQ(texts(5), (Texts{{"5", ""}}));
}

TEST_F(PackedOutput, CutsTheMiddleOutOfWhatIsTooLong) {
  PackWriter writer(directory_, "host-1-a");
  std::string text(kPackedStreamBytes + 1000, 'm');
  text.replace(0, 5, "begin");
  text.replace(text.size() - 3, 3, "end");
  add(writer, 1, text, "");
  add(writer, 2, "after", "");
  const std::string kept = texts(1).at(0).first;
  EXPECT_LE(kept.size(), kPackedStreamBytes);
  EXPECT_TRUE(kept.starts_with("begin"));
  EXPECT_TRUE(kept.ends_with("end"));
  EXPECT_NE(kept.find("bytes are left out here"), std::string::npos);
  EXPECT_EQ(texts(2), (Texts{{"after", ""}}));
}

TEST_F(PackedOutput, FindsNothingWhereNothingIs) {
  EXPECT_TRUE(find_packed(directory_, 0).empty());
}

}  // namespace
}  // namespace wflow::steps
