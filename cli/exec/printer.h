// SPDX-License-Identifier: Apache-2.0
// Prints the output of a campaign's commands while it runs: each command's standard output, then its standard
// error, in one piece.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "specs/plan/plan.h"
#include "steps/packed_output.h"

namespace wflow::cli {

class OutputPrinter {
 public:
  // keep_order: prints in the order of the commands, once all earlier ones have ended; else in the order of
  // their ends. `plan`: has a single step, with packed output; must outlive this.
  OutputPrinter(const specs::Plan& plan, bool keep_order);
  OutputPrinter(const OutputPrinter&) = delete;
  OutputPrinter& operator=(const OutputPrinter&) = delete;
  ~OutputPrinter();

  // Prints the rest after the end of the campaign. True if everything could be written.
  bool finish();
  // After finish(): the errno of the write that failed; 0: none did.
  int error() const { return error_; }

 private:
  void follow();
  bool take_news();
  void print_in_order(specs::Element below);
  specs::Element first_open();
  void print(const steps::PackedExecution& execution);
  bool write(int target, std::string_view bytes);

  const specs::Plan& plan_;
  const bool keep_order_;
  steps::PackReader reader_;
  std::multimap<specs::Element, steps::PackedExecution> waiting_;  // with keep_order
  specs::Element open_ = 0;                                        // all commands before this one have ended
  bool failed_ = false;  // the reader of the output has gone, or a write failed
  int error_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ended_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace wflow::cli
