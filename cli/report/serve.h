// SPDX-License-Identifier: Apache-2.0
// `wflow report --serve`: the report as a page that keeps itself up to date, for the calling user alone.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.h"
#include "cli/report/report.h"

namespace wflow::cli::report {

// Where a live report listens. At most one process serves a campaign for a user: the constructors throw
// Error{busy} with its place. A Unix socket is in the user's folder of sockets and has mode 0600; the socket
// of a killed process is replaced. Every user of the machine can reach an address, so that its pages need a
// token.
class ServedPlace {
 public:
  // An empty address: a Unix socket; else "127.0.0.1:8000", or "127.0.0.1:0" for any free port.
  ServedPlace(const std::filesystem::path& campaign, const std::string& address);
  ServedPlace(const ServedPlace&) = delete;
  ServedPlace& operator=(const ServedPlace&) = delete;
  ~ServedPlace();  // removes the socket

  FileDescriptor take_listener() { return std::move(listener_); }
  const std::string& prefix() const { return prefix_; }  // of all paths: "" or "/<token>"
  // One or two sentences that say how to open the page.
  const std::string& directions() const { return directions_; }

 private:
  // Delegates, so that the destructor removes what a failed constructor has made.
  explicit ServedPlace(const std::filesystem::path& campaign);
  void take_lock();
  void listen_at_socket();
  void listen_at_address(const std::string& address);

  std::filesystem::path socket_, lock_file_;
  FileDescriptor lock_, listener_;
  std::string prefix_, place_, directions_;
};

// True for HOST:PORT.
bool is_address(std::string_view text);

// Serves the page until SIGINT, SIGTERM or SIGHUP. Prints where it is.
void serve(const std::filesystem::path& campaign, const std::string& address, const ReportOptions& options);

}  // namespace wflow::cli::report
