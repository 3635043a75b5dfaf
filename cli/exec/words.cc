// SPDX-License-Identifier: Apache-2.0
#include "cli/exec/words.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <utility>

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
  std::size_t files = 0;  // behind the last ::::
  const auto check_files = [&] {
    if (last == Separator::files && files == 0)
      throw Error(ExitCode::usage, ":::: needs files, whose lines are the arguments: wflow exec -- COMMAND {} :::: FILE");
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

}  // namespace wflow::cli
