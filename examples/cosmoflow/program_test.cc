// SPDX-License-Identifier: Apache-2.0
// wflow-cola as a campaign runs it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace {

namespace fs = std::filesystem;

class Program : public ::testing::Test {
 protected:
  Program() : folder_(fs::temp_directory_path() / ("wflow-cola-test." + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~Program() override { fs::remove_all(folder_); }

  // Runs in the test's folder; `before` are shell commands ahead of it.
  int run(const std::string& arguments, const std::string& before = "") {
    const std::string command = "cd '" + folder_.string() + "' && " + before + " '" COLA_PROGRAM "' " +
                                arguments + " >out.txt 2>err.txt";
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string text(const std::string& name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    std::ostringstream content;
    content << file.rdbuf();
    return content.str();
  }
  // Names in the folder but for the two that run() makes.
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename();
      if (name != "out.txt" && name != "err.txt") names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  fs::path folder_;
};

constexpr const char* kSmall = "--particles 16 --cells 16 --box 64 ";

TEST_F(Program, WritesOneFileAndOneLineAUniverse) {
  ASSERT_EQ(run(std::string(kSmall) + "--index 17 --omega-m 0.31 --output sub/u.h5"), 0) << text("err.txt");
  EXPECT_EQ(files(), std::vector<std::string>{"sub"});
  EXPECT_EQ(text("out.txt").rfind("universe 17: omega_m=0.31 sigma_8=0.8 ", 0), 0u) << text("out.txt");
  EXPECT_EQ(text("err.txt"), "");
  EXPECT_EQ(text("sub/u.h5").substr(1, 3), "HDF");
}

TEST_F(Program, RowsGiveTheSameBytesAsSingleRunsInAnyOrder) {
  std::ofstream(folder_ / "rows.csv") << "index,omega_m,sigma_8\n3,0.2,0.7\n1,0.4,0.9\n";
  ASSERT_EQ(run(std::string(kSmall) + "--seed 5 --rows rows.csv --output 'u-{index}.h5'"), 0)
      << text("err.txt");
  EXPECT_EQ(files(), (std::vector<std::string>{"rows.csv", "u-1.h5", "u-3.h5"}));
  std::istringstream lines(text("out.txt"));
  std::string first, second, third;
  std::getline(lines, first), std::getline(lines, second), std::getline(lines, third);
  EXPECT_EQ(first.rfind("universe 3: omega_m=0.2 ", 0), 0u);
  EXPECT_EQ(second.rfind("universe 1: omega_m=0.4 ", 0), 0u);
  EXPECT_EQ(third, "");
  ASSERT_EQ(run(std::string(kSmall) + "--seed 5 --index 1 --omega-m 0.4 --sigma8 0.9 --output alone.h5"), 0);
  EXPECT_EQ(text("alone.h5"), text("u-1.h5"));
  EXPECT_NE(text("u-3.h5"), text("u-1.h5"));
}

TEST_F(Program, WrongOptionsAreOneSentence) {
  const auto sentence = [&](const std::string& arguments, int code) {
    EXPECT_EQ(run(arguments), code) << arguments;
    EXPECT_EQ(text("out.txt"), "");
    const std::string error = text("err.txt");
    EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1) << error;
    EXPECT_TRUE(files().empty());
    return error;
  };
  EXPECT_EQ(sentence("--omega-m 7 --output u.h5", 2),
            "wflow-cola: --omega-m is 7, but must be from 0.05 to 1.\n");
  EXPECT_NE(sentence("", 2).find("--output is required"), std::string::npos);
  EXPECT_NE(sentence("--omega-m lots --output u.h5", 2).find("--omega-m"), std::string::npos);
  EXPECT_NE(sentence("--colour red --output u.h5", 2).find("--colour"), std::string::npos);
  EXPECT_EQ(sentence("--assign tsc --output u.h5", 2),
            "wflow-cola: --assign: 'tsc' is neither cic nor ngp.\n");
  EXPECT_EQ(sentence("--redshifts 1,x --output u.h5", 2), "wflow-cola: --redshifts: 'x' is not a number.\n");
  EXPECT_EQ(sentence("--rows none.csv --output u.h5", 3), "wflow-cola: cannot read --rows none.csv.\n");
  EXPECT_EQ(
      sentence(std::string(kSmall) + "--output /proc/u.h5", 4).rfind("wflow-cola: cannot create /proc/", 0),
      0u);
}

TEST_F(Program, HelpAndVersion) {
  EXPECT_EQ(run("--help"), 0);
  EXPECT_NE(text("out.txt").find("Mpc/h"), std::string::npos);
  EXPECT_NE(text("out.txt").find("Examples:"), std::string::npos);
  EXPECT_EQ(run("--version"), 0);
  EXPECT_EQ(text("out.txt").rfind("wflow-cola ", 0), 0u);
}

TEST_F(Program, AFullDiskLeavesNoHalfFile) {
  // A file size limit fails a write half way as a full disk does, and needs no root.
  EXPECT_EQ(run(std::string(kSmall) + "--output u.h5", "ulimit -f 16 && "), 4);
  EXPECT_EQ(text("err.txt"), "wflow-cola: cannot write u.h5: File too large.\n");
  EXPECT_EQ(text("out.txt"), "");
  EXPECT_TRUE(files().empty());
}

TEST_F(Program, AFailedWriteLeavesTheOldFile) {
  std::ofstream(folder_ / "u.h5") << "precious";
  EXPECT_EQ(run(std::string(kSmall) + "--output u.h5", "ulimit -f 16 && "), 4);
  EXPECT_EQ(text("u.h5"), "precious");
}

TEST_F(Program, AClosedLogIsReported) {
  if (!fs::exists("/dev/full")) GTEST_SKIP();
  const std::string command =
      "cd '" + folder_.string() + "' && '" COLA_PROGRAM "' " + kSmall + "--output u.h5 >/dev/full 2>err.txt";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 4);
  EXPECT_EQ(text("err.txt"), "wflow-cola: cannot write to standard output.\n");
}

}  // namespace
