// SPDX-License-Identifier: Apache-2.0
// Which parameters each step uses, the instances that makes, and what tokens stand for in each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "specs/study/study.h"
#include "specs/study/subset.h"
#include "specs/study/when.h"

namespace wflow::specs {

// $(STEP.workspace): where another step runs.
inline constexpr std::string_view kWorkspaceSuffix = ".workspace";

// The distinct combinations of a set of parameters.
struct Instances {
  std::vector<std::uint32_t> parameters;   // indices into Study::parameters, sorted by name
  std::vector<std::uint32_t> rows;         // of each instance: the first row with its values
  std::vector<std::uint32_t> instance_of;  // of each row: its instance; empty when there is one instance
  std::uint32_t count() const { return static_cast<std::uint32_t>(rows.size()); }
  std::uint32_t at_row(std::uint32_t row) const { return instance_of.empty() ? 0 : instance_of[row]; }
};

// Refers to the study, which must outlive it and stay in its place.
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

  // What $(name) stands for in this step at this row: labels, parameters, workspaces, Merlin's words; not
  // what differs from sample to sample.
  std::optional<std::string> resolve(const std::filesystem::path& campaign, std::size_t step,
                                     std::uint32_t row, std::string_view name) const;

  // `text` with the values of env.labels in the place of their names, as Merlin has it before it looks for
  // parameters and samples.
  std::string with_labels(std::string_view text) const;

  // The resources, with parameters' values put in.
  Resources resources(std::size_t step, std::uint32_t row) const;

  // Index of the column that $(name) stands for: as written, or in another case.
  std::optional<std::uint32_t> column(std::string_view name) const;

 private:
  void find_used_parameters(const WhenConditions& conditions);
  void add_used(std::string_view text, std::vector<bool>& used) const;
  bool names_samples(std::string_view text) const;
  void find_sample_dependent_steps();
  const Instances& make_group(const std::vector<std::uint32_t>& parameters);
  const Instances& group(std::size_t step) const { return groups_.at(used_[step]); }
  void find_left_out(WhenConditions& conditions);

  const Study& study_;
  std::map<std::string, std::size_t, std::less<>> step_index_;
  std::map<std::string, std::uint32_t, std::less<>> parameter_index_;
  std::map<std::string, std::string, std::less<>> labels_;
  std::map<std::string, std::uint32_t, std::less<>> columns_;        // as written
  std::map<std::string, std::uint32_t, std::less<>> lower_columns_;  // in small letters
  std::vector<std::vector<std::uint32_t>> used_;                     // of each step
  std::map<std::vector<std::uint32_t>, Instances> groups_;
  std::vector<std::optional<Subset>> kept_;  // of each step: instances of its group; nothing: all
  std::vector<WhenConditions::Problem> problems_;
  std::vector<bool> sample_dependent_;
};

// $(P), $(P.label) or $(P.name) in a row.
std::string parameter_text(const Parameter& parameter, std::string_view name, std::uint32_t row);

// Merlin's fan-out pattern: "*/" once a level; and all directories of samples.
std::string glob_path(const Samples& samples);
std::string all_sample_paths(const Samples& samples);

}  // namespace wflow::specs
