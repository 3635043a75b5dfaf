// SPDX-License-Identifier: Apache-2.0
#include "specs/samples/samples.h"

#include <gsl/gsl_qrng.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/random.h"
#include "base/text.h"
#include "specs/plan/template.h"
#include "specs/study/test_study.h"

namespace wflow::specs {
namespace {

SampleDesign design(DesignKind kind, std::size_t columns, std::uint64_t count, std::uint64_t seed) {
  SampleDesign result;
  result.kind = kind;
  result.count = count;
  result.seed = seed;
  for (std::size_t i = 0; i < columns; ++i) {
    SampleColumn column;
    column.name = "p" + std::to_string(i);
    result.columns.push_back(column);
  }
  return result;
}

double number(const SampleTable& table, std::uint64_t row, std::size_t column) {
  return text::to_real(table.text(row, column)).value_or(NAN);
}

struct FreeGenerator {
  void operator()(gsl_qrng* generator) const { gsl_qrng_free(generator); }
};
using Generator = std::unique_ptr<gsl_qrng, FreeGenerator>;

TEST(Sobol, IsGslsSequence) {
  const Generator gsl(gsl_qrng_alloc(gsl_qrng_sobol, 40));
  const auto table = open_samples(design(DesignKind::sobol, 40, 5000, 0));
  std::vector<double> point(40);
  for (std::uint64_t row = 0; row < 5000; ++row) {
    gsl_qrng_get(gsl.get(), point.data());
    for (std::size_t i = 0; i < 40; ++i) ASSERT_EQ(number(*table, row, i), point[i]) << row << " " << i;
  }
}

TEST(Sobol, HasLargeIndices) {
  const Sobol sequence(3);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_LT(sequence.bits((std::uint64_t{1} << 50) + 12345, i), std::uint64_t{1} << Sobol::kBits);
}

// Every elementary interval of the first 2^10 points holds as many as every other, shifted or not.
TEST(Sobol, StaysANetWhenShifted) {
  for (const std::uint64_t seed : {1, 2, 77}) {
    const auto table = open_samples(design(DesignKind::sobol, 2, 1024, seed));
    std::set<std::pair<int, int>> cells;
    for (std::uint64_t row = 0; row < 1024; ++row) {
      cells.emplace(static_cast<int>(number(*table, row, 0) * 32),
                    static_cast<int>(number(*table, row, 1) * 32));
    }
    EXPECT_EQ(cells.size(), 1024U) << seed;
  }
}

TEST(Halton, IsGslsSequence) {
  const Generator gsl(gsl_qrng_alloc(gsl_qrng_halton, 20));
  const auto table = open_samples(design(DesignKind::halton, 20, 2000, 0));
  std::vector<double> point(20);
  for (std::uint64_t row = 0; row < 2000; ++row) {
    gsl_qrng_get(gsl.get(), point.data());
    for (std::size_t i = 0; i < 20; ++i)
      ASSERT_NEAR(number(*table, row, i), point[i], 1e-14) << row << " " << i;
  }
}

TEST(Designs, OldRowsStayWhenRowsAreAdded) {
  for (const DesignKind kind : {DesignKind::sobol, DesignKind::halton, DesignKind::uniform}) {
    const auto few = open_samples(design(kind, 4, 100, 5));
    const auto many = open_samples(design(kind, 4, 1000000, 5));
    for (std::uint64_t row = 0; row < 100; ++row) {
      for (std::size_t i = 0; i < 4; ++i) ASSERT_EQ(few->text(row, i), many->text(row, i));
    }
  }
}

TEST(Designs, TheSeedMatters) {
  for (const DesignKind kind :
       {DesignKind::sobol, DesignKind::halton, DesignKind::uniform, DesignKind::latin_hypercube}) {
    const auto one = open_samples(design(kind, 2, 100, 1));
    const auto other = open_samples(design(kind, 2, 100, 2));
    EXPECT_NE(one->text(3, 1), other->text(3, 1)) << name_of(kind);
  }
}

TEST(Designs, FillTheBox) {
  for (const DesignKind kind :
       {DesignKind::sobol, DesignKind::halton, DesignKind::uniform, DesignKind::latin_hypercube}) {
    SampleDesign box = design(kind, 3, 4096, 9);
    box.columns[0].low = -2;
    box.columns[0].high = 6;
    box.columns[1].low = 1e-3;
    box.columns[1].high = 1e3;
    box.columns[1].log = true;
    box.columns[2].low = 1;
    box.columns[2].high = 6;
    box.columns[2].integer = true;
    const auto table = open_samples(box);
    double sum = 0;
    double log_sum = 0;
    std::map<std::string, int> faces;
    for (std::uint64_t row = 0; row < 4096; ++row) {
      const double x = number(*table, row, 0);
      const double y = number(*table, row, 1);
      ASSERT_TRUE(x >= -2 && x <= 6 && y >= 1e-3 && y <= 1e3);
      sum += x;
      log_sum += std::log10(y);
      ++faces[table->text(row, 2)];
    }
    EXPECT_NEAR(sum / 4096, 2, 0.15) << name_of(kind);
    EXPECT_NEAR(log_sum / 4096, 0, 0.1) << name_of(kind);
    ASSERT_EQ(faces.size(), 6U);
    for (const auto& [face, count] : faces) EXPECT_NEAR(count, 4096 / 6.0, 100) << face;
  }
}

TEST(LatinHypercube, HasOneSampleAStratum) {
  for (const std::uint64_t count : {1, 2, 7, 1000}) {
    const auto table = open_samples(design(DesignKind::latin_hypercube, 3, count, 4));
    for (std::size_t i = 0; i < 3; ++i) {
      std::set<int> strata;
      for (std::uint64_t row = 0; row < count; ++row) {
        strata.insert(static_cast<int>(number(*table, row, i) * static_cast<double>(count)));
      }
      EXPECT_EQ(strata.size(), count);
    }
  }
}

TEST(Grid, TakesTheLastColumnFastest) {
  SampleDesign grid = design(DesignKind::grid, 2, 6, 0);
  grid.columns[0].values = {"a", "b"};
  grid.columns[1].values = {"1", "2", "3"};
  const auto table = open_samples(grid);
  std::string all;
  for (std::uint64_t row = 0; row < 6; ++row) all += table->text(row, 0) + table->text(row, 1) + " ";
  EXPECT_EQ(all, "a1 a2 a3 b1 b2 b3 ");
}

TEST(Designs, TravelAsJson) {
  SampleDesign from = design(DesignKind::grid, 2, 6, 3);
  from.columns[0].values = {"a", "b"};
  from.columns[1].log = true;
  from.columns[1].low = 0.1;
  from.file = "/data/x.csv";
  from.header = true;
  const nlohmann::json json = nlohmann::json::parse(to_json(from).dump());
  EXPECT_EQ(to_json(design_from_json(json)), json);
  EXPECT_THROW(design_from_json(nlohmann::json::object()), Error);
}

std::unique_ptr<const SampleTable> open_file(const std::filesystem::path& path, bool header = false) {
  SampleDesign from;
  from.kind = DesignKind::file;
  from.file = path;
  from.header = header;
  return open_samples(from);
}

std::string message(const std::filesystem::path& path) {
  try {
    open_file(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    return error.what();
  }
  return {};
}

TEST(TextTable, KeepsCellsAsWritten) {
  const TemporaryFolder folder;
  const auto table = open_file(folder.write("a.csv",
                                            "\xef\xbb\xbf"
                                            "0.10,x y,\r\n# a comment\n\n1e5, 2,z # more\n3,4,5"));
  ASSERT_EQ(table->count(), 3U);
  ASSERT_EQ(table->columns().size(), 3U);
  EXPECT_EQ(table->text(0, 0), "0.10");
  EXPECT_EQ(table->text(0, 1), "x y");
  EXPECT_EQ(table->text(0, 2), "");
  EXPECT_EQ(table->text(1, 1), " 2");
  EXPECT_EQ(table->text(2, 2), "5");
  const auto tab = open_file(folder.write("a.tab", "1 \t 2\n3 4\n"));
  EXPECT_EQ(tab->count(), 2U);
  EXPECT_EQ(tab->text(0, 1), "2");
}

TEST(TextTable, KeepsWhatIsBetweenTabsAndInLines) {
  const TemporaryFolder folder;
  const auto tabs = open_file(folder.write("a.tsv", "a, b\t# 1\n\n\t 2 \n"));
  ASSERT_EQ(tabs->count(), 2U);
  EXPECT_EQ(tabs->text(0, 0), "a, b");
  EXPECT_EQ(tabs->text(0, 1), "# 1");
  EXPECT_EQ(tabs->text(1, 0), "");
  EXPECT_EQ(tabs->text(1, 1), " 2 ");
  const auto lines = open_file(folder.write("a.lines", "one, two\tthree # four\n\n  five\n"));
  ASSERT_EQ(lines->count(), 2U);
  EXPECT_EQ(lines->text(0, 0), "one, two\tthree # four");
  EXPECT_EQ(lines->text(1, 0), "  five");
}

TEST(TextTable, ReadsAHeader) {
  const TemporaryFolder folder;
  const auto table = open_file(folder.write("a.csv", "omega, sigma\n0.1,0.2\n"), true);
  EXPECT_EQ(table->columns(), (std::vector<std::string>{"omega", "sigma"}));
  EXPECT_EQ(table->count(), 1U);
  EXPECT_EQ(table->text(0, 1), "0.2");
}

TEST(TextTable, ReadsAnyRowOfALongFile) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 200000; ++i) text += std::to_string(i) + "," + std::to_string(i * 7) + "\n";
  const auto table = open_file(folder.write("long.csv", text));
  ASSERT_EQ(table->count(), 200000U);
  for (const std::uint64_t row : {0, 1023, 1024, 99999, 199999, 5}) {
    EXPECT_EQ(table->text(row, 0), std::to_string(row));
    EXPECT_EQ(table->text(row, 1), std::to_string(row * 7));
  }
  EXPECT_THROW(table->text(200000, 0), Error);
}

TEST(TextTable, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  const std::string ragged = folder.write("r.csv", "1,2\n# x\n3,4\n5,6,7\n8\n");
  EXPECT_EQ(message(ragged), ragged + ":4: this row has 3 values, line 1 has 2");
  const std::string empty = folder.write("e.csv", "# nothing\n\n");
  EXPECT_EQ(message(empty), empty + " holds no sample");
  EXPECT_EQ(message(folder.path() / "no.csv"), "no such file: " + (folder.path() / "no.csv").string());
  EXPECT_NE(message(folder.write("b.csv", std::string_view("1,\0002\n", 5))).find("zero byte"),
            std::string::npos);
}

std::string npy(const std::string& type, const std::string& shape, const std::string& data,
                bool fortran = false) {
  std::string header = "{'descr': '" + type + "', 'fortran_order': " + (fortran ? "True" : "False") +
                       ", 'shape': " + shape + ", }";
  while ((10 + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string file = "\x93NUMPY";
  file += {'\1', '\0', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  return file + header + data;
}

template <typename T>
std::string bytes(const std::vector<T>& values) {
  std::string result(values.size() * sizeof(T), '\0');
  std::memcpy(result.data(), values.data(), result.size());
  return result;
}

TEST(NpyTable, PrintsNumbersAsPython) {
  const TemporaryFolder folder;
  const auto f8 =
      open_file(folder.write("a.npy", npy("<f8", "(2, 3)", bytes<double>({0.1, 2, 1e-5, 1e16, -3.5, 1e15}))));
  ASSERT_EQ(f8->count(), 2U);
  EXPECT_EQ(f8->text(0, 0), "0.1");
  EXPECT_EQ(f8->text(0, 1), "2.0");
  EXPECT_EQ(f8->text(0, 2), "1e-05");
  EXPECT_EQ(f8->text(1, 0), "1e+16");
  EXPECT_EQ(f8->text(1, 1), "-3.5");
  EXPECT_EQ(f8->text(1, 2), "1000000000000000.0");
  const auto f4 = open_file(folder.write("b.npy", npy("<f4", "(2,)", bytes<float>({0.1F, 16777216.0F}))));
  EXPECT_EQ(f4->columns().size(), 1U);
  EXPECT_EQ(f4->text(0, 0), "0.1");
  EXPECT_EQ(f4->text(1, 0), "16777216.0");
  const auto i8 =
      open_file(folder.write("c.npy", npy("<i8", "(3, 2)", bytes<std::int64_t>({1, 2, 3, 4, 5, 6}), true)));
  EXPECT_EQ(i8->text(0, 1), "4");
  const auto i4 = open_file(folder.write("d.npy", npy("<i4", "(1, 2)", bytes<std::int32_t>({-1, 7}))));
  EXPECT_EQ(i4->text(0, 0), "-1");
  const auto words =
      open_file(folder.write("e.npy", npy("<U3", "(1, 2)", bytes<std::uint32_t>({'a', 'b', 0, 0xe9, 0, 0}))));
  EXPECT_EQ(words->text(0, 0), "ab");
  EXPECT_EQ(words->text(0, 1), "\xc3\xa9");
}

TEST(NpyTable, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  EXPECT_NE(message(folder.write("a.npy", npy("<f8", "(2, 3)", "short"))).find("is cut"), std::string::npos);
  EXPECT_NE(message(folder.write("b.npy", npy("<c8", "(2, 3)", "short"))).find("type c8"), std::string::npos);
  EXPECT_NE(message(folder.write("c.npy", npy("<f8", "(2, 3, 4)", "short"))).find("one or two axes"),
            std::string::npos);
  // A product of lengths that overflows 64 bits must not become a small number.
  EXPECT_NE(message(folder.write("f.npy", npy("<f8", "(4294967296, 4294967296)", "short"))).find("is cut"),
            std::string::npos);
  EXPECT_NE(message(folder.write("d.npy", "PK")).find("does not begin as one"), std::string::npos);
  EXPECT_NE(message(folder.write("e.npy", npy("<f8", "(0, 3)", ""))).find("no sample"), std::string::npos);
}

// Merlin's layout of directories, computed level by level.
std::string path_by_levels(std::uint64_t row, std::uint64_t count, std::uint64_t fan_out) {
  std::vector<std::uint64_t> sizes = {1};
  while (sizes.front() < count) sizes.insert(sizes.begin(), sizes.front() * fan_out);
  sizes.erase(sizes.begin());
  std::string path;
  const std::size_t width = std::to_string(fan_out).size();
  for (const std::uint64_t size : sizes) {
    std::string digits = std::to_string(row / size);
    digits.insert(0, width - digits.size(), '0');
    path += (path.empty() ? "" : "/") + digits;
    row %= size;
  }
  return path;
}

TEST(SamplePath, IsMerlins) {
  EXPECT_EQ(sample_path(0, 1, 25), "");
  EXPECT_EQ(sample_path(24, 25, 25), "24");
  EXPECT_EQ(sample_path(24, 26, 25), "00/24");
  EXPECT_EQ(sample_path(25, 26, 25), "01/00");
  EXPECT_EQ(sample_path(3, 4, 2), "1/1");
  for (const std::uint64_t fan_out : {2, 10, 25, 100}) {
    for (const std::uint64_t count : {1, 2, 25, 26, 1000, 10000}) {
      std::set<std::string> all;
      for (std::uint64_t row = 0; row < count; ++row) {
        const std::string path = sample_path(row, count, static_cast<std::uint32_t>(fan_out));
        ASSERT_EQ(path, path_by_levels(row, count, fan_out)) << row << " of " << count;
        all.insert(path);
      }
      EXPECT_EQ(all.size(), count);
    }
  }
}

TEST(SamplePath, MakesTheDirectoriesThatMerlinMakes) {
  const auto levels = [](std::uint64_t count) {
    std::map<std::size_t, std::set<std::string>> found;
    for (std::uint64_t row = 0; row < count; ++row) {
      const std::vector<std::string> parts = text::split(sample_path(row, count, 25), '/');
      std::string prefix;
      for (std::size_t i = 0; i < parts.size(); ++i) found[i].insert(prefix += "/" + parts[i]);
    }
    std::vector<std::size_t> sizes;
    for (const auto& [level, paths] : found) sizes.push_back(paths.size());
    return sizes;
  };
  EXPECT_EQ(levels(1000), (std::vector<std::size_t>{2, 40, 1000}));
  EXPECT_EQ(levels(10000), (std::vector<std::size_t>{16, 400, 10000}));
}

}  // namespace
}  // namespace wflow::specs
