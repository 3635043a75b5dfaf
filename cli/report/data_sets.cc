// SPDX-License-Identifier: Apache-2.0
// The training data: splits, statistics, histograms, a few samples.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "cli/report/report.h"
#include "engine/monitor/status.h"

namespace wflow::cli::report {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kHistograms = 12;

std::string number_text(const Json& value) {
  return value.is_number() ? fmt::format("{:.5g}", value.get<double>()) : "";
}

std::string channel_title(const Json& field, const Json& channel) {
  const std::string name = channel.value("name", "");
  const std::string of = field.at("name").get<std::string>();
  return name.empty() || name == of ? of : fmt::format("{}: {}", of, name);
}

void add_splits(const Json& summary, Page& page) {
  PageTable table{{"split", "samples", "shards", "size"}, {false, true, true, true}, {}};
  for (const Json& split : summary.at("splits"))
    table.rows.push_back({split.at("name").get<std::string>(),
                          text::format_count(split.at("samples").get<std::uint64_t>()),
                          text::format_count(split.at("shards").get<std::uint64_t>()),
                          text::format_bytes(split.at("bytes").get<std::uint64_t>())});
  page.table(table);
}

void add_fields(const Json& summary, Page& page) {
  PageTable table{{"field", "role", "type", "shape", "mean", "deviation", "least", "greatest"},
                  {false, false, false, false, true, true, true, true},
                  {}};
  for (const Json& field : summary.at("fields")) {
    std::string shape;
    for (const Json& axis : field.at("shape")) shape += (shape.empty() ? "" : " × ") + axis.dump();
    for (const Json& channel : field.at("channels"))
      table.rows.push_back({channel_title(field, channel), field.at("role").get<std::string>(),
                            field.at("dtype").get<std::string>(), shape.empty() ? "a number" : shape,
                            number_text(channel.at("mean")), number_text(channel.at("std")),
                            number_text(channel.at("min")), number_text(channel.at("max"))});
  }
  page.heading("Statistics of the training split");
  page.table(table);
}

std::string counted_values(std::uint64_t shown, std::uint64_t below, std::uint64_t above) {
  std::string text = fmt::format("{} of the training samples", counted(shown + below + above, "value"));
  if (below + above > 0)
    text += fmt::format(": {} in the plot, {} below and {} above it", text::format_count(shown),
                        text::format_count(below), text::format_count(above));
  return text + ".";
}

void add_histograms(const std::string& set, const Json& summary, Page& page) {
  std::size_t drawn = 0;
  for (const Json& field : summary.at("fields")) {
    for (const Json& channel : field.at("channels")) {
      if (!channel.contains("counts") || drawn++ >= kHistograms) continue;
      const std::string title = channel_title(field, channel);
      plot::Figure figure{.id = plot::figure_id(fmt::format("{}-{}", set, title)),
                          .kind = plot::Kind::histogram,
                          .title = title};
      figure.x = {.name = title, .unit = field.value("units", "")};
      figure.y = {.name = "values", .low = 0.0};
      const auto counts = channel.at("counts").get<std::vector<std::uint64_t>>();
      const double low = channel.at("low").get<double>();
      const double width = channel.at("width").get<double>();
      plot::Series series{.name = "values"};
      std::uint64_t shown = 0;
      for (std::size_t i = 0; i <= counts.size(); ++i)
        figure.edges.push_back(low + width * static_cast<double>(i));
      for (const std::uint64_t count : counts) {
        series.y.push_back(static_cast<double>(count));
        shown += count;
      }
      figure.series.push_back(std::move(series));
      figure.caption = counted_values(shown, channel.at("below").get<std::uint64_t>(),
                                      channel.at("above").get<std::uint64_t>());
      page.figure(std::move(figure));
    }
  }
}

// "sample 17, z=0 (omega_m = 0.31, sigma_8 = 0.82)".
std::string view_title(const Json& sample, const Json& view) {
  std::string numbers;
  for (const Json& number : sample.at("numbers")) {
    if (!number.at("value").is_number()) continue;
    numbers += fmt::format("{}{} = {:.3g}", numbers.empty() ? "" : ", ", number.at("name").get<std::string>(),
                           number.at("value").get<double>());
  }
  const std::string channel =
      view.value("channel", "").empty() ? view.at("field").get<std::string>() : view.value("channel", "");
  return fmt::format("sample {}, {}{}", sample.at("id").get<std::int64_t>(), channel,
                     numbers.empty() || numbers.size() > 60 ? "" : ": " + numbers);
}

void add_examples(const std::string& set, const Json& summary, Page& page) {
  plot::Figure pictures{
      .id = plot::figure_id(set + "-examples"), .kind = plot::Kind::images, .title = "Samples"};
  pictures.caption = "Slices through the middle, from the first shard.";
  plot::Figure lines{.id = plot::figure_id(set + "-series"), .kind = plot::Kind::lines, .title = "Samples"};
  lines.x = {.name = "part of the field", .low = 0.0, .high = 1.0};
  lines.y = {.name = "value"};
  for (const Json& sample : summary.at("examples")) {
    for (const Json& view : sample.at("views")) {
      if (view.contains("series")) {
        plot::Series series{.name = view_title(sample, view)};
        const Json& values = view.at("series");
        for (std::size_t i = 0; i < values.size(); ++i) {
          series.x.push_back(static_cast<double>(i) /
                             static_cast<double>(std::max<std::size_t>(values.size() - 1, 1)));
          series.y.push_back(values[i].is_number() ? values[i].get<double>() : NAN);
        }
        if (lines.series.size() < 8) lines.series.push_back(std::move(series));
        continue;
      }
      plot::Image image{.name = view_title(sample, view)};
      image.rows = view.at("rows").get<std::uint32_t>();
      image.columns = view.at("columns").get<std::uint32_t>();
      for (const Json& value : view.at("values"))
        image.values.push_back(value.is_number() ? value.get<float>() : NAN);
      pictures.images.push_back(std::move(image));
    }
  }
  if (!pictures.images.empty()) page.figure(std::move(pictures));
  if (!lines.series.empty()) page.figure(std::move(lines));
}

// "312 samples: 300 in shards, 9 failed, 3 not converted yet."
std::string samples_sentence(const ReportData& data, const DataSet& set) {
  std::uint64_t in_shards = 0;
  for (const Json& split : set.summary.at("splits")) in_shards += split.at("samples").get<std::uint64_t>();
  const auto missing = set.summary.value("missing", std::uint64_t{0});
  const auto dropped = set.summary.value("dropped", std::uint64_t{0});
  const std::uint64_t converted = in_shards + missing + dropped;
  std::uint64_t all = converted;
  engine::MissingCounts ended;
  for (const engine::StepStatus& step : data.status.steps) {
    if (step.name != set.step || step.samples == 0) continue;
    all = std::max(all, step.samples / std::max<std::uint64_t>(1, step.arrays));
    // The reasons are those of all combinations together.
    if (step.arrays == 1) ended = engine::counts_of(step.missing);
  }
  const std::uint64_t failed = std::min(ended.failed, missing);
  const std::uint64_t skipped = std::min(ended.skipped, missing - failed);
  std::string text = fmt::format("{}: {} in shards", counted(all, "sample"), text::format_count(in_shards));
  const auto add = [&](std::uint64_t count, const char* what) {
    if (count > 0) text += fmt::format(", {} {}", text::format_count(count), what);
  };
  add(failed, "failed");
  add(skipped, "skipped");
  add(missing - failed - skipped, "without usable output");
  add(dropped, "left out by a filter");
  add(all - converted, "not converted yet");
  return text + ".";
}

}  // namespace

void write_data_sets(const ReportData& data, Page& page) {
  for (const DataSet& set : data.data_sets) {
    page.section(plot::figure_id("data-" + set.step), "Data: " + set.step);
    page.paragraph(samples_sentence(data, set));
    add_splits(set.summary, page);
    add_fields(set.summary, page);
    add_examples(set.step, set.summary, page);
    add_histograms(set.step, set.summary, page);
  }
}

}  // namespace wflow::cli::report
