// SPDX-License-Identifier: Apache-2.0
// The files that one slot has below the worker's own directory while a task runs in it. Agent and guardian
// find them by name, so that the guardian can finish what a killed agent had begun.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/file.h"

namespace wflow::workers {

class SlotFiles {
 public:
  SlotFiles(const std::filesystem::path& directory, std::size_t slot);

  const std::string& events() const { return events_; }  // $WFLOW_EVENTS; a task makes it, if any does

  // What a task with packed output prints goes here first: opened once for appending, and used again.
  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }
  void open_output();
  int out_fd() const { return out_fd_.get(); }
  int err_fd() const { return err_fd_.get(); }
  bool printed() const;
  void empty_output();  // for the next task

  // The working directory of a task whose own one is made on demand: `target` where that is there already
  // (the task ran before), else an empty directory of the slot.
  const std::string& enter(const std::string& target);
  // Moves what the task left in the slot's directory to `target`; costs one system call where it left
  // nothing. Throws Error{system}.
  void leave(const std::string& target);
  // Removes it: the task's own place may be another worker's by now.
  void discard();

 private:
  void make_directory();
  void move_to(const std::string& target);
  void copy_to(const std::string& target);
  void move_into(const std::string& from, const std::string& target);

  std::string events_;
  std::string out_;
  std::string err_;
  std::string directory_;
  FileDescriptor out_fd_;
  FileDescriptor err_fd_;
  bool made_ = false;  // directory_, and it is empty
};

}  // namespace wflow::workers
