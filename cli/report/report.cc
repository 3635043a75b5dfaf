// SPDX-License-Identifier: Apache-2.0
#include "cli/report/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

#include "base/text.h"
#include "base/version.h"

namespace wflow::cli::report {

std::string counted(std::uint64_t count, const std::string& one) {
  return text::format_count(count) + " " + one + (count == 1 ? "" : "s");
}

std::string core_time_text(double seconds) {
  constexpr double kHour_s = 3600;
  constexpr double kLong_s = 24 * kHour_s;
  if (seconds < kLong_s) return text::format_duration(seconds);
  return text::format_count(static_cast<std::uint64_t>(seconds / kHour_s)) + " core-hours";
}

std::string date_text(double unix_s) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(static_cast<std::time_t>(unix_s)));
}

Report make_report(const ReportData& data, const ReportOptions& options) {
  Page::Cleaner clean = [](std::string_view text) { return std::string(text); };
  if (options.share)
    clean = [redactor = redactor_for(data)](std::string_view text) { return redactor(text); };
  Page page(clean);
  write_summary(data, page);
  write_steps(data, page);
  write_activity(data, page);
  write_usage(data, page);
  write_failures(data, page);
  write_samples(data, page);
  write_data_sets(data, page);
  write_training(data, page);
  write_study_files(data, page);
  write_lineage(data, options, page);
  return {.title = data.status.name,
          .subtitle = fmt::format("{}, seen at {} with wflow {}", engine::name_of(data.status.state),
                                  date_text(data.made_s), kVersion),
          .page = std::move(page)};
}

}  // namespace wflow::cli::report
