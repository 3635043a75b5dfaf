// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/task_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "engine/query/selection.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;
using engine::Range;
using specs::ArrayId;
using specs::Element;

constexpr auto kLastElement = static_cast<Element>(std::numeric_limits<std::int64_t>::max());

bool is_path_of_campaign(const std::string& word) {
  std::error_code ignored;
  return is_campaign(word) || fs::is_regular_file(word, ignored);
}

std::optional<fs::path> campaign_named(const std::string& word) {
  try {
    return find_campaign(word);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// True if the part before the first slash is a step.
bool names_step(const specs::Plan& plan, const std::string& word) {
  const std::string name = word.substr(0, word.find('/'));
  return std::ranges::any_of(plan.steps(), [&](const specs::PlannedStep& step) {
    return step.name == name || plan.study().steps[step.study_step].name == name;
  });
}

std::optional<Range> range_of(std::string_view text) {
  const std::size_t sign = text.find_first_of(":-");
  if (sign == std::string_view::npos) {
    const auto element = text::to_integer(text);
    if (!element || *element < 0) return std::nullopt;
    return Range{static_cast<Element>(*element), static_cast<Element>(*element)};
  }
  const bool open = text[sign] == ':' && text.size() > 1;
  const std::string_view low = text.substr(0, sign), high = text.substr(sign + 1);
  const auto first = open && low.empty() ? std::optional<std::int64_t>(0) : text::to_integer(low);
  const auto last =
      open && high.empty() ? std::optional(static_cast<std::int64_t>(kLastElement)) : text::to_integer(high);
  if (!first || !last || *first < 0 || *last < *first) return std::nullopt;
  return Range{static_cast<Element>(*first), static_cast<Element>(*last)};
}

// The arrays that a word without a range names, as stretches with all of their elements.
std::vector<Stretch> arrays_named(const specs::Plan& plan, const std::string& name) {
  std::vector<Stretch> found;
  for (const specs::PlannedStep& step : plan.steps()) {
    const ArrayId last = step.first_array + step.arrays - 1;
    if (step.arrays == 0 || step.elements == 0) continue;
    const Range all{0, step.elements - 1};
    if (step.name == name || plan.study().steps[step.study_step].name == name) {
      found.push_back({step.first_array, last, all});
      continue;
    }
    // The arrays of a parameter's value have names like simulate/OMEGA.0.3.
    for (ArrayId array = step.first_array; name.starts_with(step.name + "/") && array <= last; ++array) {
      if (plan.array_name(array) == name) found.push_back({array, array, all});
    }
  }
  return found;
}

// The elements of a range in those of these arrays that have all of them: a data set's blocks, and not its
// manifest.
std::vector<Stretch> part_of(const std::vector<Stretch>& arrays, const Range& range,
                             const std::string& word) {
  const bool open = range.last == kLastElement;
  std::vector<Stretch> found;
  Element last = 0;
  for (const Stretch& all : arrays) {
    last = std::max(last, all.range.last);
    if (range.first <= all.range.last && (open || range.last <= all.range.last))
      found.push_back({all.first, all.last, {range.first, std::min(range.last, all.range.last)}});
  }
  const std::string name = word.substr(0, word.rfind('/'));
  if (found.empty() && last == 0)
    throw Error(ExitCode::usage, fmt::format("'{}': {} is a single task", word, name));
  if (found.empty())
    throw Error(ExitCode::usage, fmt::format("'{}': the tasks of {} are 0 to {}", word, name, last));
  return found;
}

std::vector<Stretch> named(const specs::Plan& plan, const std::string& word) {
  if (auto whole = arrays_named(plan, word); !whole.empty()) return whole;
  const std::size_t slash = word.rfind('/');
  std::vector<Stretch> found;
  if (slash != std::string::npos) {
    const std::vector<Stretch> arrays = arrays_named(plan, word.substr(0, slash));
    if (!arrays.empty()) {
      for (const Range& range : parse_ranges(word.substr(slash + 1), word)) {
        const std::vector<Stretch> part = part_of(arrays, range, word);
        found.insert(found.end(), part.begin(), part.end());
      }
      return found;
    }
  }
  engine::arrays_of_step(plan, word.substr(0, slash == std::string::npos ? slash : word.find('/')));
  throw Error(ExitCode::usage, fmt::format("'{}' is no part of the step; write STEP/3, STEP/1-5,7 or, with "
                                           "parameters, the name that wflow tasks shows",
                                           word));
}

}  // namespace

void add_task_words(CLI::App& command, TaskWords& words) {
  command
      .add_option("campaign-and-tasks", words,
                  "the campaign (default: the newest here) and the tasks, in any order: simulate, "
                  "simulate/12, simulate/1-5,7")
      ->type_name("[CAMPAIGN] [TASKS]")
      ->expected(0, -1);
}

Meant meant_by(const TaskWords& words) {
  if (words.empty()) return {find_campaign(""), {}};
  const auto meant = [&](TaskWords::const_iterator word, fs::path campaign) {
    Meant meant{std::move(campaign), words};
    meant.tasks.erase(meant.tasks.begin() + (word - words.begin()));
    return meant;
  };
  const auto path = std::ranges::find_if(words, is_path_of_campaign);
  if (path != words.end()) return meant(path, find_campaign(*path));
  const auto here = campaign_named("");
  const std::optional<specs::Plan> newest = here ? std::optional(read_plan(*here)) : std::nullopt;
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (newest && names_step(*newest, *word)) continue;
    std::error_code ignored;
    if (fs::is_directory(*word, ignored)) return meant(word, find_campaign(*word));
    if (auto campaign = campaign_named(*word)) return meant(word, std::move(*campaign));
  }
  // Without a campaign here, the first word is one that is not there: it is named.
  return {here ? *here : find_campaign(words.front()), words};
}

std::vector<Range> parse_ranges(std::string_view written, std::string_view what) {
  std::vector<Range> ranges;
  for (const std::string& part : text::split(std::string(written), ',')) {
    const auto range = range_of(text::trim(part));
    if (!range) {
      throw Error(ExitCode::usage,
                  fmt::format("'{}': write numbers and ranges, both ends included: 3, 1-5,7 or 100: (to the "
                              "last)",
                              what));
    }
    ranges.push_back(*range);
  }
  return ranges;
}

std::vector<Stretch> tasks_named(const specs::Plan& plan, const TaskWords& tasks) {
  std::vector<Stretch> found;
  for (const std::string& word : tasks) {
    const std::vector<Stretch> more = named(plan, word);
    found.insert(found.end(), more.begin(), more.end());
  }
  if (!tasks.empty()) return found;
  for (const specs::PlannedStep& step : plan.steps()) {
    if (step.arrays > 0 && step.elements > 0)
      found.push_back({step.first_array, step.first_array + step.arrays - 1, {0, step.elements - 1}});
  }
  return found;
}

}  // namespace wflow::cli
