// SPDX-License-Identifier: Apache-2.0
#include "cli/report/http.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <thread>

#include "base/loop_inputs.h"

namespace wflow::cli::report {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

int status_of(std::string_view head) {
  const auto parsed = parse_request(head);
  const HttpAnswer* refused = std::get_if<HttpAnswer>(&parsed);
  return refused == nullptr ? 200 : refused->status;
}

TEST(Http, ReadsARequest) {
  const auto parsed =
      parse_request("GET /sections?have=a.b HTTP/1.1\r\nhost:  LocalHost:8000\r\nAccept: */*");
  ASSERT_TRUE(std::holds_alternative<HttpRequest>(parsed));
  EXPECT_EQ(std::get<HttpRequest>(parsed).path, "/sections");
  EXPECT_EQ(std::get<HttpRequest>(parsed).query, "have=a.b");
  for (const char* host : {"127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8000", "localhost"})
    EXPECT_EQ(status_of(std::string("GET / HTTP/1.1\r\nHost: ") + host), 200) << host;
}

TEST(Http, RefusesWhatItDoesNotNeed) {
  EXPECT_EQ(status_of(""), 400);
  EXPECT_EQ(status_of("GET /"), 400);
  EXPECT_EQ(status_of("GET / HTTP/2\r\nHost: localhost"), 400);
  EXPECT_EQ(status_of("GET  / HTTP/1.1\r\nHost: localhost"), 400);
  EXPECT_EQ(status_of("GET http://localhost/ HTTP/1.1\r\nHost: localhost"), 400);
  EXPECT_EQ(status_of("GET /\x01 HTTP/1.1\r\nHost: localhost"), 400);
  for (const char* method : {"POST", "HEAD", "PUT", "OPTIONS", "get"})
    EXPECT_EQ(status_of(std::string(method) + " / HTTP/1.1\r\nHost: localhost"), 405) << method;
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: localhost\r\n folded: 1"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1"), 403);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost"), 403);
  for (const char* host :
       {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "localhost:x", ""})
    EXPECT_EQ(status_of(std::string("GET / HTTP/1.1\r\nHost: ") + host), 403) << host;
}

// A server on a free port, in a thread of its own.
class HttpServed : public testing::Test {
 protected:
  void SetUp() override {
    FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    socklen_t size = sizeof address_;
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address_), size), 0);
    ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address_), &size), 0);
    ASSERT_EQ(::listen(listener.get(), 8), 0);
    thread_ = std::thread([this, listener = std::move(listener)]() mutable {
      HttpServer server(std::move(listener), [](const HttpRequest& request) {
        return HttpAnswer{.body = request.path == "/large" ? std::string(8 << 20, 'x')
                                                           : "you asked for " + request.path};
      });
      server.run({{end_.descriptor(), [] { return false; }}});
    });
  }
  void TearDown() override {
    end_.signal();
    thread_.join();
  }
  FileDescriptor connected() const {
    FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_), 0);
    return fd;
  }
  static void put(const FileDescriptor& fd, std::string_view bytes) {
    EXPECT_EQ(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  // Until the server closes the connection.
  static std::string answer_of(const FileDescriptor& fd) {
    std::string answer;
    std::string part(1 << 16, ' ');
    for (ssize_t got = 0; (got = ::recv(fd.get(), part.data(), part.size(), 0)) > 0;)
      answer.append(part, 0, static_cast<std::size_t>(got));
    return answer;
  }

  sockaddr_in address_{};
  WakeUp end_;
  std::thread thread_;
};

TEST_F(HttpServed, AnswersARequestInPieces) {
  const FileDescriptor idle = connected();
  const FileDescriptor fd = connected();
  put(fd, "GET /a HTTP/1.1\r\nHo");
  put(fd, "st: localhost\r\n\r");
  put(fd, "\n");
  const std::string answer = answer_of(fd);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Length: 16\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nX-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\nyou asked for /a"));
}

TEST_F(HttpServed, ServesOthersWhileOneReadsSlowly) {
  const FileDescriptor slow = connected();
  put(slow, "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const FileDescriptor fast = connected();
  put(fast, "GET /b HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(answer_of(fast), HasSubstr("you asked for /b"));
  EXPECT_GT(answer_of(slow).size(), std::size_t{8} << 20);
}

TEST_F(HttpServed, RefusesALongRequest) {
  const FileDescriptor fd = connected();
  put(fd, "GET / HTTP/1.1\r\nX: " + std::string(kMostRequestBytes, 'x'));
  EXPECT_THAT(answer_of(fd), StartsWith("HTTP/1.1 431 "));
}

}  // namespace
}  // namespace wflow::cli::report
