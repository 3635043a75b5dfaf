// SPDX-License-Identifier: Apache-2.0
#include "baseline.h"

#include <gtest/gtest.h>
#include <hdf5.h>

#include <cmath>
#include <complex>
#include <filesystem>
#include <numbers>
#include <random>

#include "error.h"
#include "handle.h"
#include "ridge.h"
#include "summary_statistics.h"

namespace cola {
namespace {

namespace fs = std::filesystem;

constexpr int kN = 8;

// Samples whose variance and skewness carry two parameters, as shards of `per_shard`.
class Shards {
 public:
  Shards() : folder_(fs::temp_directory_path() / ("cosmoflow-baseline-test." + std::to_string(::getpid()))) {}
  ~Shards() { fs::remove_all(folder_); }
  std::string path() const { return folder_.string(); }

  void write(const std::string& split, int samples, int per_shard, bool counts, bool shuffled = false) {
    fs::create_directories(folder_ / split);
    for (int first = 0, shard = 0; first < samples; first += per_shard, ++shard) {
      char name[32];
      std::snprintf(name, sizeof name, "shard-%05d.h5", shard);
      write_shard((folder_ / split / name).string(), std::min(per_shard, samples - first), counts, shuffled);
    }
  }

 private:
  void write_shard(const std::string& path, int samples, bool counts, bool shuffled) {
    std::vector<float> x;
    std::vector<float> y;
    std::vector<std::int64_t> id;
    std::uniform_real_distribution<double> uniform(0, 1);
    std::normal_distribution<double> normal;
    for (int s = 0; s < samples; ++s) {
      const double amplitude = uniform(random_), tilt = uniform(random_);
      for (int channel = 0; channel < 2; ++channel) {
        for (int i = 0; i < kN * kN * kN; ++i) {
          const double sigma = channel == 0 ? 0.2 + amplitude : 0.2 + tilt;
          const double density = std::exp(sigma * normal(random_) - sigma * sigma / 2);
          x.push_back(static_cast<float>(counts ? std::round(1000 * density) : density));
        }
      }
      y.push_back(static_cast<float>(shuffled ? uniform(random_) : amplitude));
      y.push_back(static_cast<float>(shuffled ? uniform(random_) : 10 * tilt));
      id.push_back(next_id_++);
    }
    const Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
    const auto count = static_cast<hsize_t>(samples);
    const hsize_t x_shape[5] = {count, 2, kN, kN, kN}, chunk[5] = {1, 2, kN, kN, kN};
    const Handle options(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_chunk(options, 5, chunk);
    H5Pset_shuffle(options);
    H5Pset_deflate(options, 1);
    put(file, "x", counts ? H5T_STD_U16LE : H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 5, x_shape, options, x.data());
    const hsize_t y_shape[2] = {count, 2};
    const Handle labels = put(file, "y", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, y_shape, H5P_DEFAULT, y.data());
    put(file, "id", H5T_STD_I64LE, H5T_NATIVE_INT64, 1, &count, H5P_DEFAULT, id.data());
    const hsize_t two = 2;
    const Handle space(H5Screate_simple(1, &two, nullptr), H5Sclose);
    const Handle text(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(text, counts ? 12 : H5T_VARIABLE);  // both kinds of string are in use
    const Handle names(H5Acreate2(labels, "names", text, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    const char fixed[2][12] = {"amplitude", "tilt"};
    const char* variable[2] = {fixed[0], fixed[1]};
    H5Awrite(names, text, counts ? static_cast<const void*>(fixed) : static_cast<const void*>(variable));
  }

  static Handle put(hid_t file, const char* name, hid_t stored, hid_t given, int rank, const hsize_t* shape,
                    hid_t options, const void* values) {
    const Handle space(H5Screate_simple(rank, shape, nullptr), H5Sclose);
    Handle dataset(H5Dcreate2(file, name, stored, space, H5P_DEFAULT, options, H5P_DEFAULT), H5Dclose);
    H5Dwrite(dataset, given, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    return dataset;
  }

  fs::path folder_;
  std::mt19937_64 random_{1};
  std::int64_t next_id_ = 0;
};

TEST(Baselines, FindParametersThatTheStatisticsCarry) {
  for (const bool counts : {false, true}) {
    Shards shards;
    shards.write("train", 200, 64, counts);
    shards.write("validation", 40, 64, counts);
    shards.write("test", 40, 16, counts);
    const BaselineReport report = measure_baselines(shards.path());
    EXPECT_EQ(report.labels, (std::vector<std::string>{"amplitude", "tilt"}));
    EXPECT_EQ(report.train, 200u);
    EXPECT_EQ(report.validation, 40u);
    EXPECT_EQ(report.test, 40u);
    EXPECT_NEAR(report.mean_guess_mae[0], 0.25, 0.05);
    EXPECT_NEAR(report.mean_guess_mae[1], 2.5, 0.5);
    ASSERT_EQ(report.baselines.size(), 3u);
    for (const Baseline& baseline : report.baselines) {
      for (double ratio : baseline.ratio) EXPECT_LT(ratio, 0.5) << baseline.name;
    }
    EXPECT_LT(report.baselines[2].ratio[0], 0.2);
    EXPECT_LT(report.baselines[2].ratio[1], 0.2);

    const std::string table = as_table(report), json = as_json(report);
    EXPECT_NE(table.find("ridge, log P(k) + one-point, degree 2"), std::string::npos);
    EXPECT_NE(json.find("\"labels\": [\"amplitude\", \"tilt\"]"), std::string::npos);
  }
}

TEST(Baselines, FindNothingInShuffledLabels) {
  Shards shards;
  shards.write("train", 200, 100, false, true);
  shards.write("validation", 40, 100, false, true);
  shards.write("test", 60, 100, false, true);
  for (const Baseline& baseline : measure_baselines(shards.path()).baselines) {
    for (double ratio : baseline.ratio) EXPECT_GT(ratio, 0.9) << baseline.name;
  }
}

TEST(Baselines, SayWhatIsMissing) {
  Shards shards;
  shards.write("train", 4, 4, false);
  try {
    measure_baselines(shards.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::input);
    EXPECT_EQ(std::string(error.what()),
              shards.path() + "/validation: cannot list this folder: No such file or directory.");
  }
}

Matrix random_matrix(std::size_t rows, std::size_t columns, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  Matrix m(rows, columns);
  for (double& value : m.values) value = normal(random);
  return m;
}

TEST(Ridge, CholeskySolves) {
  for (const std::size_t n : {1u, 3u, 4u, 7u, 18u}) {
    const Matrix b = random_matrix(n, n + 3, 1);
    Matrix a(n, n);
    std::vector<double> x(n), right(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<double>(i) - 2;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        for (std::size_t k = 0; k < b.columns; ++k) a.row(i)[j] += b.row(i)[k] * b.row(j)[k];
        right[i] += a.row(i)[j] * x[j];
      }
    }
    ASSERT_TRUE(cholesky(a));
    cholesky_solve(a, right);
    for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(right[i], x[i], 1e-8);
  }
  Matrix negative(1, 1);
  negative.row(0)[0] = -1;
  EXPECT_FALSE(cholesky(negative));
}

TEST(Ridge, FindsALinearAndAQuadraticLawInEitherSpace) {
  for (const std::size_t train_rows : {12u, 300u}) {  // fewer and more samples than features of degree 2
    const auto law = [](const Matrix& x, bool quadratic) {
      Matrix y(x.rows, 1);
      for (std::size_t i = 0; i < x.rows; ++i) {
        y.row(i)[0] = 3 + 2 * x.row(i)[0] - x.row(i)[1] + (quadratic ? x.row(i)[0] * x.row(i)[2] : 0);
      }
      return y;
    };
    const Matrix train = random_matrix(train_rows, 4, 2), validation = random_matrix(50, 4, 3),
                 test = random_matrix(50, 4, 4);
    for (const bool quadratic : {false, true}) {
      const RidgeResult result = ridge(train, law(train, quadratic), validation, law(validation, quadratic),
                                       test, quadratic ? 2 : 1);
      if (quadratic && train_rows < 15) continue;  // cannot be found; the dual path ran
      for (std::size_t i = 0; i < test.rows; ++i)
        EXPECT_NEAR(result.prediction.row(i)[0], law(test, quadratic).row(i)[0], 1e-3);
    }
  }
}

TEST(SummaryStatistics, APlaneWaveHasItsPowerInOneShell) {
  const Shape shape{1, 16, 16, 16};
  SummaryStatistics statistics(shape, {1});
  std::vector<float> sample;
  for (int i = 0; i < 16 * 16 * 16; ++i) {
    sample.push_back(static_cast<float>(1 + std::cos(2 * std::numbers::pi * 3 * (i % 16) / 16)));
  }
  std::vector<double> features;
  statistics.append_log_power(sample, features);
  ASSERT_EQ(features.size(), statistics.shells());
  for (std::size_t i = 0; i < features.size(); ++i) {
    EXPECT_EQ(features[i] > -20, i == 2) << "shell " << i << ": " << features[i];
  }
}

}  // namespace
}  // namespace cola
