// SPDX-License-Identifier: Apache-2.0
#include "specs/plan/workspace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "specs/plan/plan.h"
#include "specs/study/test_study.h"

namespace wflow::specs {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

Plan start(StudyText& text) {
  text.options.timestamp = "20260101-120000";
  Study study = text.study();
  const fs::path campaign = campaign_directory(study, text.options.timestamp);
  return create_campaign(Plan(std::move(study), campaign));
}

TEST(Campaign, HasMerlinsCopiesAndReadsBackTheSame) {
  StudyText text(R"yaml(
description: {name: two words}
env: {variables: {N: 4, OUTPUT_PATH: out}}
samples: {file: s.csv}
study:
  - {name: s, run: {cmd: "echo $(a) $(N) $(SPECROOT) $(MERLIN_TIMESTAMP) $(MERLIN_INFO)"}}
)yaml");
  text.folder().write("s.csv", "a,b\n1,2\n3,4\n");
  text.options.variables = {"N=9"};
  const Plan plan = start(text);
  EXPECT_EQ(plan.campaign(), text.folder().path() / "out/two_words_20260101-120000");
  const fs::path info = plan.campaign() / "merlin_info";
  EXPECT_EQ(read_file(info / "study.orig.yaml"), read_file(text.file()));
  EXPECT_THAT(read_file(info / "study.partial.yaml"), HasSubstr("echo $(a) 9 $(SPECROOT)"));
  EXPECT_THAT(read_file(info / "study.expanded.yaml"),
              HasSubstr("echo $(a) 9 " + text.folder().path().string() + " 20260101-120000"));
  EXPECT_EQ(read_file(info / "s.csv"), "a,b\n1,2\n3,4\n");
  const std::string before = describe(plan);
  // Neither the caller's directory, nor the study or its samples, need to exist any more.
  fs::remove(text.file());
  fs::remove(text.folder().path() / "s.csv");
  const Plan again(read_campaign(plan.campaign()), plan.campaign());
  EXPECT_EQ(describe(again), before);
  EXPECT_THAT(before, HasSubstr("echo 3 9 "));
  EXPECT_THROW(static_cast<void>(create_campaign(plan)), Error);
}

TEST(Campaign, DamageOfItsCopiesIsRecoveredOrOneSentence) {
  StudyText text(R"yaml(
description: {name: n}
env: {variables: {OUTPUT_PATH: out}}
samples: {file: s.csv}
study:
  - {name: s, run: {cmd: "echo $(a)"}}
)yaml");
  text.folder().write("s.csv", "a,b\n1,2\n3,4\n");
  const Plan plan = start(text);
  const fs::path campaign = plan.campaign();
  // Only the content decides results, not the place of the table.
  const auto content = [](const Plan& of) {
    std::string all = of.study().text;
    const auto rows = open_samples(of.study().samples->design);
    for (std::uint64_t row = 0; row < rows->count(); ++row)
      all += rows->text(row, 0) + "," + rows->text(row, 1) + ";";
    return all;
  };
  const std::string before = content(plan);
  const auto again = [&]() -> std::string {
    try {
      const Plan read(read_campaign(campaign), campaign);
      return content(read) == before ? "same" : "silent";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(again(), "same");
  EXPECT_TRUE(version_damage(campaign, 1).empty());
  const fs::path table = campaign / "merlin_info/s.csv";
  const fs::path study = campaign / ".wflow/spec/study.yaml";
  const fs::path options = campaign / ".wflow/spec/options.json";
  const auto damage = [](const fs::path& path, const std::string& from, const std::string& to) {
    std::string bytes = read_file(path);
    const std::size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos);
    bytes.replace(at, from.size(), to);
    write_file_durably(path, bytes);
  };
  // The original table is still the one that the campaign began with.
  damage(table, "3", "5");
  EXPECT_EQ(again(), "same");
  EXPECT_THAT(version_damage(campaign, 1),
              testing::ElementsAre(HasSubstr("merlin_info/s.csv is not the table")));
  text.folder().write("s.csv", "a,b\n1,2\n7,4\n");
  EXPECT_THAT(again(), HasSubstr("merlin_info/s.csv, is damaged or was changed"));
  // A worker opens the table by itself.
  SampleDesign design = plan.study().samples->design;
  EXPECT_THROW(open_samples(design_from_json(to_json(design))), Error);
  damage(table, "5", "3");
  EXPECT_EQ(again(), "same");
  damage(study, "echo", "edho");
  EXPECT_EQ(again(), "same");  // content of merlin_info/
  EXPECT_EQ(version_damage(campaign, 1).size(), 1U);
  damage(campaign / "merlin_info/study.orig.yaml", "echo", "ecko");
  EXPECT_THAT(again(), HasSubstr("study.yaml, is damaged or was changed"));
  damage(study, "edho", "echo");
  EXPECT_EQ(again(), "same");
  damage(options, "20260101", "20260102");
  EXPECT_THAT(again(), HasSubstr("options.json is damaged"));
  damage(options, "20260102", "20260101");
  // Campaigns of older versions have no checksums.
  write_file_durably(options, [&] {
    auto json = nlohmann::json::parse(read_file(options));
    for (const char* key : {"wflow_checksum", "study_xxh3_128", "tables_xxh3_128"}) json.erase(key);
    return json.dump(2);
  }());
  EXPECT_EQ(again(), "same");
  damage(table, "3", "5");
  EXPECT_EQ(again(), "silent");
}

TEST(Campaign, GeneratesItsSamplesOnce) {
  StudyText text(R"yaml(
description: {name: n, description: d}
merlin:
  samples:
    generate: {cmd: "echo made; printf '1,2\n3,4\n' > $(MERLIN_INFO)/s.csv"}
    file: $(MERLIN_INFO)/s.csv
    column_labels: [a, b]
study:
  - {name: s, description: d, run: {cmd: "echo $(a) $(b)"}}
)yaml");
  const Plan plan = start(text);
  EXPECT_EQ(plan.element_count(), 2U);
  EXPECT_EQ(read_file(plan.campaign() / "merlin_info/cmd.out"), "made\n");
  EXPECT_THAT(read_file(plan.campaign() / "merlin_info/cmd.sh"), HasSubstr("printf"));
}

TEST(Campaign, OfALaterIterationReadsBackTheSame) {
  StudyText text(R"yaml(
description: {name: n}
env: {variables: {BEFORE: "<$(PREVIOUS)>", OUTPUT_PATH: out}}
samples: {design: uniform, count: 3, parameters: {x: [0, 1]}}
iterate: {max: $(MOST), until: $(WORD), samples: $(PREVIOUS)/s/new.csv}
study:
  - {name: s, run: {cmd: "echo $(x) $(ITERATION) $(BEFORE) $(FIRST_ITERATION)"}}
)yaml");
  text.options.variables = {"MOST=7", "WORD=done"};
  const Plan first = start(text);
  const auto command = [](const Plan& plan) { return plan.task_template(0).command.back().text; };
  EXPECT_EQ(first.study().iterate->max, 7);
  EXPECT_EQ(first.study().iterate->until, "done");
  EXPECT_EQ(first.element_count(), 3U);
  EXPECT_EQ(command(first), " 1 <> " + first.campaign().string());

  fs::create_directories(first.campaign() / "s");
  std::ofstream(first.campaign() / "s/new.csv") << "0.25\n0.75\n";
  ReadOptions options = first.study().options;
  options.iteration = {2, first.campaign(), first.campaign()};
  options.campaign = first.campaign() / "iterations/002";
  const Plan made = create_campaign(Plan(
      read_study_copy(study_copy(first.campaign()), first.study().file, options).study, options.campaign));
  fs::remove(first.campaign() / "s/new.csv");
  const Plan second(read_campaign(options.campaign), options.campaign);
  for (const Plan& plan : {made, second}) {
    EXPECT_EQ(plan.study().options.iteration.number, 2);
    EXPECT_EQ(plan.element_count(), 2U);
    EXPECT_EQ(command(plan), " 2 <" + first.campaign().string() + "> " + first.campaign().string());
    EXPECT_EQ(plan.task_template(0).workspace, (options.campaign / "s").string());
  }
}

TEST(Campaign, SaysWhenNoSamplesCome) {
  StudyText text(R"yaml(
description: {name: n}
samples: {file: s.csv, column_labels: [a], generate: {cmd: "echo no luck >&2; exit 3"}}
study:
  - {name: s, run: {cmd: "echo $(a)"}}
)yaml");
  try {
    static_cast<void>(start(text));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_THAT(error.what(), HasSubstr("ended with exit code 3"));
    EXPECT_THAT(error.what(), HasSubstr("no luck"));
  }
}

std::string refusal(StudyText& text) {
  try {
    static_cast<void>(start(text));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return {};
}

// These ended in an exception of the JSON library.
TEST(Campaign, RefusesNamesThatAreNoUtf8) {
  constexpr const char* kStudy = R"yaml(
description: {name: n}
env: {variables: {OUTPUT_PATH: out, A: a}}
study:
  - {name: s, run: {cmd: "echo $(A)"}}
)yaml";
  StudyText variable(kStudy);
  variable.options.variables = {"A=\xff"};
  EXPECT_THAT(refusal(variable),
              HasSubstr("a variable is not valid UTF-8: A=\xef\xbf\xbd; a campaign needs"));
  StudyText output(kStudy);
  output.options.directory = output.folder().path() / "d\xe9j\xe0";
  fs::create_directories(output.options.directory);
  EXPECT_THAT(refusal(output), HasSubstr("the path of the campaign is not valid UTF-8"));
  EXPECT_TRUE(fs::is_empty(output.options.directory));
}

TEST(Campaign, SaysThatTheCurrentDirectoryIsGone) {
  const fs::path before = fs::current_path();
  const TemporaryFolder folder;
  const fs::path gone = folder.path() / "gone";
  fs::create_directory(gone);
  fs::current_path(gone);
  fs::remove(gone);
  std::string sentence;
  try {
    read_campaign("campaign");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::system);
    sentence = error.what();
  }
  fs::current_path(before);
  EXPECT_THAT(sentence, HasSubstr("the current directory is not there any more; change to another one"));
}

TEST(Campaign, OfNothingIsRefused) {
  const TemporaryFolder folder;
  EXPECT_THROW(read_campaign(folder.path()), Error);
}

}  // namespace

