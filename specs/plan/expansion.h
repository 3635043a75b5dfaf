// SPDX-License-Identifier: Apache-2.0
// The parameters that each step uses, its instances over them, and the values of tokens in each.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "specs/study/study.h"
#include "specs/study/when.h"

namespace wflow::specs {

// A subset of the numbers from 0 to size - 1: one bit a number, and a count for every 64.

class Subset {
 public:
  // Holds the numbers for which `keep` is true.
  Subset(std::uint32_t size, const std::function<bool(std::uint32_t)>& keep)
      : words_((size + 63) / 64), before_(words_.size()) {
    for (std::uint32_t i = 0; i < size; ++i) {
      if (i % 64 == 0) before_[i / 64] = count_;
      if (!keep(i)) continue;
      words_[i / 64] |= std::uint64_t{1} << (i % 64);
      ++count_;
    }
  }

  std::uint32_t count() const { return count_; }
  bool contains(std::uint32_t i) const { return (words_[i / 64] >> (i % 64) & 1) != 0; }

  // The number of smaller members.
  std::uint32_t position(std::uint32_t i) const {
    const std::uint64_t smaller = words_[i / 64] & ((std::uint64_t{1} << (i % 64)) - 1);
    return before_[i / 64] + static_cast<std::uint32_t>(std::popcount(smaller));
  }

  // The member at `position`, which is below count().
  std::uint32_t at(std::uint32_t position) const {
    const auto after = std::upper_bound(before_.begin(), before_.end(), position);
    const auto word = static_cast<std::uint32_t>(after - before_.begin()) - 1;
    std::uint64_t bits = words_[word];
    for (std::uint32_t left = position - before_[word]; left > 0; --left) bits &= bits - 1;
    return word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
  }

 private:
  std::vector<std::uint64_t> words_;
  std::vector<std::uint32_t> before_;  // members below each word's first number
  std::uint32_t count_ = 0;
};

// $(STEP.workspace): the directory of another step.
inline constexpr std::string_view kWorkspaceSuffix = ".workspace";

// The distinct combinations of a set of parameters.
struct Instances {
  std::vector<std::uint32_t> parameters;   // indices into Study::parameters, sorted by name
  std::vector<std::uint32_t> rows;         // for each instance: the first row with its values
  std::vector<std::uint32_t> instance_of;  // for each row: its instance; empty if there is one instance
  std::uint32_t count() const { return static_cast<std::uint32_t>(rows.size()); }
  std::uint32_t at_row(std::uint32_t row) const { return instance_of.empty() ? 0 : instance_of[row]; }
};

// A step's block with the values of one combination.
struct ResolvedBlock {
  yaml::Node node;
  bool has_values = false;  // false: as written, the same in all combinations
};

// Refers to the study, which must outlive it and keep its address.
class Expansion {
 public:
  explicit Expansion(const Study& study);

  // The combinations that a step exists for: those of its parameters for which its when: is true and, for a
  // conversion or a training, the step whose output it reads exists. Numbered from 0.
  std::uint32_t count(std::size_t step) const;
  std::uint32_t row(std::size_t step, std::uint32_t combination) const;  // the first with its values
  std::optional<std::uint32_t> combination_at(std::size_t step, std::uint32_t row) const;

  // Conditions without a value for some combination.
  const std::vector<WhenConditions::Problem>& problems() const { return problems_; }

  bool sample_dependent(std::size_t step) const { return sample_dependent_[step]; }
  std::optional<std::size_t> step_index(std::string_view name) const;

  // The used parameters' labels, joined by "." and as a directory has them; empty without parameters.
  std::string label(std::size_t step, std::uint32_t row) const;
  std::filesystem::path workspace(const std::filesystem::path& campaign, std::size_t step,
                                  std::uint32_t row) const;

  // The value of $(name) in this step at this row: labels, parameters, workspaces, Merlin's words; not tokens
  // that differ from sample to sample.
  std::optional<std::string> resolve(const std::filesystem::path& campaign, std::size_t step,
                                     std::uint32_t row, std::string_view name) const;

  ResolvedBlock block(const std::filesystem::path& campaign, std::size_t step, std::uint32_t row) const;

  // `text` with the names of env.labels replaced by their values, as Merlin does before it looks for
  // parameters and samples.
  std::string with_labels(std::string_view text) const;

  // The resources, with parameters replaced by their values.
  Resources resources(std::size_t step, std::uint32_t row) const;

  // The keys for the step's launcher, with labels and parameters replaced, and other tokens that resolve()
  // knows.
  LauncherKeys launcher_keys(const std::filesystem::path& campaign, std::size_t step,
                             std::uint32_t row) const;

  // The index of the column that $(name) names, as written or in another case.
  std::optional<std::uint32_t> column(std::string_view name) const;

 private:
  void find_used_parameters(const WhenConditions& conditions);
  void add_used(std::string_view text, std::vector<bool>& used) const;
  bool makes_samples(std::string_view name) const;
  bool names_samples(std::string_view text) const;
  void find_sample_dependent_steps();
  std::optional<std::string> label_or_parameter(std::string_view name, std::uint32_t row) const;
  const Instances& make_group(const std::vector<std::uint32_t>& parameters);
  const Instances& group(std::size_t step) const { return groups_.at(used_[step]); }
  void find_left_out(WhenConditions& conditions);

  const Study& study_;
  std::map<std::string, std::size_t, std::less<>> step_index_;
  std::map<std::string, std::uint32_t, std::less<>> parameter_index_;
  std::map<std::string, std::string, std::less<>> labels_;
  std::map<std::string, std::uint32_t, std::less<>> columns_;        // as written
  std::map<std::string, std::uint32_t, std::less<>> lower_columns_;  // in lower case
  std::vector<std::vector<std::uint32_t>> used_;                     // by step
  std::map<std::vector<std::uint32_t>, Instances> groups_;
  std::vector<std::optional<Subset>> kept_;  // by step: instances of its group; nothing: all
  std::vector<WhenConditions::Problem> problems_;
  std::vector<bool> sample_dependent_;
};

// $(P), $(P.label) or $(P.name) in a row.
std::string parameter_text(const Parameter& parameter, std::string_view name, std::uint32_t row);

// Merlin's pattern for all directories of samples: "*/" once a level; and the list of them.
std::string glob_path(const Samples& samples);
std::string all_sample_paths(const Samples& samples);

}  // namespace wflow::specs
