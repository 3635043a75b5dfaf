// SPDX-License-Identifier: Apache-2.0
#include "cli/exec/words.h"

#include <fmt/format.h>

#include "base/error.h"

namespace wflow::cli {

namespace {

constexpr std::string_view kList = ":::";
constexpr std::string_view kLinkedList = ":::+";

void check_linked(const std::vector<ArgumentList>& lists) {
  for (std::size_t i = 1; i < lists.size(); ++i) {
    const std::size_t before = lists[i - 1].values.size();
    const std::size_t here = lists[i].values.size();
    if (!lists[i].linked || before == here) continue;
    throw Error(
        ExitCode::usage,
        fmt::format("the list behind :::+ has {} argument{}, the one before it {}; they are taken row by row",
                    here, here == 1 ? "" : "s", before));
  }
}

}  // namespace

ExecWords read_exec_words(const std::vector<std::string>& words) {
  ExecWords read;
  for (const std::string& word : words) {
    if (word == kList || word == kLinkedList) {
      if (word == kLinkedList && read.lists.empty())
        throw Error(ExitCode::usage,
                    ":::+ stands behind the list that it is linked to; the first list begins with :::");
      read.lists.push_back({{}, word == kLinkedList});
    } else if (read.lists.empty()) {
      read.command.push_back(word);
    } else {
      read.lists.back().values.push_back(word);
    }
  }
  check_linked(read.lists);
  return read;
}

}  // namespace wflow::cli
