// SPDX-License-Identifier: Apache-2.0
// The files of one slot in the worker's own directory while a task runs in it. Agent and guardian
// find them by name, so that the guardian can complete the work of a killed agent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/file.h"

namespace wflow::workers {

class SlotFiles {
 public:
  SlotFiles(const std::filesystem::path& directory, std::size_t slot);

  const std::string& events() const { return events_; }  // $WFLOW_EVENTS; made by the task, if at all

  // The output of a task with packed output is written here first. Opened once for appending, then reused.
  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }
  void open_output();
  int out_fd() const { return out_fd_.get(); }
  int err_fd() const { return err_fd_.get(); }
  bool printed() const;
  void empty_output();  // for the next task

  // Returns the working directory of a task whose own directory is made on demand: `target` if it exists
  // (the task ran before), else an empty directory of the slot.
  const std::string& enter(const std::string& target);
  // Moves the files that the task left in the slot's directory to `target`; one system call if it left
  // none. Throws Error{system}.
  void leave(const std::string& target);
  // Removes the slot's directory, because another worker may already use the task's own directory.
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
  bool made_ = false;  // directory_ exists and is empty
};

}  // namespace wflow::workers
