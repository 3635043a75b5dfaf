// SPDX-License-Identifier: Apache-2.0
#include "cli/report/report.h"

#include <fmt/format.h>

#include "base/version.h"
#include "cli/report/redact.h"

namespace wflow::cli::report {

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
  write_lineage(data, options, page);
  Report report;
  report.html = page.html(data.status.name,
                          fmt::format("{}, seen at {} with wflow {}", engine::name_of(data.status.state),
                                      date_text(data.made_s), kVersion));
  report.figures = page.figures();
  return report;
}

}  // namespace wflow::cli::report
