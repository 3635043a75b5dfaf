// SPDX-License-Identifier: Apache-2.0
// Prints the output of a campaign's commands while it runs: each command's standard output, then its standard
// error, in one piece; and, on standard error, how far the campaign is.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/exec/placeholders.h"
#include "cli/view/terminal.h"
#include "engine/monitor/status.h"
#include "specs/plan/plan.h"
#include "specs/samples/samples.h"
#include "steps/packed_output.h"

namespace wflow::cli {

struct PrinterOptions {
  enum class Progress { none, bar, eta };
  bool output = true;       // prints what the commands print
  bool keep_order = false;  // in the order of the commands, once all earlier ones have ended
  ExecText tag;             // before each line, with a tab behind it; without pieces: none
  Progress progress = Progress::none;
};

class OutputPrinter {
 public:
  // `plan`: has a single step, with packed output.
  OutputPrinter(const specs::Plan& plan, PrinterOptions options);
  OutputPrinter(const OutputPrinter&) = delete;
  OutputPrinter& operator=(const OutputPrinter&) = delete;
  ~OutputPrinter();

  // A status of the running campaign; `more`: further commands may come.
  void show(const engine::CampaignStatus& status, bool more);
  // The campaign has got more commands; all before `ended` have ended. Returns once the thread no longer
  // reads the files of the previous plan.
  void go_on(const specs::Plan& plan, specs::Element ended);
  // Prints the rest after the end of the campaign. True if everything could be written.
  bool finish();
  // After finish(): the errno of the write that failed; 0: none did.
  int error() const { return error_; }

 private:
  struct Progress {
    std::uint64_t ended = 0, failed = 0, all = 0;
    double elapsed_s = 0;
    bool more = false;
    bool operator==(const Progress&) const = default;
  };
  struct News {  // for the thread
    std::optional<specs::Plan> plan;
    specs::Element ended = 0;
    std::optional<Progress> progress;
    bool last = false;
  };

  void follow();
  News wait(std::chrono::milliseconds pause);
  bool take_news();
  void print_in_order(specs::Element below);
  specs::Element first_open();
  void print(const steps::PackedExecution& execution);
  std::string tagged(const std::string& text, specs::Element element);
  std::string tag_of(specs::Element element);
  bool write(int target, std::string_view bytes);
  void draw(const Progress& progress);
  void erase();
  std::string line_of(const Progress& progress) const;

  const PrinterOptions options_;
  const Terminal terminal_;  // of standard error

  // The thread alone uses these.
  specs::Plan plan_;
  std::unique_ptr<const specs::SampleTable> samples_;  // for tags
  steps::PackReader reader_;
  std::multimap<specs::Element, steps::PackedExecution> waiting_;  // with keep_order
  specs::Element open_ = 0;                                        // all commands before this one have ended
  bool failed_ = false;  // the reader of the output has gone, or a write failed
  int error_ = 0;
  std::optional<Progress> drawn_;
  bool drawing_ = false;  // the last line of the terminal shows the progress

  std::mutex mutex_;
  std::condition_variable wake_, taken_;
  News news_;           // guarded by mutex_
  bool ended_ = false;  // guarded by mutex_
  bool gone_ = false;   // guarded by mutex_: the thread has ended
  std::thread thread_;
};

}  // namespace wflow::cli
