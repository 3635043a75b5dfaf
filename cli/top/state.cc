// SPDX-License-Identifier: Apache-2.0
#include "cli/top/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace wflow::cli::top {

namespace {

constexpr double kSeek = 0.02;

Wish wish_of(Wish::Kind kind) {
  Wish wish;
  wish.kind = kind;
  return wish;
}

std::string utf8_character(Key key) {
  if (key < 0x80) return std::string(1, static_cast<char>(key));
  std::string bytes;
  const auto tail = [&](unsigned shift) { bytes += static_cast<char>(0x80 | ((key >> shift) & 0x3f)); };
  if (key < 0x800) {
    bytes += static_cast<char>(0xc0 | (key >> 6));
  } else if (key < 0x10000) {
    bytes += static_cast<char>(0xe0 | (key >> 12));
    tail(6);
  } else {
    bytes += static_cast<char>(0xf0 | (key >> 18));
    tail(12);
    tail(6);
  }
  tail(0);
  return bytes;
}

void remove_last_character(std::string& text) {
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xc0) == 0x80) text.pop_back();
  if (!text.empty()) text.pop_back();
}

wire::Selection one_task(specs::ArrayId array, specs::Element element) {
  wire::Selection selection;
  selection.chosen = true;
  selection.parts = {{array, element, element}};
  return selection;
}

// The selected entry, if it is a task.
struct SelectedTask {
  wire::TaskPlace place;
  std::string name;
  bool runs = false;
  bool failed = false;
};
std::optional<SelectedTask> selected_task(const ViewState& state, const TopData& data) {
  const std::size_t at = state.selected_here();
  if (state.view == View::failures) {
    const auto failures = listed_failures(data, state);
    if (at < failures.size())
      return SelectedTask{{failures[at]->array, failures[at]->element}, failures[at]->task, false, true};
  }
  if (state.view == View::tasks) {
    const auto rows = listed_tasks(data, state);
    if (at < rows.size())
      return SelectedTask{rows[at].place, rows[at].task, rows[at].kind == TaskRow::Kind::running,
                          rows[at].kind == TaskRow::Kind::failed};
  }
  if (state.view == View::workers) {
    const auto rows = tree_rows(data, state);
    if (at < rows.size() && rows[at].task != nullptr)
      return SelectedTask{{rows[at].task->array, rows[at].task->element}, rows[at].task->task, true};
  }
  if (state.view == View::training) {
    const auto list = trainings(data, state);
    if (at < list.size()) return SelectedTask{{list[at].array, list[at].element}, list[at].task, false};
  }
  return std::nullopt;
}

const wire::StepStatus* selected_step(const ViewState& state, const TopData& data) {
  if (state.view != View::steps) return nullptr;
  const auto steps = listed_steps(data, state);
  return state.selected_here() < steps.size() ? steps[state.selected_here()] : nullptr;
}

void ask(ViewState& state, std::string question, Wish wish) {
  state.prompt = Prompt::confirm;
  state.question = std::move(question);
  state.asked = std::move(wish);
}

std::string tasks_of(std::uint64_t count, const std::string& what) {
  return fmt::format("{} {}task{}", text::format_count(count), what, count == 1 ? "" : "s");
}

std::optional<Wish> wish_to_retry(ViewState& state, const TopData& data) {
  Wish wish = wish_of(Wish::Kind::retry);
  if (const auto task = selected_task(state, data); task && task->failed) {
    wish.tasks = one_task(task->place.array, task->place.element);
    return wish;
  }
  const wire::StepStatus* step = selected_step(state, data);
  if (step == nullptr || step->failed() == 0) return std::nullopt;
  wish.tasks.step = step->name;
  ask(state, fmt::format("Run {} of {} again?", tasks_of(step->failed(), "failed "), step->name), wish);
  return std::nullopt;
}

