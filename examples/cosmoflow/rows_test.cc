// SPDX-License-Identifier: Apache-2.0
#include "universe.h"

#include <gtest/gtest.h>

#include <sstream>

#include "cosmology.h"

namespace cola {
namespace {

UniverseSpec defaults() {
  UniverseSpec spec;
  spec.output = "u-{index}.h5";
  return spec;
}

std::vector<UniverseSpec> rows(const std::string& text) {
  std::istringstream file(text);
  return read_rows(file, "rows.csv", defaults());
}

std::string complaint(const std::string& text) {
  try {
    rows(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::input);
    return error.what();
  }
  return "";
}

TEST(Rows, OverrideTheDefaults) {
  const auto specs =
      rows("index,omega_m, Sigma8 ,redshifts,assign\r\n17,0.31,0.9,\"3,0\",ngp\r\n\n18,0.2,0.7,0,cic");
  ASSERT_EQ(specs.size(), 2u);
  EXPECT_EQ(specs[0].index, 17u);
  EXPECT_EQ(specs[0].cosmology.omega_m, 0.31);
  EXPECT_EQ(specs[0].cosmology.sigma_8, 0.9);
  EXPECT_EQ(specs[0].cosmology.n_s, 0.96);
  EXPECT_EQ(specs[0].redshifts, (std::vector<double>{3, 0}));
  EXPECT_EQ(specs[0].assign, Assign::ngp);
  EXPECT_EQ(specs[0].output, "u-17.h5");
  EXPECT_EQ(specs[1].output, "u-18.h5");
}

TEST(Rows, KeepAllDigits) {
  EXPECT_EQ(rows("omega_m,seed\n0.31234567890123456,18446744073709551615\n")[0].cosmology.omega_m,
            0.31234567890123456);
  EXPECT_EQ(rows("seed\n18446744073709551615\n")[0].seed, 18446744073709551615u);
}

TEST(Rows, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(complaint(""), "rows.csv is empty; its first line must name the columns.");
  EXPECT_EQ(complaint("omega_m\n"), "rows.csv has a header but no rows.");
  EXPECT_EQ(complaint("index,omega_m\n1,0.3\n2\n"),
            "rows.csv, line 3: it has 1 values, but the header has 2 columns.");
  EXPECT_EQ(complaint("omega_m\nmuch\n"), "rows.csv, line 2: omega_m: 'much' is not a number.");
  EXPECT_EQ(complaint("index\n-1\n"), "rows.csv, line 2: index: '-1' is not a whole number in range.");
  EXPECT_EQ(complaint("omega_m\n3\n"), "rows.csv, line 2: --omega-m is 3, but must be from 0.05 to 1.");
  EXPECT_EQ(complaint("omega_m,Omega-M\n1,1\n"), "rows.csv, line 1: column 'Omega-M' stands twice.");
  EXPECT_NE(complaint("omgea_m\n1\n").find("there is no option 'omgea_m'; known are index, seed,"),
            std::string::npos);
  EXPECT_NE(complaint("omega_m\n0.3\n0.4\n").find("line 3: it would write u-0.h5 again"), std::string::npos);
}

}  // namespace
}  // namespace cola
