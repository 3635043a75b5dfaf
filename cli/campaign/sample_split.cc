// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/sample_split.h"

#include <algorithm>
#include <string>

#include "base/yaml.h"

namespace wflow::cli {

namespace {

converters::SplitRequest split_of(const specs::Plan& plan, const specs::PlannedStep& convert) {
  yaml::Diagnostics ignored("");  // the study was checked when it was read
  const std::string settings = plan.task_template(convert.first_array).settings;
  return converters::read_convert_config(yaml::parse(settings, ignored), ignored).split;
}

std::optional<std::size_t> column_of(const specs::SampleTable& samples, const std::string& name) {
  const auto found = std::find(samples.columns().begin(), samples.columns().end(), name);
  if (name.empty() || found == samples.columns().end()) return std::nullopt;
  return static_cast<std::size_t>(found - samples.columns().begin());
}

}  // namespace

SampleSplit::SampleSplit(const specs::Plan& plan, const specs::PlannedStep& convert,
                         const specs::SampleTable& samples)
    : samples_(samples),
      request_(split_of(plan, convert)),
      map_(request_, samples.count()),
      group_column_(column_of(samples, request_.group_by)),
      stratum_column_(column_of(samples, request_.stratify_by)),
      block_samples_(std::max<std::uint64_t>(convert.block_samples, 1)) {}

// As in converters/input/sample_table.cc, of the rows that steps/convert.cc hands over.
std::uint64_t SampleSplit::identity(specs::Element sample) const {
  return converters::identity_of(group_column_ ? samples_.text(sample, *group_column_)
                                               : std::to_string(sample));
}

std::uint64_t SampleSplit::stratum(specs::Element sample) const {
  const auto& edges = request_.stratify_edges;
  if (edges.empty()) return converters::identity_of(samples_.text(sample, *stratum_column_));
  const double value = samples_.number(sample, *stratum_column_);
  return static_cast<std::uint64_t>(std::upper_bound(edges.begin(), edges.end(), value) - edges.begin());
}

std::optional<std::size_t> SampleSplit::place_stratified(specs::Element sample) {
  const specs::Element first = sample / block_samples_ * block_samples_;
  if (sample < next_ || next_ < first) {
    strata_.clear();
    next_ = first;
  }
  std::optional<std::size_t> part;
  for (; next_ <= sample; ++next_) {
    if (next_ % block_samples_ == 0) strata_.clear();
    part = map_.next_of(strata_[stratum(next_)], identity(next_));
  }
  return part;
}

std::optional<std::string_view> SampleSplit::of(specs::Element sample) {
  const auto part = stratum_column_ ? place_stratified(sample) : map_.of(sample, identity(sample));
  return part ? std::optional(converters::kSplitNames.at(*part)) : std::nullopt;
}

}  // namespace wflow::cli
