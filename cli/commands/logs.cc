// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/selection.h"
#include "cli/commands/commands.h"
#include "cli/view/status.h"
#include "engine/query/client.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;

struct LogsOptions {
  SelectionOptions selection;
  std::uint64_t limit = 20;
  bool only_out = false;
  bool only_err = false;
  bool follow = false;
  bool json = false;
};

constexpr std::size_t kPieceBytes = 1 << 20;

// Gives the file from `from` on in pieces that end with a line or at least with a character. Returns the end
// offset.
template <class Take>
std::uint64_t for_each_piece(const fs::path& path, std::uint64_t from, Take take) {
  const FileDescriptor file = open_file(path, O_RDONLY);
  std::string buffer;
  for (;;) {
    const std::size_t kept = buffer.size();
    buffer.resize(kept + kPieceBytes);
    const std::size_t got = read_at(file.get(), from, buffer.data() + kept, kPieceBytes, path);
    from += got;
    buffer.resize(kept + got);
    if (got == 0) {
      if (!buffer.empty()) take(std::string_view(buffer));
      return from;
    }
    std::size_t end = buffer.rfind('\n') + 1;  // 0: there is none
    if (end == 0) end = buffer.size() - cut_character(buffer);
    take(std::string_view(buffer).substr(0, end));
    buffer.erase(0, end);
  }
}

// A failure is reported, and becomes an exit code, when the program ends.
void print_bytes(std::string_view bytes) {
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
}

void print_title(const std::string& title) {
  if (!title.empty()) fmt::print("== {}\n", title);
}

void print_text(const std::string& bytes, const std::string& title) {
  if (bytes.empty()) return;
  print_title(title);
  print_bytes(bytes);
  if (bytes.back() != '\n') fmt::print("\n");
}

void print_file(const fs::path& path, const std::string& title) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  char last = '\0';
  for_each_piece(path, 0, [&](std::string_view piece) {
    if (last == '\0') print_title(title);
    if (std::ferror(stdout) == 0) print_bytes(piece);
    last = piece.back();
  });
  if (last != '\0' && last != '\n') fmt::print("\n");
}

std::string inside_of_json_string(std::string_view bytes) {
  const std::string quoted = nlohmann::json(printable(bytes)).dump();
  return quoted.substr(1, quoted.size() - 2);
}

// Prints as nlohmann::json would, but without the whole file in memory.
void print_json_of(const LogsOptions& options, const std::string& task, const fs::path& out,
                   const fs::path& err) {
  const auto print_entry = [](const char* name, const fs::path& path) {
    fmt::print("  \"{}\": \"", name);
    std::error_code ignored;
    if (fs::exists(path, ignored))
      for_each_piece(path, 0, [](std::string_view piece) { print_bytes(inside_of_json_string(piece)); });
    fmt::print("\",\n");
  };
  fmt::print("{{\n");
  if (!options.only_out) print_entry("err", err);
  if (!options.only_err) print_entry("out", out);
  fmt::print("  \"task\": {}\n}}\n", nlohmann::json(task).dump());
}

void print(const LogsOptions& options, const std::string& task, const std::vector<TaskOutput>& executions) {
  if (options.json) {
    std::string out;
    std::string err;
    for (const TaskOutput& printed : executions) {
      out += printed.out;
      err += printed.err;
    }
    nlohmann::json json = {{"task", task}};
    if (!options.only_err) json["out"] = printable(out);
    if (!options.only_out) json["err"] = printable(err);
    fmt::print("{}\n", json.dump(2));
    return;
  }
  const bool titles = !options.only_out && !options.only_err;
  for (const TaskOutput& printed : executions) {
    if (!options.only_err) print_text(printed.out, titles ? "output" + printed.out_from : "");
    if (!options.only_out) print_text(printed.err, titles ? "errors" + printed.err_from : "");
  }
}

void print_files(const LogsOptions& options, const std::string& task, const fs::path& out,
                 const fs::path& err) {
  const bool titles = !options.only_out && !options.only_err;
  if (options.json) {
    print_json_of(options, task, out, err);
    return;
  }
  if (!options.only_err) print_file(out, titles ? "output " + out.string() : "");
  if (!options.only_out) print_file(err, titles ? "errors " + err.string() : "");
}

// Prints the bytes that were appended to a file since the last call.
class Tail {
 public:
  explicit Tail(fs::path path) : path_(std::move(path)) {}
  void print_news() {
    std::error_code none;
    const std::uint64_t size = fs::file_size(path_, none);
    if (none) return;
    if (size < printed_) printed_ = 0;  // the file was created anew
    if (size == printed_) return;
    printed_ = for_each_piece(path_, printed_, print_bytes);
    std::fflush(stdout);
  }

