// SPDX-License-Identifier: Apache-2.0
#include "steps/packed_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>
#include <xxhash.h>

#include <fstream>

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
  EXPECT_EQ(std::filesystem::file_size(directory_ / "host-1-a.0.index"), 4U * 56U);
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
  ASSERT_EQ(::truncate((directory_ / "host-1-a.0.index").c_str(), 2 * 56 + 30), 0);
  EXPECT_TRUE(texts(4).empty());
  PackWriter guardian(directory_, "host-1-a");
  add(guardian, 4, "four again", "");
  EXPECT_EQ(texts(3), (Texts{{"three", ""}}));
  EXPECT_EQ(texts(4), (Texts{{"four again", ""}}));
}

// The limit acts like a full disk: the second entry does not fit.
TEST_F(PackedOutput, GoesOnAfterAnEntryThatCouldNotBeWritten) {
  PackWriter writer(directory_, "host-1-a");
  add(writer, 3, "3", "");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit{2 * 56 + 30, before.rlim_max};
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

TEST_F(PackedOutput, DamageIsSeen) {
  {
    PackWriter writer(directory_, "host-1-a");
    for (specs::Element element = 0; element < 5; ++element)
      add(writer, element, "text of " + std::to_string(element), "and errors");
  }
  const auto index = directory_ / "host-1-a.0.index";
  const auto log = directory_ / "host-1-a.0.log";
  const std::string whole_index = read_file(index);
  const std::string whole_log = read_file(log);
  const auto put = [](const std::filesystem::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  };
  EXPECT_TRUE(packed_damage(directory_, true).empty());
  std::string changed = whole_log;
  changed[changed.find("text of 3") + 8] = '9';
  put(log, changed);
  EXPECT_EQ(texts(2).size(), 1U);
  EXPECT_THROW(texts(3), Error);
  EXPECT_EQ(packed_damage(directory_, true).size(), 1U);
  for (const std::size_t at : {std::size_t{0}, std::size_t{4}, std::size_t{40}}) {
    put(log, whole_log.substr(0, whole_log.size() - at - 1));
    EXPECT_THROW(texts(4), Error);
    EXPECT_FALSE(packed_damage(directory_, false).empty());
  }
  put(log, whole_log);
  // Each byte of the index: the entry is not found, and one can see why.
  for (std::size_t at = 56; at < whole_index.size(); ++at) {
    changed = whole_index;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    put(index, changed);
    std::size_t there = 0;
    for (specs::Element element = 0; element < 5; ++element) there += texts(element).size();
    EXPECT_EQ(there, 4U) << at;
    EXPECT_FALSE(packed_damage(directory_, false).empty());
  }
  put(index, whole_index.substr(0, 3 * 56));
  EXPECT_TRUE(texts(4).empty());
  EXPECT_FALSE(packed_damage(directory_, false).empty());
  std::filesystem::remove(index);
  EXPECT_FALSE(packed_damage(directory_, false).empty());
}

TEST_F(PackedOutput, ANewerIndexIsRefused) {
  {
    PackWriter writer(directory_, "host-1-a");
    add(writer, 1, "text", "");
  }
  const auto index = directory_ / "host-1-a.0.index";
  std::string bytes = read_file(index);
  bytes[7] = '3';
  write_file_durably(index, bytes);
  try {
    texts(1);
    FAIL() << "its entries may have another form";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::version);
  }
  EXPECT_NE(packed_damage(directory_, true).at(0).find("newer wflow"), std::string::npos);
}

// An index from before texts had checksums. A writer leaves it as it is.
TEST_F(PackedOutput, ReadsOlderIndexes) {
  {
    PackWriter writer(directory_, "host-1-a");
    add(writer, 1, "one", "err");
    add(writer, 2, "two", "");
  }
  const auto index = directory_ / "host-1-a.0.index";
  const std::string bytes = read_file(index);
  std::string old;
  for (std::size_t at = 56; at < bytes.size(); at += 56) {
    const std::string fields = bytes.substr(at, 48);
    const auto check = static_cast<std::uint32_t>(XXH3_64bits(fields.data(), fields.size()));
    old += fields + std::string(reinterpret_cast<const char*>(&check), sizeof check);
  }
  write_file_durably(index, old);
  EXPECT_EQ(texts(1), (Texts{{"one", "err"}}));
  EXPECT_TRUE(packed_damage(directory_, true).empty());
  PackWriter later(directory_, "host-1-a");
  add(later, 3, "three", "");
  EXPECT_EQ(read_file(index), old);
  EXPECT_EQ(texts(2), (Texts{{"two", ""}}));
  EXPECT_EQ(texts(3), (Texts{{"three", ""}}));
  PackReader reader(directory_);
  EXPECT_EQ(reader.news().size(), 3U);
  EXPECT_TRUE(reader.news().empty());
}

TEST_F(PackedOutput, FindsNothingWhereNothingIs) {
  EXPECT_TRUE(find_packed(directory_, 0).empty());
}

}  // namespace
}  // namespace wflow::steps
