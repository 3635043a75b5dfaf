// SPDX-License-Identifier: Apache-2.0
// Numbers from a log: the groups of a regular expression (RE2: time linear in the text for any
// pattern).
#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <cstring>

#include "base/csv.h"
#include "base/error.h"
#include "base/text.h"
#include "converters/readers/reader.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

class TextInput final : public MemoryReader {
 public:
  explicit TextInput(const fs::path& path) : file_(path) {}

  InputField find(const Selector& selector) override {
    const RE2 pattern(selector.regex, RE2::Quiet);
    const int groups = pattern.NumberOfCapturingGroups();
    if (!pattern.ok() || groups < 1)
      throw Error(ExitCode::spec, fmt::format("'{}' is no regular expression with a group", selector.regex));
    collect(pattern, static_cast<std::size_t>(groups), selector.match);
    choose(selector, static_cast<std::size_t>(groups));
    return field_;
  }

 private:
  void collect(const RE2& pattern, std::size_t groups, Match match) {
    values_.clear();
    matches_ = 0;
    std::vector<re2::StringPiece> found(groups + 1);
    csv::LineReader lines(file_.descriptor(), file_.path());
    csv::Line line;
    while (lines.next(line)) {
      const re2::StringPiece text(line.text.data(), line.text.size());
      std::size_t at = 0;
      while (at <= text.size() && pattern.Match(text, at, text.size(), RE2::UNANCHORED, found.data(),
                                                static_cast<int>(found.size()))) {
        const auto end = static_cast<std::size_t>(found[0].data() - text.data()) + found[0].size();
        at = std::max(end, at + 1);
        ++matches_;
        if (match == Match::first && matches_ > 1) continue;
        if (match == Match::last) values_.clear();
        for (std::size_t k = 1; k <= groups; ++k) values_.push_back(number(found[k], line));
        if (values_.size() * sizeof(double) > kMostSampleBytes)
          throw Error(ExitCode::data,
                      fmt::format("{} has matches for more than 4 GiB, which no sample may have",
                                  file_.path().string()));
      }
    }
  }

  // Fortran's exponents (1.5D-3) count as numbers.
  double number(const re2::StringPiece& group, const csv::Line& line) const {
    std::string text(text::trim(std::string_view(group.data() == nullptr ? "" : group.data(), group.size())));
    std::replace(text.begin(), text.end(), 'D', 'E');
    std::replace(text.begin(), text.end(), 'd', 'e');
    const auto value = text::to_real(text);
    if (value) return *value;
    throw Error(ExitCode::data, fmt::format("{}:{}: the expression finds '{}', which is not a number",
                                            file_.path().string(), line.number, text::tail(text, 40)));
  }

  void choose(const Selector& selector, std::size_t groups) {
    if (matches_ == 0)
      throw Error(ExitCode::data,
                  fmt::format("{} has no line that matches '{}'", file_.path().string(), selector.regex));
    if (selector.match == Match::one && matches_ > 1) {
      throw Error(ExitCode::data,
                  fmt::format("'{}' matches {} times in {}; say which: 'match: first', 'last' or 'all'",
                              selector.regex, matches_, file_.path().string()));
    }
    field_ = {};
    field_.dtype = DType::float64;
    if (selector.match == Match::all) {
      field_.shape = {values_.size() / groups};
      field_.axes.push_back('T');  // an assignment is what GCC 12 warns of
    }
    for (std::size_t k = 0; groups > 1 && k < groups; ++k)
      field_.components.push_back(fmt::format("group {}", k + 1));
    bytes_.resize(values_.size() * sizeof(double));
    std::memcpy(bytes_.data(), values_.data(), bytes_.size());
  }

  InputFile file_;
  std::vector<double> values_;
  std::uint64_t matches_ = 0;
};

}  // namespace

std::unique_ptr<InputReader> open_text(const fs::path& path, const Selector&) {
  return std::make_unique<TextInput>(path);
}

}  // namespace wflow::converters