void ask_to_cancel(ViewState& state, const TopData& data) {
  Wish wish = wish_of(Wish::Kind::cancel);
  if (const auto task = selected_task(state, data); task && task->runs) {
    wish.tasks = one_task(task->place.array, task->place.element);
    wish.kill = true;
    return ask(state, fmt::format("End {}, which runs, for good?", task->name), wish);
  }
  const wire::StepStatus* step = selected_step(state, data);
  if (step == nullptr || step->ended() == step->elements) return;
  wish.tasks.step = step->name;
  const std::string open = text::format_count(step->elements - step->ended());
  ask(state, fmt::format("Cancel what has not started of {} ({} open)?", step->name, open), wish);
}

std::optional<Wish> confirmed(ViewState& state, Key key) {
  std::optional<Wish> asked = std::exchange(state.asked, std::nullopt);
  state.prompt = Prompt::none;
  state.question.clear();
  return key == 'y' || key == 'Y' ? asked : std::nullopt;
}

void find_next(ViewState& state, const TopData& data, bool forward, bool here) {
  const auto& lines = data.pane.lines;
  const std::size_t count = lines.size();
  if (count == 0) return;
  for (std::size_t i = here ? 0 : 1; i <= count; ++i) {
    const std::size_t at = (state.selected_here() + (forward ? i : count - i % count)) % count;
    if (!line_matches(lines[at], state.search)) continue;
    state.selected_here() = at;
    return;
  }
}

void end_prompt(ViewState& state, const TopData& data) {
  if (state.prompt == Prompt::filter) {
    state.filter = state.typed;
    state.selected.fill(0);
  } else {
    state.search = state.typed;
    find_next(state, data, true, true);
  }
  state.prompt = Prompt::none;
}

void type(ViewState& state, Key key, const TopData& data) {
  if (key == kKeyEnter) return end_prompt(state, data);
  if (key == kKeyEscape) {
    state.prompt = Prompt::none;
  } else if (key == kKeyBackspace) {
    remove_last_character(state.typed);
  } else if (key >= 0x20 && key < 0x110000) {
    state.typed += utf8_character(key);
  }
}

void show(ViewState& state, View view) {
  if (state.view != View::pane && state.view != View::help) state.before = state.view;
  state.view = view;
}

bool moved(ViewState& state, Key key, const TopData& data, int page) {
  const std::size_t count = list_size(data, state, state.view);
  const std::size_t last = count > 0 ? count - 1 : 0;
  std::size_t& at = state.selected_here();
  const auto by = static_cast<std::size_t>(std::max(page, 1));
  if (key == kKeyUp || key == 'k') {
    at = at > 0 ? at - 1 : 0;
  } else if (key == kKeyDown || key == 'j') {
    at = std::min(at + 1, last);
  } else if (key == kKeyPageUp) {
    at = at > by ? at - by : 0;
  } else if (key == kKeyPageDown) {
    at = std::min(at + by, last);
  } else if (key == kKeyHome || key == 'g') {
    at = 0;
  } else if (key == kKeyEnd || key == 'G') {
    at = last;
  } else {
    return false;
  }
  return true;
}

std::optional<Wish> leave(ViewState& state, Key key) {
  if (state.view == View::pane || state.view == View::help) {
    state.view = state.before;
    return std::nullopt;
  }
  if (state.view == View::tasks) {
    state.view = View::steps;
    state.filter.clear();
    return std::nullopt;
  }
  const bool quits = key == 'q' || key == 'Q';
  if (state.many && state.view != View::campaigns) {
    state.view = View::campaigns;
    return wish_of(Wish::Kind::close);
  }
  if (!quits) {
    state.filter.clear();
    return std::nullopt;
  }
  return wish_of(Wish::Kind::quit);
}

std::optional<Wish> replay_key(Key key) {
  Wish wish = wish_of(Wish::Kind::replay);
  if (key == kKeyLeft || key == kKeyRight) {
    wish.seek = key == kKeyLeft ? -kSeek : kSeek;
  } else if (key == '+' || key == '-') {
    wish.faster = key == '+' ? 2 : 0.5;
  } else if (key != ' ') {
    return std::nullopt;
  }
  return wish;
}

std::optional<Wish> show_task(ViewState& state, const TopData& data, Wish::Kind kind) {
  const auto task = selected_task(state, data);
  if (!task) return std::nullopt;
  show(state, View::pane);
  state.selected_here() = 0;
  state.search.clear();
  Wish wish = wish_of(kind);
  wish.title = task->name;
  wish.task = task->place;
  return wish;
}

