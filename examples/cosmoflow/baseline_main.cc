// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <fstream>

#include "baseline.h"
#include "error.h"

namespace {

constexpr const char* kFooter = R"(
Examples:
  cosmoflow-baseline --data campaign/shards
  cosmoflow-baseline --data campaign/data --network campaign/train/predictions.csv --json baselines.json

DATA has the folders train, validation and test with shard-NNNNN.h5 files: /x (sample, channel, z, y, x) the
density or counts untransformed, /y (sample, label) with the string array attribute 'names', /id (sample).
The strength of the ridge is chosen on the validation split, target by target.

Exit codes: 0 done, 1 failed, 2 wrong options, 3 the shards cannot be read, 4 the JSON file cannot be written.)";

int report_failure(const char* sentence, cola::ExitCode code) {
  std::fprintf(stderr, "cosmoflow-baseline: %s\n", sentence);
  return static_cast<int>(code);
}

}  // namespace

int main(int argc, char** argv) {
  std::string data, json, network;
  CLI::App app(
      "Measures how well ridge regressions on power spectra and one-point statistics find the parameters,\n"
      "on the same split of the same shards that the network is trained on.");
  app.name("cosmoflow-baseline");
  app.footer(kFooter);
  app.add_option("--data", data, "folder of the shards")->required();
  app.add_option("--network", network,
                 "predictions.csv of a network on the same test split, to print beside them");
  app.add_option("--json", json, "file to write the figures to as well");
  try {
    app.parse(argc, argv);
    cola::BaselineReport report = cola::measure_baselines(data);
    if (!network.empty())
      report.baselines.insert(report.baselines.begin(), cola::read_network(network, report));
    std::fputs(cola::as_table(report).c_str(), stdout);
    if (!json.empty()) {
      std::ofstream file(json);
      file << cola::as_json(report);
      file.close();
      if (!file) throw cola::Error(cola::ExitCode::output, "cannot write " + json + ".");
    }
    return 0;
  } catch (const CLI::Success& request) {
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    const std::string sentence = std::string(error.what()) + ". See cosmoflow-baseline --help.";
    return report_failure(sentence.c_str(), cola::ExitCode::usage);
  } catch (const cola::Error& error) {
    return report_failure(error.what(), error.code());
  } catch (const std::exception& error) {
    return report_failure(error.what(), cola::ExitCode::failed);
  }
}
