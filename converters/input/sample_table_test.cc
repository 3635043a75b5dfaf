// SPDX-License-Identifier: Apache-2.0
#include "converters/input/sample.h"

#include "converters/convert/test_support.h"

namespace wflow::converters {
namespace {

class SampleTableTest : public FolderTest {
 protected:
  SampleTable read(const std::string& text, const std::vector<std::string>& targets = {},
                   Numbering numbering = Numbering::by_row) {
    write_file_durably(folder_ / "t.csv", text);
    FieldConfig x;
    x.name = "x";
    ConvertConfig config;
    config.fields = short_fields(std::move(x), targets);
    return read_sample_table(folder_ / "t.csv", config, numbering);
  }
  std::string why(const std::string& text, const std::vector<std::string>& targets = {},
                  Numbering numbering = Numbering::by_row) {
    return error_of([&] { read(text, targets, numbering); });
  }
};

TEST_F(SampleTableTest, ColumnsQuotesAndOrder) {
  const SampleTable table =
      read("\xef\xbb\xbfid, file ,a,b\r\n7,\"x, y.npy\",1.5,-2e3\r\n\r\n3,/abs/z.npy, 4 ,0.1\r\n");
  EXPECT_EQ(table.columns, (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_EQ(table.rows[0].id, 3);  // ascending
  EXPECT_EQ(table.rows[0].number, 0U);
  EXPECT_EQ(table.rows[0].file.get(), "/abs/z.npy");
  EXPECT_EQ(table.rows[1].file.get(), folder_ / "x, y.npy");
  EXPECT_EQ(table.rows[1].parameters, (std::vector<double>{1.5, -2000}));
}

TEST_F(SampleTableTest, ChosenTargetsAndNumbers) {
  const SampleTable table = read("file,id,a,note\nx,12,1,hello\n", {"a"}, Numbering::by_id);
  EXPECT_EQ(table.columns, (std::vector<std::string>{"a"}));
  EXPECT_EQ(table.rows[0].number, 12U);
}

TEST_F(SampleTableTest, ErrorsNameTheLine) {
  EXPECT_NE(why("file,a\nx,1\ny,2,3\n").find("t.csv:3: this row has 3 fields, the header has 2"),
            std::string::npos);
  EXPECT_NE(why("file,a\nx,one\n").find("t.csv:2: 'one' in column 'a' is not a number"), std::string::npos);
  EXPECT_NE(why("files,a\nx,1\n").find("there is no column 'file'; did you mean 'files'?"),
            std::string::npos);
  EXPECT_NE(why("file,omega_m\nx,1\n", {"omega"}).find("there is no column 'omega'"), std::string::npos);
  EXPECT_NE(why("file,a,a\nx,1,1\n").find("two columns are named 'a'"), std::string::npos);
  EXPECT_NE(why("file,id\nx,1\ny,1\n").find("has the id 1 twice"), std::string::npos);
  EXPECT_NE(why("file,id\nx,-1\n").find("not a whole number"), std::string::npos);
  EXPECT_NE(why("file,a\nx,1\n", {}, Numbering::by_id).find("no column 'id'"), std::string::npos);
  EXPECT_NE(why("file,a\n\"x,1\n").find("a quote does not end"), std::string::npos);
  EXPECT_NE(why("file,a\n").find("has no rows"), std::string::npos);
  EXPECT_NE(why("").find("is empty"), std::string::npos);
}

}  // namespace
}  // namespace wflow::converters
