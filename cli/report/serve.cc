// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "base/loop_inputs.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/report/http.h"
#include "engine/wire/addresses.h"
#include "engine/wire/keys.h"

namespace wflow::cli::report {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// The file that is open is still the one with this name.
bool is_same_file(int fd, const fs::path& path) {
  struct stat open {};
  struct stat named {};
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

// The campaign's state as the page shows it.
struct Shown {
  std::string title, subtitle;
  Json sections = Json::array();
  bool live = false;  // a coordinator runs
};

Shown read_shown(const fs::path& campaign, const ReportOptions& options) {
  const ReportData data = gather(campaign);
  Report report = make_report(data, options);
  return {.title = report.title,
          .subtitle = report.subtitle,
          .sections = report.page.sections_json(),
          .live = data.live};
}

// Answers from the last state that was read, and reads a newer one beside the loop while pages ask for it.
class LiveReport {
 public:
  LiveReport(fs::path campaign, std::string prefix, const ReportOptions& options)
      : campaign_(std::move(campaign)),
        prefix_(std::move(prefix)),
        options_(options),
        thread_("reads the campaign", SideThread::AtEnd::drop) {}

  HttpAnswer answer(const HttpRequest& request) {
    if (request.path == prefix_ + "/")
      return {.type = "text/html; charset=utf-8",
              .body = live_page(campaign_.filename().string()),
              .policy = live_policy()};
    if (request.path == prefix_ + "/sections") {
      read_if_due();
      return {.type = "application/json", .body = sections(request.query)};
    }
    return {.status = 404,
            .body = "there is nothing at this address; open the one that wflow report printed\n"};
  }

  int descriptor() const { return thread_.descriptor(); }
  void take() {
    for (const SideThread::OnLoop& run : thread_.take()) run();
  }

 private:
  // Reading takes 10 % of the time at most: for a large campaign it copies hundreds of megabytes.
  static constexpr double kShare = 10;
  static constexpr double kRunning_s = 2;
  static constexpr double kAtRest_s = 10;

  double interval_s() const {
    return std::max(shown_ && shown_->live ? kRunning_s : kAtRest_s, kShare * reading_took_s_);
  }

  void read_if_due() {
    if (reading_ || (shown_ && steady_now_s() < read_at_s_ + interval_s())) return;
    reading_ = true;
    thread_.call([this, begun_s = steady_now_s()]() -> SideThread::OnLoop {
      std::optional<Shown> shown;
      std::string problem;
      try {
        shown = read_shown(campaign_, options_);
      } catch (const std::exception& error) {
        problem = error.what();
      }
      return [this, begun_s, shown = std::move(shown), problem = std::move(problem)]() mutable {
        reading_ = false;
        read_at_s_ = steady_now_s();
        reading_took_s_ = read_at_s_ - begun_s;
        if (!shown_) shown_.emplace();
        if (shown) *shown_ = std::move(*shown);
        problem_ = options_.share ? Redactor()(problem) : problem;
      };
    });
  }

  // The sections, with their texts where the page does not have them: "have=DIGEST.DIGEST".
  std::string sections(std::string_view query) const {
    if (!shown_) return R"({"subtitle": "wflow reads the campaign.", "sections": [], "next_s": 0.3})";
    constexpr std::string_view kHave = "have=";
    std::set<std::string> have;
    if (query.starts_with(kHave))
      for (std::string& digest : text::split(query.substr(kHave.size()), '.')) have.insert(std::move(digest));
    Json list = Json::array();
    for (const Json& section : shown_->sections) {
      if (!have.contains(section.at("digest").get_ref<const std::string&>())) {
        list.push_back(section);
      } else {
        list.push_back(
            {{"id", section.at("id")}, {"title", section.at("title")}, {"digest", section.at("digest")}});
      }
    }
    const std::string subtitle =
        problem_.empty() ? shown_->subtitle : "wflow cannot read the campaign: " + problem_;
    return Json{
        {"title", shown_->title}, {"subtitle", subtitle}, {"sections", list}, {"next_s", interval_s()}}
        .dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  const fs::path campaign_;
  const std::string prefix_;
  const ReportOptions options_;
  std::optional<Shown> shown_;
  std::string problem_;  // why the last reading failed
  bool reading_ = false;
  double read_at_s_ = 0, reading_took_s_ = 0;
  SideThread thread_;  // last: it uses the others
};

}  // namespace

bool is_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  return colon != std::string_view::npos && colon > 0 && text::to_integer(text.substr(colon + 1)).has_value();
}

ServedPlace::ServedPlace(const fs::path& campaign) {
  const std::optional<fs::path> folder = engine::wire::socket_folder();
  if (!folder)
    throw Error(ExitCode::system,
                "no folder for a socket can be made; set XDG_RUNTIME_DIR to a directory that is yours alone");
  constexpr std::size_t kDigits = 16;
  socket_ = *folder / ("report-" + hash_bytes(fs::weakly_canonical(campaign).string()).substr(0, kDigits));
  lock_file_ = socket_.string() + ".lock";
  take_lock();
}

ServedPlace::ServedPlace(const fs::path& campaign, const std::string& address) : ServedPlace(campaign) {
  if (address.empty()) {
    listen_at_socket();
  } else {
    listen_at_address(address);
  }
  if (::listen(listener_.get(), SOMAXCONN) != 0) throw system_error(errno, "cannot listen for connections");
  write_all(lock_.get(), place_, lock_file_);
}

ServedPlace::~ServedPlace() {
  ::unlink(socket_.c_str());
  ::unlink(lock_file_.c_str());
}

// The kernel releases the lock when its process ends, however it ends. The file holds the place.
void ServedPlace::take_lock() {
  for (;;) {
    lock_ = open_file(lock_file_, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0)
      throw Error(ExitCode::busy,
                  fmt::format("another wflow report --serve shows this campaign already, at {}; "
                              "open it there, or end that command with Ctrl-C",
                              read_file(lock_file_)));
    // The last holder may have removed the file meanwhile.
    if (is_same_file(lock_.get(), lock_file_)) break;
  }
  if (::ftruncate(lock_.get(), 0) != 0) throw system_error(errno, "cannot write " + lock_file_.string());
}

void ServedPlace::listen_at_socket() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = socket_.string();
  if (name.size() >= sizeof address.sun_path)
    throw Error(ExitCode::system, fmt::format("{}: the name of a socket can't be that long", name));
  name.copy(address.sun_path, name.size());
  ::unlink(name.c_str());  // a killed process left it: this one has the lock
  listener_ = FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_ ||
      ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(name.c_str(), 0600) != 0)
    throw system_error(errno, "cannot listen at " + name);
  place_ = "the socket " + name;
  directions_ = fmt::format(
      "The report is at the socket {0}.\n"
      "On your own machine, type  ssh -N -L 8000:{0} {1}\n"
      "and open  http://localhost:8000/  in a browser there. Ctrl-C here ends the report.\n",
      name, host_name());
}