 private:
  fs::path path_;
  std::uint64_t printed_ = 0;
};

constexpr std::chrono::milliseconds kOutputLook{100};
constexpr int kLooksAQuestion = 5;  // fewer requests to the coordinator than looks at the file

bool can_still_print(const specs::Plan& plan, const specs::TaskId& task) {
  engine::Client client(plan);  // a new one each time: a client caches the record of a campaign at rest
  const engine::ElementState state = client.explain({task.array, task.element}).state;
  return client.live() && !engine::has_ended(state);
}

// Calls look() several times a second until the task has ended or no process runs the campaign, and once more
// after that.
void follow_task(const specs::Plan& plan, const specs::TaskId& task, const std::function<void()>& look) {
  while (can_still_print(plan, task)) {
    for (int i = 0; i < kLooksAQuestion; ++i) {
      look();
      std::this_thread::sleep_for(kOutputLook);
    }
  }
  look();
}

void print_task(const specs::Plan& plan, const specs::TaskId& task, const LogsOptions& options) {
  const std::string name = specs::task_name(plan, task.array, task.element);
  const auto files = output_files(plan, task);
  if (!files) {
    print(options, name, task_output(plan, task));
    return;
  }
  require_output(plan, task, *files);
  print_files(options, name, files->first, files->second);
}

// The output of each, under its name. A task that has printed nothing yet is no error among many.
void print_tasks(const specs::Plan& plan, const ChosenTasks& chosen, const LogsOptions& options) {
  const char* before = options.json ? "[" : "";
  for (const specs::TaskId& task : chosen.tasks) {
    fmt::print("{}", std::exchange(before, options.json ? "," : "\n"));
    if (!options.json)
      fmt::print("{}\n",
                 styled(standard_output(), Style::bold, specs::task_name(plan, task.array, task.element)));
    try {
      print_task(plan, task, options);
    } catch (const Error& error) {
      if (error.code() != ExitCode::data) throw;
      options.json
          ? fmt::print("{}",
                       nlohmann::json{{"task", specs::task_name(plan, task.array, task.element)}}.dump())
          : fmt::print("{}\n", error.what());
    }
  }
  if (options.json) fmt::print("]\n");
  if (!options.json) print_rest(chosen);
}

int follow_output(const specs::Plan& plan, const specs::TaskId& task, const LogsOptions& options) {
  const auto files = output_files(plan, task);
  if (!files) {
    // Packed output is written as a whole when the task ends.
    follow_task(plan, task, [] {});
    print_task(plan, task, options);
    return 0;
  }
  Tail out_tail(files->first);
  Tail err_tail(files->second);
  follow_task(plan, task, [&] {
    if (!options.only_err) out_tail.print_news();
    if (!options.only_out) err_tail.print_news();
  });
  return 0;
}

int logs(LogsOptions& options) {
  const specs::Plan plan = read_plan(open_selection(options.selection));
  std::optional<engine::Client> client(plan);
  if (options.follow) {
    const specs::TaskId task = single_task(plan, *client, options.selection);
    client.reset();  // each look asks anew
    return follow_output(plan, task, options);
  }
  const ChosenTasks chosen = chosen_tasks(plan, *client, options.selection, options.limit);
  chosen.is_one() ? print_task(plan, chosen.tasks.front(), options) : print_tasks(plan, chosen, options);
  return 0;
}

}  // namespace

void add_logs(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<LogsOptions>();
  CLI::App* command = app.add_subcommand("logs", "what tasks printed");
  command->footer(
      "--follow ends with the task, or where nobody runs the campaign.\n"
      "Examples:\n  wflow logs simulate/12\n  wflow logs simulate --failed\n  wflow logs cosmoflow train "
      "--err\n  "
      "wflow logs train --follow");
  add_selection(*command, options->selection);
  command->add_option("--limit", options->limit, "of many, so many at most; 0: all (default: 20)");
  command->add_flag("--out", options->only_out, "standard output only");
  command->add_flag("--err", options->only_err, "standard error only");
  auto* follow =
      command->add_flag("-f,--follow", options->follow, "also what comes, until the task has ended");
  command->add_flag("--json", options->json, "as JSON")->excludes(follow);
  command->callback([options, &chosen] { chosen = [options] { return logs(*options); }; });
}

}  // namespace wflow::cli