std::optional<Wish> open_campaign(ViewState& state, const TopData& data) {
  const auto rows = listed_campaigns(data, state);
  if (state.selected_here() >= rows.size()) return std::nullopt;
  const std::string directory = rows[state.selected_here()]->directory;
  state.view = View::steps;
  state.filter.clear();
  for (const View view : {View::steps, View::workers, View::failures, View::training, View::tasks})
    state.selected[static_cast<std::size_t>(view)] = 0;
  Wish wish = wish_of(Wish::Kind::open);
  wish.title = directory;
  return wish;
}

std::optional<Wish> open_step(ViewState& state, const TopData& data) {
  const wire::StepStatus* step = selected_step(state, data);
  if (step == nullptr) return std::nullopt;
  Wish wish = wish_of(Wish::Kind::tasks);
  wish.title = step->name;
  state.view = View::tasks;
  state.selected_here() = 0;
  state.filter.clear();
  return wish;
}

// Handles keys that lead to another view or ask for a text.
bool turned(ViewState& state, Key key, const TopData& data) {
  constexpr std::array<View, 4> kOrder = {View::steps, View::workers, View::failures, View::training};
  if (state.view == View::campaigns && key != '?' && key != 'f' && key != '/') return false;
  if (key >= '1' && key <= '4') {
    state.view = kOrder[key - '1'];
  } else if (key == kKeyTab) {
    const auto at = std::ranges::find(
        kOrder, state.view == View::pane || state.view == View::help ? state.before : state.view);
    state.view = at == kOrder.end() || at + 1 == kOrder.end() ? View::steps : *(at + 1);
  } else if (key == '?') {
    show(state, View::help);
  } else if (key == 'f' || (key == '/' && state.view != View::pane)) {
    state.prompt = Prompt::filter;
    state.typed = state.filter;
  } else if (key == '/') {
    state.prompt = Prompt::search;
    state.typed.clear();
  } else if ((key == 'n' || key == 'N') && state.view == View::pane) {
    find_next(state, data, key == 'n', false);
  } else {
    return false;
  }
  return true;
}

}  // namespace

void keep_in_bounds(ViewState& state, const TopData& data) {
  const std::size_t count = list_size(data, state, state.view);
  if (state.selected_here() >= count) state.selected_here() = count > 0 ? count - 1 : 0;
}

std::optional<Wish> on_key(ViewState& state, Key key, const TopData& data, int page) {
  keep_in_bounds(state, data);
  if (state.prompt == Prompt::confirm) return confirmed(state, key);
  if (state.prompt != Prompt::none) {
    type(state, key, data);
    return std::nullopt;
  }
  if (key == 'q' || key == 'Q' || key == kKeyEscape) return leave(state, key);
  if (turned(state, key, data) || moved(state, key, data, page)) return std::nullopt;
  if (data.replay) {
    if (auto wish = replay_key(key)) return wish;
  }
  switch (key) {
    case 's':
      ++state.sort[static_cast<std::size_t>(state.view)];
      state.sort[static_cast<std::size_t>(state.view)] %= static_cast<int>(sort_names(state.view).size());
      return std::nullopt;
    case 'p':
      if (state.view == View::campaigns) return std::nullopt;
      return wish_of(data.status.state == engine::CampaignState::paused ? Wish::Kind::unpause
                                                                        : Wish::Kind::pause);
    case 'r':
      return wish_to_retry(state, data);
    case 'c':
      ask_to_cancel(state, data);
      return std::nullopt;
    case 'e':
      return show_task(state, data, Wish::Kind::explain);
    case 'l':
    case kKeyEnter:
      if (state.view == View::campaigns) return open_campaign(state, data);
      if (key == kKeyEnter && state.view == View::steps) return open_step(state, data);
      if (key == kKeyEnter && state.view == View::tasks) return show_task(state, data, Wish::Kind::explain);
      return show_task(state, data, Wish::Kind::log);
    default:
      return std::nullopt;
  }
}

}  // namespace wflow::cli::top
