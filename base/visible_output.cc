// SPDX-License-Identifier: Apache-2.0
#include "base/visible_output.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "base/text.h"

namespace wflow {

namespace {

constexpr std::string_view kEscape = "\x1b[";

// The state of `stdout`. stdio calls back with a pointer to it, also when the process exits.
struct Output {
  std::FILE* was = nullptr;
  VisibleText text{""};
};

Output& output() {
  static Output the_output;
  return the_output;
}

bool write_to_terminal(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (put < 0 && errno == EAGAIN) {
      pollfd ready{STDOUT_FILENO, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (put < 0 && errno != EINTR) {
      return false;
    }
    if (put > 0) bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

ssize_t write_visible(void* cookie, const char* bytes, std::size_t count) {
  return write_to_terminal(static_cast<Output*>(cookie)->text.take({bytes, count}))
             ? static_cast<ssize_t>(count)
             : 0;
}

}  // namespace

void open_output() {
  Output& all = output();
  if (::isatty(STDOUT_FILENO) == 0 || all.was != nullptr) return;
  std::FILE* stream = ::fopencookie(&all, "w", {nullptr, write_visible, nullptr, nullptr});
  if (stream == nullptr) return;
  std::setvbuf(stream, nullptr, _IOLBF, BUFSIZ);
  all.text = VisibleText(fmt::format("{:08};", std::random_device{}() % 100'000'000));
  all.was = std::exchange(stdout, stream);
  std::atexit(open_raw_output);  // before `all` is destroyed; stdio writes its buffers later
}

void open_raw_output() {
  Output& all = output();
  if (all.was == nullptr) return;
  std::fflush(stdout);
  stdout = std::exchange(all.was, nullptr);
  all.text = VisibleText("");
}

std::string own_escape(std::string_view code) {
  return std::string(kEscape) + output().text.mark() + std::string(code);
}

std::string VisibleText::take(std::string_view bytes) {
  std::string text = std::exchange(kept_, {});
  text += bytes;
  const std::string own = std::string(kEscape) + mark_;
  std::string shown;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t at = std::min(rest.find('\x1b'), rest.size());
    std::string_view plain = rest.substr(0, at);
    if (at == rest.size()) {
      const std::size_t cut = cut_character(plain);
      kept_ = plain.substr(plain.size() - cut);
      plain.remove_suffix(cut);
    }
    shown += visible(plain);
    rest.remove_prefix(at);
    if (rest.empty()) break;
    const bool is_own = rest.starts_with(own);
    const std::size_t end = is_own ? rest.find_first_not_of("0123456789;", own.size()) : 0;
    if (end == std::string_view::npos || (!is_own && own.starts_with(rest))) {
      kept_ = rest;  // the end of the sequence comes with the next bytes
      break;
    }
    if (is_own) {
      shown.append(kEscape).append(rest.substr(own.size(), end + 1 - own.size()));
      rest.remove_prefix(end + 1);
    } else {
      shown += visible(rest.substr(0, 1));
      rest.remove_prefix(1);
    }
  }
  return shown;
}

}  // namespace wflow
