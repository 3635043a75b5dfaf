// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/tasks.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "engine/schedule/graph.h"
#include "engine/store/store.h"
#include "specs/study/blocks.h"
#include "specs/study/study.h"

namespace wflow::simulation {

namespace {

struct StudyText {
  const char* name;
  const char* text;  // but for the description; {} is the number of samples
  std::vector<int> counts;
};

const std::vector<StudyText>& texts() {
  static const std::vector<StudyText> kTexts = {
      {"single",
       R"(
study:
  - {name: only, run: {cmd: echo a}}
)",
       {1}},
      {"flat",
       R"(
samples: {design: uniform, count: N, parameters: {x: [0, 1]}}
study:
  - {name: simulate, run: {cmd: sim $(x)}}
)",
       {7, 60, 200}},
      {"chain",
       R"(
samples: {design: uniform, count: N, parameters: {x: [0, 1]}}
study:
  - {name: generate, run: {cmd: gen $(x), memory: 600 MiB, retry_memory: 1.5x}}
  - {name: simulate, run: {cmd: sim $(x), depends: [generate], max_retries: 2, retry_delay: 0.5}}
  - {name: measure, run: {cmd: measure $(x), depends: [simulate]}}
  - {name: summary, run: {cmd: sum, depends: [measure_*]}}
)",
       {4, 30}},
      {"strict",
       R"(
samples: {design: uniform, count: N, parameters: {x: [0, 1]}}
study:
  - {name: a, run: {cmd: a $(x), retry_delay: 2}}
  - {name: b, run: {cmd: b $(x), depends: [a], continue_on: never, max_retries: 1}}
  - {name: c, run: {cmd: c $(x), depends: [b], continue_on: any}}
  - {name: d, run: {cmd: d, depends: [c_*], continue_on: never}}
  - {name: e, run: {cmd: e $(x), depends: [d], timeout: 4 s}}
)",
       {3, 20}},
      {"bundles",
       R"(
samples: {design: uniform, count: N, parameters: {x: [0, 1]}}
study:
  - {name: simulate, run: {cmd: sim $(WFLOW_SAMPLES_FILE), bundle: 8, max_retries: 2, retry_delay: 0.1}}
  - {name: second, run: {cmd: look $(x), depends: [simulate]}}
  - {name: third, run: {cmd: all $(WFLOW_SAMPLES_FILE), bundle: 5, depends: [second]}}
)",
       {21, 64}},
      {"blocks",
       R"(
samples: {design: uniform, count: N, parameters: {x: [0, 1]}}
study:
  - {name: simulate, run: {cmd: sim $(x), max_retries: 1}}
  - name: data
    convert: {from: simulate, file: u.h5, dataset: density, targets: [x], shard_samples: 6, split: {train: 10, validation: 4, test: 4}}
)",
       {18}},
      // A simulation leaves kRawBytes (history.h): two blocks of the first one fit.
      {"disk",
       R"(
samples: {design: uniform, count: N, parameters: {x: [0, 1]}}
max_disk: 12 KiB
study:
  - {name: prepare, run: {cmd: prepare $(x)}}
  - {name: simulate, run: {cmd: sim $(x), max_retries: 1, depends: [prepare]}}
  - name: data
    convert: {from: simulate, file: u.h5, dataset: density, targets: [x], shard_samples: 6, delete_inputs: true}
)",
       {22, 60}},
      {"small-disk",
       R"(
samples: {design: uniform, count: N, parameters: {x: [0, 1]}}
max_disk: 2 KiB
parameters: {A: [1, 2]}
study:
  - {name: simulate, run: {cmd: sim $(A) $(WFLOW_SAMPLES_FILE), bundle: 4, max_retries: 1, retry_delay: 0.1}}
  - name: data
    convert: {from: simulate, file: u_$(MERLIN_SAMPLE_ID).h5, dataset: density, targets: [x], shard_samples: 6, delete_inputs: true}
)",
       {30}},
      {"groups",
       R"(
samples: {design: uniform, count: N, parameters: {x: [0, 1]}}
workers: {fast: {slots: 3, steps: [simulate]}, slow: {slots: 1, steps: [analyse]}}
study:
  - {name: simulate, run: {cmd: sim $(x)}}
  - {name: analyse, run: {cmd: analyse $(x), depends: [simulate]}}
  - {name: close, run: {cmd: close, depends: [analyse_*]}}
)",
       {6, 40}},
      {"parameters",
       R"(
parameters: {product: {A: [1, 2, 3], B: [u, v]}}
samples: {design: uniform, count: N, parameters: {x: [0, 1]}}
study:
  - {name: simulate, run: {cmd: sim $(A) $(x), priority: 3}}
  - {name: wide, run: {cmd: wide $(A) $(B), depends: [simulate], cores: 2}}
  - {name: end, run: {cmd: end, depends: [wide_*]}}
)",
       {5, 16}},
      {"tree",
       R"(
samples: {design: uniform, count: N, parameters: {x: [0, 1]}}
study:
  - {name: root, run: {cmd: root}}
  - {name: left, run: {cmd: left $(x), depends: [root]}}
  - {name: right, run: {cmd: right $(x), depends: [root], max_retries: 3, retry_delay: 0.2, memory: 1 GiB, retry_memory: 2x}}
  - {name: both, run: {cmd: both $(x), depends: [left, right]}}
  - {name: end, run: {cmd: end, depends: [both_*, root]}}
)",
       {8, 50}},
      {"gangs",
       R"(
batch: {type: slurm}
samples: {design: uniform, count: N, parameters: {x: [0, 1]}}
study:
  - {name: simulate, run: {cmd: sim $(x)}}
  - {name: solve, run: {cmd: $(LAUNCHER) solve $(x), nodes: 2, max_retries: 1, retry_delay: 0.5}}
  - {name: wide, run: {cmd: $(LAUNCHER) wide, nodes: 3, procs: 6, min_nodes: 2, priority: 2}}
  - {name: end, run: {cmd: end, depends: [solve_*, simulate_*, wide]}}
)",
       {4, 12, 40}},
      {"limited",
       R"(
samples: {design: uniform, count: N, parameters: {x: [0, 1]}}
study:
  - {name: simulate, run: {cmd: sim $(x), max_retries: 0, max_failures: 2}}
  - {name: look, run: {cmd: look $(x), depends: [simulate], max_failures: 20 %}}
  - {name: end, run: {cmd: end, depends: [look_*]}}
)",
       {12, 60}},
      {"crashes",
       R"(
samples: {design: uniform, count: N, parameters: {x: [0, 1]}}
study:
  - {name: simulate, run: {cmd: sim $(x)}}
  - {name: measure, run: {cmd: measure $(x), depends: [simulate]}}
  - {name: patch, run: {cmd: patch $(x), depends: [simulate], continue_on: soft_fail}}
  - name: data
    convert: {from: measure, file: u.h5, dataset: density, targets: [x], shard_samples: 6}
  - name: patched
    convert: {from: patch, file: u.h5, dataset: density, targets: [x], shard_samples: 8, use_failed: true}
  - {name: summary, run: {cmd: sum, depends: [measure_*, patch_*]}}
)",
       {20, 48}},
  };
  return kTexts;
}

