// SPDX-License-Identifier: Apache-2.0
// HTTP for the pages of one user: GET only, one request per connection, and everything bounded. It reads no
// file: a handler makes every answer.
#pragma once

#include <filesystem>
#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/file.h"
#include "cli/report/report.h"

namespace wflow::cli::report {

struct HttpRequest {
  std::string path;   // "/sections"
  std::string query;  // behind the "?", as sent
};

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::string policy = "default-src 'none'";  // Content-Security-Policy
};

inline constexpr std::size_t kMostRequestBytes = 8192;

// The head of a request, up to and without its empty line. Refuses every method but GET, a body, and a Host
// that is not this machine's own: a page of another site can't get here by a name that it has pointed at
// 127.0.0.1.
std::variant<HttpRequest, HttpAnswer> parse_request(std::string_view head);

// The bytes of an answer after which the connection closes.
std::string bytes_of(const HttpAnswer& answer);

class HttpServer {
 public:
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;
  // Another descriptor of the loop; `readable` returns false to end the loop.
  struct Watched {
    int descriptor = -1;
    std::function<bool()> readable;
  };

  HttpServer(FileDescriptor listener, Handler handler)
      : listener_(std::move(listener)), handler_(std::move(handler)) {}

  // Error{system} if poll fails.
  void run(const std::vector<Watched>& watched);

 private:
  struct Connection {
    FileDescriptor fd;
    double deadline_s = 0;
    std::string request = {}, answer = {};
    std::size_t sent = 0;
  };

  void accept_one();
  // True if the connection has ended.
  bool receive(Connection& connection);
  bool send(Connection& connection);
  int timeout_ms() const;

  FileDescriptor listener_;
  Handler handler_;
  std::list<Connection> connections_;
};

// `wflow report --serve`: the report as a page that keeps itself up to date, for the calling user alone.

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
