// SPDX-License-Identifier: Apache-2.0
// HTTP for the pages of one user: GET only, one request per connection, and everything bounded. It reads no
// file: a handler makes every answer.
#pragma once

#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/file.h"

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

}  // namespace wflow::cli::report
