// SPDX-License-Identifier: Apache-2.0
// A simulator that speaks PPX: the process, and the socket to it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace wflow::ppx {

class Program {
 public:
  // Starts `command` by a shell in `directory` (empty: the current one), with the address of the socket that
  // it must listen at in $WFLOW_PPX_ADDRESS.
  Program(const std::string& command, const std::string& directory);
  // Ends it.
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Sends a message and waits for the answer. std::runtime_error with a sentence if the program ends or hangs
  // up; with a limit, also when it is over.
  std::vector<std::uint8_t> ask(std::span<const std::uint8_t> message,
                                std::chrono::seconds limit = std::chrono::seconds::max());
  // Both ends have the socket: its file goes.
  void connected();

 private:
  void end();
  void make_folder();
  void remove_folder();
  void connect(const std::string& address);
  void start(const std::string& command, const std::string& directory);
  bool ended();
  bool readable(std::chrono::milliseconds limit);
  void check_connection();
  [[noreturn]] void fail_as_ended();

  struct CloseSocket {
    void operator()(void* socket) const;
  };
  struct EndContext {
    void operator()(void* context) const;
  };

  std::string folder_;
  std::unique_ptr<void, EndContext> context_;
  std::unique_ptr<void, CloseSocket> socket_;
  std::unique_ptr<void, CloseSocket> monitor_;  // tells when the program closes its end
  pid_t pid_ = -1;                              // and its process group
  pid_t guard_ = -1;                            // kills the group when this process has gone
  int lifeline_ = -1;                           // by whose end the guard sees it
  int status_ = 0;
  bool ended_ = false;
  bool is_connected_ = false;
};

}  // namespace wflow::ppx