namespace {
using testing::HasSubstr;

class GitDependencyTest : public testing::Test {
 protected:
  GitDependencyTest() : path_(std::getenv("PATH")) {}
  ~GitDependencyTest() override { ::setenv("PATH", path_.c_str(), 1); }

  // A repository of two commits, the first of them tagged.
  fs::path repository() {
    const fs::path path = folder_.path() / "origin";
    fs::create_directories(path);
    const std::vector<std::vector<std::string>> commands = {
        {"init", "--quiet"}, {"add", "."}, {"commit", "--quiet", "-m", "1"}, {"tag", "v1"}};
    std::ofstream(path / "file") << "one\n";
    for (const auto& command : commands) git(path, command);
    std::ofstream(path / "file") << "two\n";
    git(path, {"commit", "--quiet", "-am", "2"});
    return path;
  }

  // The first program in PATH that is called git.
  void pretend(const std::string& script) {
    const fs::path program = folder_.write("git", "#!/bin/sh\n" + script);
    fs::permissions(program, fs::perms::owner_all);
    ::setenv("PATH", (folder_.path().string() + ":" + path_).c_str(), 1);
  }

  GitDependency dependency(const std::string& url, const std::string& tag = {}) {
    return {"code", (folder_.path() / "deps").string(), url, tag};
  }
  fs::path target() const { return folder_.path() / "deps/code"; }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_.path() / "deps"), {}));
  }

  static void git(const fs::path& directory, std::vector<std::string> arguments) {
    SpawnRequest request;
    request.argv = {"git", "-C", directory.string(), "-c", "user.name=n", "-c", "user.email=e"};
    request.argv.insert(request.argv.end(), arguments.begin(), arguments.end());
    const CommandResult result = run_command(request);
    ASSERT_EQ(result.status, 0) << result.err;
  }

  TemporaryFolder folder_;
  std::string path_;
};

