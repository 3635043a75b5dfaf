// SPDX-License-Identifier: Apache-2.0
// Seconds of passes that plans have measured, kept in a file of the user for later plans.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// The passes of a step over a rank's part of the samples, of the slowest rank.
struct PassSeconds {
  double forward = 0;   // with all passes before the last backward pass
  double backward = 0;  // the last one
  double update = 0;    // of the weights
  // When the gradients of each bucket were final, from the beginning of the backward pass: in the order in
  // which they are summed (gradient_exchange.h).
  std::vector<double> ready = {};
  double samples = 0;  // of a loader's thread: to copy, scale and augment the step's decoded samples
  bool operator==(const PassSeconds&) const = default;
};

nlohmann::json to_json(const PassSeconds& pass);
// Nothing if the numbers are no times.
std::optional<PassSeconds> pass_from_json(const nlohmann::json& json);

// Everything about a network that decides how long its passes take: kinds, shapes and settings of its layers.
std::string shape_text(const ModelGraph& graph);

// The processor of this machine, its instruction sets, and the cores that this process may use.
std::string machine_text();

// $XDG_CACHE_HOME/wflow/passes.json, or ~/.cache/wflow/passes.json. Empty, so that nothing is kept, if the
// variable WFLOW_PASS_TIMES is "off", or without a home.
std::filesystem::path pass_times_file();

// The file is a convenience: a plan measures where it can't be read, and goes on where it can't be written.
class PassTimes {
 public:
  // An empty path: nothing is found and nothing is kept.
  explicit PassTimes(std::filesystem::path file);

  // A sentence if the file is there but can't be used; else empty.
  const std::string& complaint() const { return complaint_; }
  const std::filesystem::path& file() const { return file_; }
  std::optional<PassSeconds> find(const std::string& key) const;
  void add(const std::string& key, const PassSeconds& pass);
  // Writes what was added, beside what other plans have written in the meantime.
  void write();

 private:
  struct Entry {
    PassSeconds pass;
    std::int64_t time = 0;  // of the measurement, in Unix seconds
  };
  using Entries = std::map<std::string, Entry>;
  Entries read(std::string* complaint) const;

  std::filesystem::path file_;
  std::string complaint_;  // set by the first read()
  Entries found_;
  Entries added_;
};

}  // namespace wflow::trainer
