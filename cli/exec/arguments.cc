// SPDX-License-Identifier: Apache-2.0
#include "cli/exec/arguments.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"

namespace wflow::cli {

namespace {

constexpr std::string_view kList = ":::";
constexpr std::string_view kFiles = "::::";
constexpr char kLinked = '+';

enum class Separator { none, list, files };

Separator separator_of(std::string_view word) {
  if (word.ends_with(kLinked)) word.remove_suffix(1);
  return word == kList ? Separator::list : word == kFiles ? Separator::files : Separator::none;
}

void check_linked(const std::vector<ArgumentList>& lists) {
  for (std::size_t i = 1; i < lists.size(); ++i) {
    const std::size_t before = lists[i - 1].values.size();
    const std::size_t here = lists[i].values.size();
    if (!lists[i].linked || before == here) continue;
    throw Error(
        ExitCode::usage,
        fmt::format("the list behind {}+ has {} argument{}, the one before it {}; they are taken row by row",
                    lists[i].file.empty() ? kList : kFiles, here, here == 1 ? "" : "s", before));
  }
}

}  // namespace

ExecWords read_exec_words(const std::vector<std::string>& words) {
  ExecWords read;
  Separator last = Separator::none;
  bool linked = false;
  std::size_t files = 0;  // number of files after the last ::::
  const auto check_files = [&] {
    if (last == Separator::files && files == 0)
      throw Error(ExitCode::usage,
                  ":::: needs files, whose lines are the arguments: wflow exec -- COMMAND {} :::: FILE");
  };
  for (const std::string& word : words) {
    if (const Separator separator = separator_of(word); separator != Separator::none) {
      linked = word.back() == kLinked;
      if (linked && read.lists.empty())
        throw Error(ExitCode::usage,
                    fmt::format("{} stands behind the list that it is linked to; the first list begins with "
                                "::: or ::::",
                                word));
      check_files();
      files = 0;
      last = separator;
      if (last == Separator::list) read.lists.push_back({{}, linked, {}});
    } else if (last == Separator::none) {
      read.command.push_back(word);
    } else if (last == Separator::list) {
      read.lists.back().values.push_back(word);
    } else {
      read.lists.push_back({{}, linked, word});
      ++files;
    }
  }
  check_files();
  return read;
}

void read_list_files(std::vector<ArgumentList>& lists) {
  bool has_input = false;
  for (ArgumentList& list : lists) {
    if (list.file.empty()) continue;
    const bool is_input = list.file == "-";
    if (is_input && std::exchange(has_input, true))
      throw Error(ExitCode::usage, "standard input (-) can be one list only, and is named twice");
    const FileDescriptor file = is_input ? FileDescriptor() : open_file(list.file, O_RDONLY);
    csv::LineReader lines(is_input ? STDIN_FILENO : file.get(), is_input ? "standard input" : list.file);
    for (csv::Line line; lines.next(line);) {
      if (!line.text.empty()) list.values.emplace_back(line.text);
    }
  }
  check_linked(lists);
}

namespace {

constexpr std::size_t kWriteBytes = 1 << 20;

// The lists that are linked to each other and advance row by row.
using Group = std::vector<const ArgumentList*>;

std::vector<Group> groups_of(const std::vector<ArgumentList>& lists) {
  std::vector<Group> groups;
  for (const ArgumentList& list : lists) {
    if (!list.linked) groups.emplace_back();
    groups.back().push_back(&list);
  }
  return groups;
}

}  // namespace

ArgumentTable::ArgumentTable(const std::filesystem::path& folder, std::vector<ArgumentColumn> columns)
    : columns_(std::move(columns)) {
  if (columns_.empty()) columns_ = {{0, ArgumentPart::whole, "arg1"}};
  file_ = folder / (columns_.size() == 1 ? "arguments.lines" : "arguments.tsv");
  fd_ = open_file(file_, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

std::vector<std::string> ArgumentTable::column_names() const {
  std::vector<std::string> names;
  for (const ArgumentColumn& column : columns_) names.push_back(column.name);
  return names;
}

void ArgumentTable::check(std::string_view cell) const {
  if (cell.find('\n') != std::string_view::npos)
    throw Error(ExitCode::usage, fmt::format("an argument can't hold a line end, found '{}'", cell));
  if (columns_.size() > 1 && cell.find('\t') != std::string_view::npos)
    throw Error(ExitCode::usage, fmt::format("of several arguments none can hold a tab, found '{}'", cell));
  if (columns_.size() == 1 && cell.empty())
    throw Error(ExitCode::usage, "an argument is empty; an empty line is no row of a table");
}

void ArgumentTable::add(const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const ArgumentColumn& column = columns_[i];
    const std::string cell = column.part == ArgumentPart::number
                                 ? std::to_string(rows_ + 1)
                                 : part_of(arguments.at(column.argument), column.part);
    check(cell);
    if (i > 0) buffer_ += '\t';
    buffer_ += cell;
  }
  buffer_ += '\n';
  ++rows_;
  if (buffer_.size() < kWriteBytes) return;
  write_all(fd_.get(), buffer_, file_);
  buffer_.clear();
}

void ArgumentTable::flush() {
  write_all(fd_.get(), buffer_, file_);
  buffer_.clear();
}

void add_lists(const std::vector<ArgumentList>& lists, ArgumentTable& table) {
  const std::vector<Group> groups = groups_of(lists);
  std::uint64_t rows = 1;
  for (const Group& group : groups) rows *= group.front()->values.size();
  std::vector<std::string> arguments(lists.size());
  for (std::uint64_t row = 0; row < rows; ++row) {
    std::uint64_t rest = row;
    std::size_t place = lists.size();
    for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
      const std::uint64_t count = group->front()->values.size();
      place -= group->size();
      for (std::size_t i = 0; i < group->size(); ++i)
        arguments[place + i] = group->at(i)->values[rest % count];
      rest /= count;
    }
    table.add(arguments);
  }
}

bool LineStream::comes_within(double seconds, const WaitUntil& until) const {
  std::array<pollfd, 2> inputs{{{fd_, POLLIN, 0}, {until.descriptor, POLLIN, 0}}};  // poll ignores -1
  constexpr double kMilliseconds = 1000;
  constexpr double kLongest_s = 3600;
  const double wait_s = std::clamp(std::min(seconds, until.time_s - steady_now_s()), 0.0, kLongest_s);
  ::poll(inputs.data(), inputs.size(), static_cast<int>(std::ceil(kMilliseconds * wait_s)));
  return inputs[0].revents != 0;
}

namespace {

constexpr double kForever_s = std::numeric_limits<double>::infinity();

bool is_over(const WaitUntil& until) {
  pollfd input{until.descriptor, POLLIN, 0};
  return steady_now_s() >= until.time_s || ::poll(&input, 1, 0) > 0;
}

}  // namespace

void LineStream::add_line(std::string_view line, ArgumentTable& table) {
  ++lines_;
  if (lines_ == 1 && line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
  if (line.find('\0') != std::string_view::npos)
    throw Error(ExitCode::data, fmt::format("{}:{}: a zero byte; it is not text", name_.string(), lines_));
  if (!line.empty()) table.add({std::string(line)});
}

void LineStream::read_more(ArgumentTable& table) {
  std::array<char, 1 << 16> bytes{};
  const ssize_t got = ::read(fd_, bytes.data(), bytes.size());
  if (got < 0 && errno != EINTR && errno != EAGAIN)
    throw system_error(errno, fmt::format("cannot read {}", name_.string()));
  if (got < 0) return;
  ended_ = got == 0;
  std::string_view text(bytes.data(), static_cast<std::size_t>(got));
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    rest_ += text.substr(0, end);
    add_line(rest_, table);
    rest_.clear();
    text.remove_prefix(end + 1);
  }
  rest_ += text;
  if (rest_.size() > csv::kMaxLineBytes)
    throw Error(ExitCode::data,
                fmt::format("{}:{}: this line is longer than 64 MiB; is it a list of arguments?",
                            name_.string(), lines_ + 1));
  if (ended_ && !rest_.empty()) add_line(std::exchange(rest_, {}), table);
}

void LineStream::add_all(ArgumentTable& table) {
  while (!ended_) {
    if (comes_within(kForever_s, {})) read_more(table);
  }
}

void LineStream::add_to(ArgumentTable& table, double least_s, const WaitUntil& until) {
  struct stat status {};
  if (::fstat(fd_, &status) == 0 && S_ISREG(status.st_mode)) return add_all(table);
  const std::uint64_t before = table.rows();
  while (!ended_ && table.rows() == before) {
    if (is_over(until)) return;
    if (comes_within(kForever_s, until)) read_more(table);
  }
  constexpr double kPause_s = 0.05;
  for (const double began_s = steady_now_s(); !ended_ && !is_over(until);) {
    const double passed_s = steady_now_s() - began_s;
    if (passed_s > std::max(kReadMost_s, least_s)) return;
    if (comes_within(std::max(kPause_s, least_s - passed_s), until)) {
      read_more(table);
    } else if (steady_now_s() - began_s >= least_s) {
      return;
    }
  }
}

}  // namespace wflow::cli
