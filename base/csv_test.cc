// SPDX-License-Identifier: Apache-2.0
#include "base/csv.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/random.h"

namespace wflow::csv {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using Rows = std::vector<std::vector<std::string>>;

class CsvTest : public testing::Test {
 protected:
  CsvTest() {
    std::string name = (fs::temp_directory_path() / "wflow-csv-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw Error(ExitCode::system, "no temporary folder");
    folder_ = name;
  }
  ~CsvTest() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  fs::path write(std::string_view text) const {
    std::ofstream(folder_ / "t.csv", std::ios::binary) << text;
    return folder_ / "t.csv";
  }
  Rows rows(std::string_view text) const {
    Reader reader(write(text));
    Rows rows = {reader.header()};
    for (std::vector<std::string> row; reader.next(row);) rows.push_back(row);
    return rows;
  }
  std::string error(std::string_view text) const {
    try {
      rows(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      return error.what();
    }
    return "no error";
  }
  // "number offset text" of each line in [from, to).
  std::vector<std::string> lines(const fs::path& file, std::uint64_t from, std::uint64_t to) const {
    const FileDescriptor fd = open_file(file, O_RDONLY);
    LineReader reader(fd.get(), file, from, to);
    std::vector<std::string> found;
    for (Line line; reader.next(line);)
      found.push_back(std::to_string(line.number) + " " + std::to_string(line.offset) + " " +
                      std::string(line.text));
    return found;
  }

  fs::path folder_;
};

TEST_F(CsvTest, ReadsQuotesBlanksAndLineEnds) {
  EXPECT_EQ(rows("\xef\xbb\xbfid, file ,a\r\n7,\"x, \"\"y\"\"\" , 1.5 \r\n\r\n  \n3,,\" 4 \"  \r\n"),
            (Rows{{"id", "file", "a"}, {"7", "x, \"y\" ", "1.5"}, {"3", "", " 4 "}}));
  EXPECT_EQ(rows("a"), (Rows{{"a"}}));
  EXPECT_EQ(rows("a,b\n\"1\n2\",\"\r\n\"\n3,4"), (Rows{{"a", "b"}, {"1\n2", "\r\n"}, {"3", "4"}}));
}

TEST_F(CsvTest, WhatIsWrittenReadsBack) {
  const std::string alphabet = "ab ,\"\n\r\t;#'";
  for (std::uint64_t round = 0; round < 300; ++round) {
    Rows written = {{"x", "y", "z"}};
    std::string text = "x,y,z\n";
    for (std::uint64_t row = 0; row < 3; ++row) {
      written.emplace_back();
      for (std::uint64_t column = 0; column < 3; ++column) {
        std::string value = "v";  // no blanks at the ends: an unquoted field loses them
        for (std::uint64_t i = 0; i < hash64(round, 9 * row + column) % 6; ++i)
          value += alphabet[hash64(round, 1000 + 100 * row + 10 * column + i) % alphabet.size()];
        value += "w";
        text += (column > 0 ? "," : "") + cell(value);
        written.back().push_back(std::move(value));
      }
      text += '\n';
    }
    EXPECT_EQ(rows(text), written);
  }
  EXPECT_EQ(cell("plain text"), "plain text");
  EXPECT_EQ(cell("a,\"b\""), "\"a,\"\"b\"\"\"");
}

TEST_F(CsvTest, ErrorsNameTheLine) {
  EXPECT_THAT(error(""), HasSubstr("t.csv is empty; a header line was expected"));
  EXPECT_THAT(error("a,b\n\n1,2,3\n"), HasSubstr("t.csv:3: this row has 3 fields, the header has 2"));
  EXPECT_THAT(error("a,b,a\n"), HasSubstr("t.csv:1: two columns are named 'a'"));
  EXPECT_THAT(error("a,b\n1,2\n\"x,1\n3,4\n"), HasSubstr("t.csv:3: a quote does not end"));
  EXPECT_THAT(error(std::string("a,b\n1,\0\n", 8)), HasSubstr("t.csv:2: this is no text file (a zero byte)"));
  try {
    const Reader reader(folder_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("is a directory, a file was expected"));
  }
}

TEST_F(CsvTest, LinesHaveTheirPlaces) {
  const fs::path file = write("\xef\xbb\xbfone\n\nthree");
  EXPECT_THAT(lines(file, 0, 100), ElementsAre("1 0 one", "2 7 ", "3 8 three"));
  EXPECT_THAT(lines(file, 7, 10), ElementsAre("1 7 ", "2 8 th"));
  EXPECT_THAT(lines(file, 13, 100), ElementsAre());
}

// Lines that end at, before and behind the ends of the reader's buffer.
TEST_F(CsvTest, LinesOfAnyLength) {
  constexpr std::size_t kRead = std::size_t{1} << 20;
  std::string text;
  std::vector<std::size_t> lengths = {kRead - 1, 0, kRead, kRead - 2, 3 * kRead + 5, 7, kRead + 1};
  for (const std::size_t length : lengths) text += std::string(length, 'x') + "\n";
  const fs::path file = write(text);
  const FileDescriptor fd = open_file(file, O_RDONLY);
  LineReader reader(fd.get(), file);
  Line line;
  std::uint64_t offset = 0;
  for (const std::size_t length : lengths) {
    ASSERT_TRUE(reader.next(line));
    EXPECT_EQ(line.text.size(), length);
    EXPECT_EQ(line.offset, offset);
    offset += length + 1;
  }
  EXPECT_FALSE(reader.next(line));
  EXPECT_EQ(reader.offset(), text.size());
}

TEST(Csv, SplitsWithoutQuotes) {
  EXPECT_THAT(split("1, 2,,\"x", Separator::comma), ElementsAre("1", " 2", "", "\"x"));
  EXPECT_THAT(split("  1\t2 \v 3,4 ", Separator::blanks), ElementsAre("1", "2", "3,4"));
  EXPECT_EQ(width_of("1,2,", Separator::comma), 3U);
  EXPECT_EQ(width_of(" 1 2 ", Separator::blanks), 2U);
  EXPECT_EQ(without_comment("1 2 # three\r"), "1 2 ");
  EXPECT_EQ(without_comment(" \t# all"), "");
  EXPECT_EQ(without_comment("1,2\r"), "1,2");
}

}  // namespace
}  // namespace wflow::csv
