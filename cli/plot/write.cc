// SPDX-License-Identifier: Apache-2.0
#include "cli/plot/figure.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"

namespace wflow::cli::plot {

namespace {

constexpr int kDigitsInFiles = 9;

// A file in memory at its beginning, for a program's standard input.
FileDescriptor input_of(const std::string& text) {
  FileDescriptor file(::memfd_create("figures", MFD_CLOEXEC));
  if (!file) throw system_error(errno, "cannot make a file in memory");
  write_all(file.get(), text, "figures");
  ::lseek(file.get(), 0, SEEK_SET);
  return file;
}

}  // namespace

void write_files(const std::vector<PlotFile>& files) {
  nlohmann::json orders = nlohmann::json::array();
  for (const PlotFile& file : files) {
    const std::string ending = file.path.extension().string();
    if (ending != ".png" && ending != ".svg")
      throw Error(ExitCode::usage, fmt::format("{}: a plot is written to a file that ends in .png or .svg",
                                               file.path.string()));
    orders.push_back({{"path", file.path.string()},
                      {"width", file.width},
                      {"height", file.height},
                      {"figure", to_json(file.figure, kDigitsInFiles)}});
  }
  if (orders.empty()) return;
  const FileDescriptor input =
      input_of(orders.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  SpawnRequest request;
  request.argv = {sibling_program("wflow-plot")};
  request.stdin_fd = input.get();
  const CommandResult result = run_command(request);
  if (result.status != 0) throw Error(ExitCode::system, "wflow-plot: " + std::string(text::trim(result.err)));
}

}  // namespace wflow::cli::plot
