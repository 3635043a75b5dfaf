// SPDX-License-Identifier: Apache-2.0
#include "cli/report/http.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"

namespace wflow::cli::report {

namespace {

constexpr std::size_t kMostConnections = 16;
constexpr double kRequestLimit_s = 10;
constexpr double kAnswerLimit_s = 60;

HttpAnswer refusal(int status, std::string why) {
  return {.status = status, .type = "text/plain; charset=utf-8", .body = std::move(why) + "\n"};
}

std::string_view reason_of(int status) {
  constexpr std::array<std::pair<int, std::string_view>, 6> kReasons = {
      {{200, "OK"},
       {400, "Bad Request"},
       {403, "Forbidden"},
       {404, "Not Found"},
       {405, "Method Not Allowed"},
       {431, "Request Header Fields Too Large"}}};
  for (const auto& [number, reason] : kReasons)
    if (number == status) return reason;
  return "Error";
}

// "localhost:8000" is, whatever the port: a tunnel has any.
bool is_own_host(std::string_view host) {
  if (const std::size_t colon = host.rfind(':'); colon != std::string_view::npos && !host.ends_with(']')) {
    const std::string_view port = host.substr(colon + 1);
    if (port.empty() || port.find_first_not_of("0123456789") != std::string_view::npos) return false;
    host = host.substr(0, colon);
  }
  return text::lower(host) == "localhost" || host == "127.0.0.1" || host == "[::1]";
}

// The values of the headers that matter.
struct Headers {
  std::vector<std::string> hosts;
  bool has_body = false;
  bool valid = true;
};

Headers headers_of(std::string_view lines) {
  Headers headers;
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find("\r\n"), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 2, lines.size()));
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0 || line.front() == ' ' || line.front() == '\t') {
      headers.valid = false;
      return headers;
    }
    const std::string name = text::lower(line.substr(0, colon));
    const std::string_view value = text::trim(line.substr(colon + 1));
    if (name == "host") headers.hosts.emplace_back(value);
    if (name == "transfer-encoding" || (name == "content-length" && value != "0")) headers.has_body = true;
  }
  return headers;
}

bool is_visible(std::string_view text) {
  return std::ranges::all_of(text, [](char letter) { return letter > ' ' && letter <= '~'; });
}

}  // namespace

std::variant<HttpRequest, HttpAnswer> parse_request(std::string_view head) {
  const std::size_t end = std::min(head.find("\r\n"), head.size());
  const std::vector<std::string> words = text::split(head.substr(0, end), ' ');
  if (words.size() != 3 || (words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0"))
    return refusal(400, "this is no request of HTTP/1.1");
  if (words[0] != "GET") return refusal(405, "the page of a report has GET only");
  const std::string& target = words[1];
  if (!target.starts_with('/') || !is_visible(target)) return refusal(400, "the address begins with /");
  const Headers headers = headers_of(head.substr(std::min(end + 2, head.size())));
  if (!headers.valid) return refusal(400, "a header is not valid");
  if (headers.has_body) return refusal(400, "a GET has no body");
  if (headers.hosts.size() != 1 || !is_own_host(headers.hosts.front()))
    return refusal(403, "open the page as http://localhost:PORT/ or http://127.0.0.1:PORT/");
  const std::size_t question = std::min(target.find('?'), target.size());
  return HttpRequest{.path = target.substr(0, question),
                     .query = target.substr(std::min(question + 1, target.size()))};
}

std::string bytes_of(const HttpAnswer& answer) {
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n{}"
      "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
      "Cross-Origin-Resource-Policy: same-origin\r\nContent-Security-Policy: {}; frame-ancestors "
      "'none'\r\n\r\n{}",
      answer.status, reason_of(answer.status), answer.type, answer.body.size(),
      answer.status == 405 ? "Allow: GET\r\n" : "", answer.policy, answer.body);
}

void HttpServer::run(const std::vector<Watched>& watched) {
  for (;;) {
    std::vector<pollfd> polled;
    for (const Watched& other : watched) polled.push_back({other.descriptor, POLLIN, 0});
    const bool has_room = connections_.size() < kMostConnections;
    polled.push_back({has_room ? listener_.get() : -1, POLLIN, 0});
    for (const Connection& connection : connections_)
      polled.push_back(
          {connection.fd.get(), static_cast<short>(connection.answer.empty() ? POLLIN : POLLOUT), 0});
    if (::poll(polled.data(), polled.size(), timeout_ms()) < 0 && errno != EINTR)
      throw system_error(errno, "cannot wait for connections");
    for (std::size_t i = 0; i < watched.size(); ++i)
      if (polled[i].revents != 0 && !watched[i].readable()) return;
    std::size_t place = watched.size() + 1;
    std::erase_if(connections_, [&](Connection& connection) {
      const short ready = polled[place++].revents;
      if (ready != 0 && (connection.answer.empty() ? receive(connection) : send(connection))) return true;
      return steady_now_s() > connection.deadline_s;
    });
    if (polled[watched.size()].revents != 0) accept_one();
  }
}

void HttpServer::accept_one() {
  FileDescriptor fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd) return;  // the client has gone
  connections_.push_back({.fd = std::move(fd), .deadline_s = steady_now_s() + kRequestLimit_s});
}

bool HttpServer::receive(Connection& connection) {
  std::array<char, kMostRequestBytes> bytes{};
  const ssize_t got = ::recv(connection.fd.get(), bytes.data(), bytes.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) return true;
  connection.request.append(bytes.data(), static_cast<std::size_t>(got));
  const std::size_t end = connection.request.find("\r\n\r\n");
  if (std::min(end, connection.request.size()) > kMostRequestBytes) {
    connection.answer = bytes_of(refusal(431, "the request is too long"));
  } else if (end != std::string::npos) {
    const auto parsed = parse_request(std::string_view(connection.request).substr(0, end));
    const HttpRequest* request = std::get_if<HttpRequest>(&parsed);
    connection.answer = bytes_of(request != nullptr ? handler_(*request) : std::get<HttpAnswer>(parsed));
  }
  if (connection.answer.empty()) return false;
  connection.deadline_s = steady_now_s() + kAnswerLimit_s;
  return send(connection);
}

bool HttpServer::send(Connection& connection) {
  while (connection.sent < connection.answer.size()) {
    const std::string_view rest = std::string_view(connection.answer).substr(connection.sent);
    const ssize_t put = ::send(connection.fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (put < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (put < 0) return true;
    connection.sent += static_cast<std::size_t>(put);
  }
  return true;
}

int HttpServer::timeout_ms() const {
  if (connections_.empty()) return -1;
  const auto first = std::ranges::min_element(connections_, {}, &Connection::deadline_s);
  return static_cast<int>(std::ceil(std::max(0.0, first->deadline_s - steady_now_s()) * 1000)) + 1;
}

}  // namespace wflow::cli::report
