// SPDX-License-Identifier: Apache-2.0
// wflow-plugin-host --config FILE --first N --count N: runs a plugin for some samples of one bundle, in the
// bundle's directory. A worker starts it (steps/plugin.cc) and reads its reports in $WFLOW_EVENTS.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/blocks.h"
#include "base/error.h"
#include "base/file.h"
#include "base/program_file.h"
#include "base/text.h"
#include "base/yaml.h"
#include "plugin/library.h"
#include "plugin/trace_host.h"
#include "specs/samples/samples.h"
#include "specs/study/blocks.h"

namespace wflow::plugin {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kErrorBytes = 1024;
// Rows are written after this many bytes or this much time, which limits the loss in a crash.
constexpr std::size_t kBufferBytes = 1 << 20;
constexpr std::chrono::milliseconds kKeepRows{200};

// A simulator that calls exit() counts as crashed: it must not look like a process that could not begin.
bool in_sample = false;
void crash_if_in_sample() {
  if (in_sample) std::abort();
}

struct Job {
  std::string library, symbol, posterior, command, directory;
  std::uint64_t seed = 1;
  std::uint64_t bundle = 1;
  bool check_finite = true;
  std::unique_ptr<const specs::SampleTable> samples;
  std::vector<std::uint64_t> starts;  // bundles begin at these samples, too
  std::vector<std::size_t> columns;
  std::uint64_t first = 0;
  std::uint64_t count = 0;

  BlockRange whole() const { return Blocks(bundle, starts).around(first, samples->count()); }
  std::uint64_t begin() const { return whole().first; }
  std::uint64_t rows() const { return whole().size(); }
};

// The file that steps/plugin.cc has written: the plugin: block, with `samples` as JSON.
Job read_job(const std::string& path) {
  yaml::Diagnostics diagnostics(path);
  yaml::Node block = yaml::parse(read_file(path), diagnostics);
  diagnostics.throw_if_errors();
  const yaml::Node* written = block.find("samples");
  if (written == nullptr) throw Error(ExitCode::spec, path + " has no samples");
  Job job;
  const nlohmann::json json = nlohmann::json::parse(written->text, nullptr, false);
  const specs::SampleDesign design = specs::design_from_json(json);
  job.samples = specs::open_samples(design);
  job.starts = specs::block_starts(design);
  specs::remove_key(block, "samples");
  const specs::PluginBlock plugin = specs::read_plugin(block, diagnostics);
  diagnostics.throw_if_errors();
  job.library = plugin.library;
  job.symbol = plugin.symbol;
  job.bundle = plugin.bundle;
  job.check_finite = plugin.check_finite;
  job.posterior = plugin.posterior;
  job.command = plugin.command;
  job.directory = plugin.directory;
  job.seed = plugin.seed;
  const auto& all = job.samples->columns();
  for (const std::string& name : plugin.parameters.empty() ? all : plugin.parameters) {
    const auto found = std::find(all.begin(), all.end(), name);
    if (found == all.end())
      throw Error(ExitCode::data, fmt::format("'{}' is no column of the samples", name));
    job.columns.push_back(static_cast<std::size_t>(found - all.begin()));
  }
  return job;
}

// Lines of $WFLOW_EVENTS. Unlike progress, they must not be lost: a sample without a report counts as
// done.
class Reports {
 public:
  Reports() {
    const char* path = std::getenv("WFLOW_EVENTS");
    path_ = path == nullptr ? "" : path;
  }

  void write(const nlohmann::json& event) {
    const std::string line = event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    if (path_.empty()) {
      fmt::print("{}", line);
      return;
    }
    if (!fd_) fd_ = open_file(path_, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    write_all(fd_.get(), line, path_);
  }

 private:
  std::string path_;
  FileDescriptor fd_;
};

class Host {
 public:
  explicit Host(const Job& job) : job_(job), plugin_(load_library(job.library, job.symbol)) {
    if (is_traced(plugin_)) traces_.emplace(plugin_, TraceHost::Settings{job.seed, job.posterior, job.first});
    std::size_t row_bytes = 0;
    for (const wflow_array& array : arrays()) {
      files_.emplace_back(array, job.rows());
      row_bytes += files_.back().row_bytes();
    }
    kept_most_ = std::clamp<std::uint64_t>(kBufferBytes / row_bytes, 1, job.count);
    for (const RowFile& file : files_) buffers_.emplace_back(kept_most_ * file.row_bytes());
    for (const std::size_t column : job.columns) names_.push_back(job.samples->columns()[column].c_str());
    parameters_.resize(names_.size());
    results_.resize(files_.size());
  }

  void run() {
    begin();
    kept_from_ = job_.first;
    for (std::uint64_t sample = job_.first; sample < job_.first + job_.count; ++sample) {
      one(sample);
      ++kept_;
      // Samples reported here need no report at the end: exit code 0 reports all others as done.
      if (kept_ == kept_most_ || Clock::now() - flushed_ > kKeepRows)
        flush(sample + 1 < job_.first + job_.count);
    }
    flush(false);
    if (plugin_.end != nullptr) plugin_.end(state_);
  }