// Added later: a part of the schedules has them, so that the seeds of the others still mean the same.
const std::vector<StudyText>& later_texts() {
  static const std::vector<StudyText> kTexts = {
      {"follow",
       R"(
samples: {design: uniform, count: N, parameters: {x: [0, 1]}}
study:
  - {name: prepare, run: {cmd: prepare $(x)}}
  - {name: simulate, run: {cmd: sim $(x), max_retries: 1, depends: [prepare]}}
  - name: data
    convert: {from: simulate, file: u.h5, dataset: density, targets: [x], shard_samples: 6}
  - name: train
    train: {data: data, follow: {stages: 3, epochs: 2}, until: validation_error < 0.5}
)",
       {24, 60}},
  };
  return kTexts;
}

std::unique_ptr<SimulatedStudy> make_study(const std::filesystem::path& folder, const StudyText& text,
                                           int count) {
  std::string body = text.text;
  if (const auto at = body.find("count: N"); at != std::string::npos)
    body.replace(at, 8, fmt::format("count: {}", count));
  const std::string name = fmt::format("{}-{}", text.name, count);
  const std::filesystem::path file = folder / (name + ".yaml");
  write_file_durably(file, fmt::format("description: {{name: {}}}\n{}", name, body));
  specs::ReadOptions options;
  options.directory = folder;
  specs::Plan plan(specs::read_study(file, options).study, std::filesystem::path("/simulated") / name);
  const std::filesystem::path campaign = folder / name;
  engine::store::Store::create(campaign, plan);
  auto study = std::make_unique<SimulatedStudy>(SimulatedStudy{.name = name, .plan = std::move(plan)});
  study->arrays = engine::array_specs(study->plan);
  for (const specs::PlannedStep& step : study->plan.steps()) {
    const auto stage = specs::follow_stage(study->plan.study().steps[step.study_step]);
    if (stage && stage->stage > 0) study->stages.insert(step.first_array);
  }
  for (const engine::ArraySpec& array : study->arrays)
    study->gangs = study->gangs || array.gang.spans_nodes();
  study->database = read_file(engine::store::database_path(campaign));
  study->elements = study->plan.element_count();
  const engine::Groups groups(study->plan.study());
  for (const engine::Group& group : groups.all())
    study->groups.push_back({group.name, group.slots > 0 ? group.slots : 2});
  return study;
}

}  // namespace

const SimulatedStudy& Studies::of(std::uint64_t seed) const {
  if (large) return *large;
  const std::size_t later = all.size() - first_later;
  if (hash64(seed, 6) % 20 == 0) return *all[first_later + hash64(seed, 1) % later];
  return *all[hash64(seed, 1) % first_later];
}

Studies make_studies(std::size_t workers) {
  std::string name = (std::filesystem::temp_directory_path() / "wflow-simulation-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw Error(ExitCode::system, "no temporary directory");
  const std::filesystem::path folder = std::filesystem::canonical(name);
  Studies studies;
  const auto make = [&](const std::vector<StudyText>& list) {
    for (const StudyText& text : list) {
      for (const int count : text.counts) studies.all.push_back(make_study(folder, text, count));
    }
  };
  make(texts());
  studies.first_later = studies.all.size();
  make(later_texts());
  constexpr std::size_t kSamplesOfAWorker = 5;
  const auto chain = std::ranges::find(texts(), std::string_view("chain"), &StudyText::name);
  if (workers > 0) studies.large = make_study(folder, *chain, static_cast<int>(kSamplesOfAWorker * workers));
  std::filesystem::remove_all(folder);
  return studies;
}

}  // namespace wflow::simulation
