// SPDX-License-Identifier: Apache-2.0
// The one grammar for tasks on a command line: a campaign and tasks of it, in any order.
//   wflow tasks                        all of the newest campaign here
//   wflow logs simulate/12             a task of the newest campaign here
//   wflow retry cosmoflow simulate     a step of the newest campaign whose name begins with cosmoflow
//   wflow redo simulate/1-5,7 DIR      six tasks of the campaign in DIR
// Tasks are STEP, STEP/3, STEP/1-5,7, STEP/100: (to the last), STEP/LABELS and STEP/LABELS/3.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/schedule/intervals.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

// The words of a command line, as typed.
using TaskWords = std::vector<std::string>;

// `words` must outlive the parsing.
void add_task_words(CLI::App& command, TaskWords& words);

struct Meant {
  std::filesystem::path campaign;
  TaskWords tasks;  // the other words
};
// A word is the campaign if it is the path of a campaign or of a study's file; else if it is no step of the
// newest campaign here, and the beginning of a campaign's name. Error{usage} if there is no campaign.
Meant meant_by(const TaskWords& words);

// "3", "1-5,7", "100:199", "100:", ":7": elements, both ends included. Error{usage} with `what`.
std::vector<engine::Range> parse_ranges(std::string_view text, std::string_view what);

// A range of elements in each of some neighbouring arrays of one step.
struct Stretch {
  specs::ArrayId first = 0, last = 0;
  engine::Range range;
  std::uint64_t arrays() const { return std::uint64_t{last} - first + 1; }
  std::uint64_t size() const { return arrays() * range.size(); }  // in tasks
  bool is_whole(const specs::PlannedStep& step) const {
    return arrays() == step.arrays && range.size() == step.elements;
  }
  bool contains(specs::ArrayId array, specs::Element element) const {
    return array >= first && array <= last && element >= range.first && element <= range.last;
  }
};
// The tasks that the words name, each word and range as stretches of its own; all tasks for no words.
// Error{usage} for an unknown step, an invalid range, or one without any task.
std::vector<Stretch> tasks_named(const specs::Plan& plan, const TaskWords& tasks);

}  // namespace wflow::cli