TEST_F(GitDependencyTest, IsClonedOnceAtItsTag) {
  const std::string url = repository().string();
  clone_dependency(dependency(url, "v1"));
  EXPECT_EQ(read_file(target() / "file"), "one\n");
  clone_dependency(dependency(url));  // exists: stays unchanged
  EXPECT_EQ(read_file(target() / "file"), "one\n");
  EXPECT_EQ(entries(), 1U);
  fs::remove_all(target());
  clone_dependency(dependency(url));
  EXPECT_EQ(read_file(target() / "file"), "two\n");
}

// A clone that was killed counted as complete.
TEST_F(GitDependencyTest, ACutCloneDoesNotCount) {
  const std::string url = repository().string();
  pretend("for last; do :; done; mkdir -p \"$last\"; echo half > \"$last/file\"; kill -9 $$\n");
  EXPECT_THROW(clone_dependency(dependency(url)), Error);
  EXPECT_FALSE(fs::exists(target()));
  EXPECT_EQ(entries(), 0U);
  ::setenv("PATH", path_.c_str(), 1);
  EXPECT_THROW(clone_dependency(dependency(url, "no-such-tag")), Error);
  EXPECT_FALSE(fs::exists(target()));
  clone_dependency(dependency(url));
  EXPECT_EQ(read_file(target() / "file"), "two\n");
}

TEST_F(GitDependencyTest, ACloneThatAnotherCampaignFinishedFirstIsKept) {
  pretend("for last; do :; done; mkdir -p \"$last\" '" + target().string() +
          "'; echo mine > \"$last/file\"; echo theirs > '" + target().string() + "/file'\n");
  clone_dependency(dependency("anything"));
  EXPECT_EQ(read_file(target() / "file"), "theirs\n");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(GitDependencyTest, AUrlIsNeverAnOption) {
  pretend("for word; do echo \"$word\"; done > '" + folder_.path().string() + "/words'; exit 1\n");
  EXPECT_THROW(clone_dependency(dependency("--upload-pack=touch x")), Error);
  EXPECT_THAT(read_file(folder_.path() / "words"), HasSubstr("--\n--upload-pack=touch x\n"));
}

TEST(GitDependency, UrlsAndTagsThatLookLikeOptionsAreRefused) {
  const auto error = [](const std::string& entry) {
    return StudyText("description: {name: n}\nenv: {dependencies: {git: [{name: code, path: deps, " + entry +
                     "}]}}\nstudy: [{name: s, run: {cmd: echo}}]\n")
        .error();
  };
  EXPECT_THAT(error("url: --upload-pack=x"),
              HasSubstr("study.yaml:2:58: error: the url of the dependency 'code' begins with '-'"));
  EXPECT_THAT(error("url: u, tag: -f"), HasSubstr("the tag of the dependency 'code' begins with '-'"));
  EXPECT_EQ(error("url: u, hash: f00"), "");
}

}  // namespace

}  // namespace wflow::specs