void ServedPlace::listen_at_address(const std::string& wanted) {
  const std::size_t colon = wanted.rfind(':');
  const auto port = text::to_integer(wanted.substr(colon + 1));
  if (!is_address(wanted) ||
      (wanted.substr(0, colon) != "127.0.0.1" && wanted.substr(0, colon) != "localhost") || *port < 0 ||
      *port > 65535)
    throw Error(
        ExitCode::usage,
        fmt::format("--serve takes an address of this machine alone, such as 127.0.0.1:8000, found {}; "
                    "without an address it makes a socket that only you can use",
                    wanted));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(*port));
  listener_ = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (!listener_ || ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(listener_.get(), generic, size) != 0 || ::getsockname(listener_.get(), generic, &size) != 0)
    throw system_error(errno, fmt::format("cannot listen at {}; 127.0.0.1:0 takes a free port", wanted));
  prefix_ = "/" + engine::wire::random_token();
  place_ = fmt::format("http://127.0.0.1:{}{}/", ntohs(address.sin_port), prefix_);
  directions_ = fmt::format(
      "The report is at  {}  for everybody on this machine who knows this address.\nCtrl-C here ends it.\n",
      place_);
}

void serve(const fs::path& campaign, const std::string& address, const ReportOptions& options) {
  SignalQueue signals({SIGINT, SIGTERM, SIGHUP});  // before the thread, which must not get them
  ServedPlace place(campaign, address);
  LiveReport report(campaign, place.prefix(), options);
  HttpServer server(place.take_listener(),
                    [&](const HttpRequest& request) { return report.answer(request); });
  fmt::print("{}", place.directions());
  std::fflush(stdout);
  server.run({{signals.descriptor(), [] { return false; }}, {report.descriptor(), [&] {
                                                               report.take();
                                                               return true;
                                                             }}});
}

}  // namespace wflow::cli::report