 private:
  void begin() {
    if (plugin_.begin == nullptr) return;
    const wflow_context context{static_cast<std::uint32_t>(names_.size()), names_.data(), job_.first,
                                job_.count};
    error_[0] = '\0';
    if (plugin_.begin(&context, &state_, error_, sizeof error_) == 0) return;
    throw Error(ExitCode::data, fmt::format("the plugin {} did not begin: {}", job_.library, error_text()));
  }

  std::span<const wflow_array> arrays() const { return traces_ ? traces_->arrays() : arrays_of(plugin_); }

  void one(std::uint64_t sample) {
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      parameters_[i] = job_.samples->number(sample, job_.columns[i]);
    for (std::size_t i = 0; i < files_.size(); ++i) {
      std::uint8_t* row = buffers_[i].data() + kept_ * files_[i].row_bytes();
      files_[i].clear(row, 1);
      results_[i] = row;
    }
    const TraceHost::Outcome outcome = traces_ ? run_trace(sample) : run_plain(sample);
    if (outcome.code != 0) {
      failed(sample, outcome.code, outcome.error);
    } else if (job_.check_finite) {
      check_finite(sample);
    }
  }

  TraceHost::Outcome run_plain(std::uint64_t sample) {
    error_[0] = '\0';
    in_sample = true;
    const int code = plugin_.run(state_, sample, parameters_.data(), results_.data(), error_, sizeof error_);
    in_sample = false;
    return {code, code == 0 ? std::string() : error_text()};
  }

  TraceHost::Outcome run_trace(std::uint64_t sample) {
    in_sample = true;
    TraceHost::Outcome outcome = traces_->run(state_, sample, parameters_.data(), results_);
    in_sample = false;
    return outcome;
  }

  void check_finite(std::uint64_t sample) {
    for (std::size_t i = 0; i < files_.size(); ++i) {
      if (files_[i].finite(static_cast<const std::uint8_t*>(results_[i]))) continue;
      failed(sample, 1, fmt::format("{} holds NaN or infinity", arrays()[i].name));
      return;
    }
  }

  void failed(std::uint64_t sample, int code, const std::string& why) {
    failures_.push_back({{"type", "sample_failed"}, {"sample", sample}, {"error", why}, {"exit_code", code}});
    for (std::size_t i = 0; i < files_.size(); ++i)
      files_[i].clear(static_cast<std::uint8_t*>(results_[i]), 1);
  }

  // Writes rows before their reports: a report is never ahead of its file.
  void flush(bool report) {
    if (traces_) traces_->flush(!report);
    for (std::size_t i = 0; i < files_.size() && kept_ > 0; ++i)
      files_[i].write(kept_from_ - job_.begin(), kept_, buffers_[i].data());
    if (report) reports_.write({{"type", "sample_done"}, {"first", kept_from_}, {"count", kept_}});
    for (const nlohmann::json& failure : failures_) reports_.write(failure);
    failures_.clear();
    kept_from_ += kept_;
    kept_ = 0;
    flushed_ = Clock::now();
  }

  std::string error_text() {
    error_[kErrorBytes - 1] = '\0';
    return error_[0] == '\0' ? "no reason given" : error_;
  }

  const Job& job_;
  const Description& plugin_;
  Reports reports_;
  std::optional<TraceHost> traces_;  // of a simulator that takes its draws from wflow
  std::vector<RowFile> files_;
  std::vector<std::vector<std::uint8_t>> buffers_;  // rows kept_from_ .. kept_from_ + kept_ of each file
  std::vector<const char*> names_;
  std::vector<double> parameters_;
  std::vector<void*> results_;
  std::vector<nlohmann::json> failures_;
  void* state_ = nullptr;
  char error_[kErrorBytes] = "";
  std::uint64_t kept_most_ = 1;
  std::uint64_t kept_from_ = 0;
  std::uint64_t kept_ = 0;
  Clock::time_point flushed_ = Clock::now();
};

std::uint64_t number(std::string_view word, std::string_view option) {
  const auto value = text::to_integer(word);
  if (!value || *value < 0) throw Error(ExitCode::usage, fmt::format("{} takes a whole number", option));
  return static_cast<std::uint64_t>(*value);
}

int run_program(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--version") {  // wflow doctor: do its libraries load?
    fmt::print("wflow-plugin-host {}\n", kVersion);
    return 0;
  }
  std::string config;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    if (option == "--config") config = argv[i + 1];
    if (option == "--first") first = number(argv[i + 1], option);
    if (option == "--count") count = number(argv[i + 1], option);
  }
  if (config.empty() || count == 0)
    throw Error(ExitCode::usage, "wflow-plugin-host --config FILE --first N --count N: workers start it");
  Job job = read_job(config);
  job.first = first;
  job.count = count;
  if (first >= job.samples->count() || count > job.begin() + job.rows() - first)
    throw Error(ExitCode::usage,
                fmt::format("samples {} to {} are not of one bundle", first, first + count - 1));
  if (!job.command.empty()) {  // for the library, which may start it while it describes itself
    ::setenv("WFLOW_PLUGIN_COMMAND", job.command.c_str(), 1);
    ::setenv("WFLOW_PLUGIN_DIRECTORY", job.directory.c_str(), 1);
  }
  std::atexit(crash_if_in_sample);
  Host(job).run();
  return 0;
}

}  // namespace

}  // namespace wflow::plugin

int main(int argc, char** argv) {
  return wflow::run_main("wflow-plugin-host", wflow::plugin::run_program, argc, argv);
}
