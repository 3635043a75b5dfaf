// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "base/yaml.h"
#include "cli/campaign/where.h"
#include "engine/query/selection.h"
#include "specs/samples/samples.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;
using engine::ElementState;
using engine::Range;
using specs::ArrayId;
using specs::Element;
namespace wire = engine::wire;

// The fields of an expression: these, then the columns of the samples, then kUsageFields.
enum Field : std::size_t {
  kStep,
  kArray,
  kState,
  kSample,
  kExitCode,
  kAttempts,
  kWorker,
  kDuration,
  kReason,
  kFixedFields
};

// A resource that the last execution used. Its field is behind the columns of the samples, which may have the
// same name.
struct UsageField {
  const char* name;
  WhereField::Kind kind;
  double (*of)(const engine::TaskUsage& used);
  bool of_one;  // known only for a process that ran a single sample
};
constexpr std::array<UsageField, 4> kUsageFields = {
    {{"memory", WhereField::Kind::bytes,
      [](const engine::TaskUsage& used) { return static_cast<double>(used.peak_bytes); }, false},
     {"cpu", WhereField::Kind::seconds, [](const engine::TaskUsage& used) { return used.cpu_s; }, true},
     {"read", WhereField::Kind::bytes,
      [](const engine::TaskUsage& used) { return static_cast<double>(used.read_bytes); }, true},
     {"written", WhereField::Kind::bytes,
      [](const engine::TaskUsage& used) { return static_cast<double>(used.written_bytes); }, true}}};
constexpr const char* kTime = "time";  // another name of duration, behind kUsageFields

// Usage records of executions, for rows that are visited in the order of their elements. Fetches some hundred
// or thousand neighbours at a time, so that a listing of a million tasks takes little memory.
class TaskUsages {
 public:
  // `few`: for a terminal, which shows a hundred rows. `client` must outlive this.
  TaskUsages(engine::Client& client, bool few) : client_(client), together_(few ? kFew : kMany) {}

  // The usage of the last execution that has ended; null if none is recorded. Valid until the next call.
  const engine::wire::UsedView* find(specs::ArrayId array, specs::Element element);

 private:
  static constexpr specs::Element kFew = 200, kMany = 4000;

  void load(specs::ArrayId array, specs::Element first);

  engine::Client& client_;
  specs::Element together_;
  specs::ArrayId array_ = 0;
  specs::Element first_ = 0, end_ = 0;  // last_ covers these elements of `array_`
  std::map<specs::Element, engine::wire::UsedView> last_;
};

const engine::wire::UsedView* TaskUsages::find(specs::ArrayId array, specs::Element element) {
  if (array != array_ || element < first_ || element >= end_) load(array, element);
  const auto at = last_.find(element);
  return at == last_.end() ? nullptr : &at->second;
}

void TaskUsages::load(specs::ArrayId array, specs::Element first) {
  const engine::wire::UsageAnswer answer = client_.usage({array, first, first + together_ - 1, 0});
  array_ = array;
  first_ = first;
  end_ = answer.next.value_or(first + together_);
  last_.clear();
  for (const engine::wire::UsedView& used : answer.used) {
    const specs::Element from = std::max(used.usage.first, first_);
    const specs::Element to = std::min(used.usage.first + used.usage.count, end_);
    for (specs::Element element = from; element < to; ++element) {
      const auto [at, is_new] = last_.try_emplace(element, used);
      // A task that runs anew counts its attempts from 0 again: the later execution counts.
      if (!is_new && used.usage.started_s >= at->second.usage.started_s) at->second = used;
    }
  }
}

// The name that replaces `done` if a conversion could not use the output.
constexpr std::string_view kMissing = "missing";
constexpr unsigned kMissingBit = 1U << engine::kElementStates;

std::string state_name(std::size_t state) {
  return std::string(name_of(static_cast<ElementState>(state)));
}

std::vector<std::string> state_names() {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < engine::kElementStates; ++i) names.push_back(state_name(i));
  names.emplace_back(kMissing);
  return names;
}

std::vector<WhereField> fields_of(const specs::Plan& plan, const specs::SampleTable* samples) {
  WhereField step{"step", WhereField::Kind::text, {}};
  for (const auto& planned : plan.steps()) step.words.push_back(planned.name);
  WhereField state{"state", WhereField::Kind::text, state_names()};
  using Kind = WhereField::Kind;
  std::vector<WhereField> fields = {
      step,
      {"array", Kind::text, {}},
      state,
      {"sample", Kind::number, {}},
      {"exit_code", Kind::number, {}},
      {"attempts", Kind::number, {}},
      {"worker", Kind::text, {}},
      {"duration", Kind::seconds, {}},
      {"reason",
       Kind::text,
       {"exited", "signalled", "timed_out", "not_started", "bad_output", "worker_lost", "out_of_memory",
        "walltime", "node", "preempted", "launcher", "disk", "stalled", "missing"}}};
  if (samples != nullptr) {
    for (const std::string& column : samples->columns()) fields.push_back({column, Kind::cell, {}});
  }
  for (const UsageField& field : kUsageFields) fields.push_back({field.name, field.kind, {}});
  fields.push_back({kTime, Kind::seconds, {}});
  return fields;
}

unsigned mask_of(const std::vector<std::string>& names) {
  if (names.empty()) return 2 * kMissingBit - 1;
  const std::vector<std::string> known = state_names();
  unsigned mask = 0;
  for (const std::string& list : names) {
    for (const std::string& name : text::split(list, ',')) {
      const auto at = std::find(known.begin(), known.end(), name);
      if (at == known.end()) {
        const std::string hint = text::suggestion(name, known);
        throw Error(ExitCode::usage,
                    fmt::format("--state: no state '{}'{}", name,
                                hint.empty() ? "; there are " + text::join(known, ", ") : hint));
      }
      mask |= 1U << static_cast<unsigned>(at - known.begin());
    }
  }
  return mask;
}

// --failed and --missing are short for states.
std::vector<std::string> states_of(const SelectionOptions& options) {
  std::vector<std::string> states = options.states;
  if (options.failed) states.insert(states.end(), {"failed", "hard_failed"});
  if (options.missing) states.emplace_back(kMissing);
  return states;
}

std::string duration_expression(const std::string& written) {
  const std::size_t digits = written.find_first_not_of("<>= ");
  if (digits == std::string::npos)
    throw Error(ExitCode::usage,
                fmt::format("--duration '{}': write for example '>2' or '<=1.5min'", written));
  const auto seconds = yaml::parse_seconds(written.substr(digits));
  if (!seconds)
    throw Error(ExitCode::usage,
                fmt::format("--duration '{}': write for example '>2' or '<=1.5min'", written));
  const std::string sign(text::trim(std::string_view(written).substr(0, digits)));
  return fmt::format("duration {} {}", sign.empty() ? ">" : sign, text::from_real(*seconds));
}

class Selection {
 public:
  Selection(const specs::Plan& plan, engine::Client& client, const SelectionOptions& options)
      : plan_(plan),
        client_(client),
        usages_(client, options.few),
        with_usage_(options.with_usage),
        mask_(mask_of(states_of(options))) {
    if (plan.study().samples) samples_ = specs::open_samples(plan.study().samples->design);
    const std::vector<WhereField> fields = fields_of(plan, samples_.get());
    if (!options.where.empty()) conditions_.emplace_back(options.where, fields);
    if (options.exit_code)
      conditions_.emplace_back(fmt::format("exit_code = {}", *options.exit_code), fields);
    if (!options.duration.empty()) conditions_.emplace_back(duration_expression(options.duration), fields);
    if (!options.worker.empty()) worker_ = options.worker;
    stretches_ = stretches_of(plan, options);
  }

  void run(const std::function<bool(const TaskRow&)>& visit) {
    // One request covers each stretch: its arrays are neighbours.
    for (place_ = 0; place_ < stretches_.size(); ++place_) {
      const unsigned mask = possible_states(plan_.step_of(stretches_[place_].first));
      if (mask != 0 && !visit_stretch(stretches_[place_], mask, visit)) return;
    }
  }

 private:
  bool visit_stretch(const Stretch& stretch, unsigned mask,
                     const std::function<bool(const TaskRow&)>& visit) {
    const Range range = stretch.range;
    for (std::optional<wire::TaskPlace> from = wire::TaskPlace{stretch.first, range.first}; from;) {
      const bool only_missing = mask == kMissingBit;
      // A missing task is a done one with a mark.
      const unsigned states =
          (mask & kMissingBit) != 0 ? mask | 1U << static_cast<unsigned>(ElementState::done) : mask;
      const wire::TasksAnswer page = client_.tasks(
          {*from, stretch.last, range.first, range.last, states & (kMissingBit - 1), only_missing});
      if (!visit_page(page, visit)) return false;
      from = page.next;
    }
    return true;
  }

  // The states in which an element of the step may meet the conditions, judged by step and state alone.
  unsigned possible_states(std::size_t step) const {
    unsigned mask = 0;
    for (std::size_t state = 0; state <= engine::kElementStates; ++state) {
      if ((mask_ >> state & 1U) == 0) continue;
      const bool done =
          state == static_cast<std::size_t>(ElementState::done) || state == engine::kElementStates;
      const auto lookup = [&](std::size_t field) -> WhereValue {
        if (field == kStep) return plan_.steps()[step].name;
        if (field == kState) return state_names()[state];
        if (field == kExitCode && done) return 0.0;
        return {};
      };
      const bool possible = std::all_of(conditions_.begin(), conditions_.end(),
                                        [&](const Where& w) { return w.evaluate(lookup) != Truth::no; });
      if (possible) mask |= 1U << state;
    }
    return mask;
  }

  // The facts of a page about single elements.
  struct Known {
    using Place = std::pair<ArrayId, Element>;
    explicit Known(const wire::TasksAnswer& page) {
      for (const auto& record : page.records) records[{record.array, record.element}] = &record;
      for (const auto& lease : page.leases) leases[{lease.array, lease.first}] = &lease;
      for (const auto& task : page.running) running[{task.array, task.element}] = task.started_s;
      for (const auto& task : page.missing) missing[{task.array, task.element}] = &task;
    }
    std::string worker_of(ArrayId array, Element element) const {
      auto at = leases.upper_bound({array, element});
      if (at == leases.begin()) return {};
      const wire::TaskLease& lease = *(--at)->second;
      return lease.array == array && element <= lease.last ? lease.worker : std::string();
    }
    std::map<Place, const wire::TaskRecord*> records;
    std::map<Place, const wire::TaskLease*> leases;  // by their first element
    std::map<Place, double> running;
    std::map<Place, const wire::MissingTask*> missing;
  };

  bool visit_page(const wire::TasksAnswer& page, const std::function<bool(const TaskRow&)>& visit) {
    const Known known(page);
    const double now_s = unix_now_s();
    for (const wire::TaskRun& run : page.runs) {
      const std::string name = plan_.array_name(run.array);
      for (Element element = run.first; element <= run.last; ++element) {
        TaskRow row = row_of(run.array, element, run.state, known, now_s);
        if (!is_in_mask(row) || was_visited(row)) continue;
        Truth meant = matches(row, name);
        if (meant == Truth::no) continue;
        // Look up the usage record only if it can decide the row.
        if (with_usage_ || meant == Truth::unknown) {
          add_usage(row);
          meant = matches(row, name);
        }
        if (meant == Truth::yes && !visit(row)) return false;
      }
    }
    return true;
  }

  static TaskRow row_of(ArrayId array, Element element, ElementState state, const Known& known,
                        double now_s) {
    TaskRow row;
    row.array = array;
    row.element = element;
    row.state = state;
    const auto at = known.records.find({array, element});
    if (at != known.records.end()) row.attempts = at->second->executions;
    if (state == ElementState::done) {
      const auto missing = known.missing.find({array, element});
      row.missing = missing != known.missing.end();
      if (row.missing) row.reason = kMissing;
      if (row.missing) row.detail = missing->second->reason;
      ++row.attempts;
      row.exit_code = 0;
      return row;
    }
    if (at != known.records.end()) {
      const wire::TaskRecord& record = *at->second;
      row.reason = record.reason;
      row.detail = record.message;
      row.worker = record.worker;
      // With another reason, the task did not end by itself.
      if (record.reason.empty() || record.reason == "exited") row.exit_code = record.exit_code;
      if (record.reason == "signalled") row.signal = record.exit_code;
      row.started_s = record.started_s;
      row.duration_s = record.duration_s;
    }
    if (state == ElementState::leased) add_running(row, known, now_s);
    return row;
  }

  static void add_running(TaskRow& row, const Known& known, double now_s) {
    ++row.attempts;
    row.worker = known.worker_of(row.array, row.element);
    row.started_s.reset();
    row.duration_s.reset();
    row.detail.clear();
    const auto at = known.running.find({row.array, row.element});
    if (at == known.running.end()) return;
    row.started_s = at->second;
    row.duration_s = now_s - at->second;
  }

  // Takes the figures from the record of the last execution. For a process that ran a bundle, only the memory
  // applies to a single sample.
  void add_usage(TaskRow& row) {
    const bool may_have = row.state == ElementState::done || row.state == ElementState::failed ||
                          row.state == ElementState::hard_failed || row.state == ElementState::delayed;
    const wire::UsedView* found = may_have ? usages_.find(row.array, row.element) : nullptr;
    if (found == nullptr) return;
    row.used = found->usage;
    if (row.worker.empty()) row.worker = found->worker;
    if (!row.started_s) row.started_s = row.used->started_s;
    if (!row.duration_s && row.used->count == 1) row.duration_s = row.used->duration_s;
  }

  // A task that two words name is listed once.
  bool was_visited(const TaskRow& row) const {
    return std::any_of(stretches_.begin(), stretches_.begin() + static_cast<std::ptrdiff_t>(place_),
                       [&](const Stretch& before) { return before.contains(row.array, row.element); });
  }

  bool is_in_mask(const TaskRow& row) const {
    return (mask_ & (row.missing ? kMissingBit : 1U << static_cast<unsigned>(row.state))) != 0;
  }

  Truth is_on_worker(const TaskRow& row) const {
    if (worker_.empty()) return Truth::yes;
    if (row.worker.empty()) return Truth::unknown;
    return row.worker == worker_ || row.worker.starts_with(worker_ + "-") ? Truth::yes : Truth::no;
  }

  // `field`: its place behind the columns of the samples.
  static WhereValue used_by(const TaskRow& row, std::size_t field) {
    if (field >= kUsageFields.size()) return row.duration_s ? WhereValue(*row.duration_s) : WhereValue();
    const UsageField& asked = kUsageFields.at(field);
    if (!row.used || (asked.of_one && row.used->count != 1)) return {};
    return asked.of(*row.used);
  }

  Truth matches(const TaskRow& row, const std::string& array_name) const {
    const auto& planned = plan_.steps()[plan_.step_of(row.array)];
    const auto lookup = [&](std::size_t field) -> WhereValue {
      switch (field) {
        case kStep:
          return planned.name;
        case kArray:
          return array_name;
        case kState:
          return row.state_name();
        case kSample:
          return static_cast<double>(row.element);
        case kExitCode:
          return row.exit_code ? WhereValue(static_cast<double>(*row.exit_code)) : WhereValue();
        case kAttempts:
          return static_cast<double>(row.attempts);
        case kWorker:
          return row.worker.empty() ? WhereValue() : WhereValue(row.worker);
        case kDuration:
          return row.duration_s ? WhereValue(*row.duration_s) : WhereValue();
        case kReason:
          return row.reason.empty() ? WhereValue() : WhereValue(row.reason);
        default:
          break;
      }
      const std::size_t column = field - kFixedFields;
      const std::size_t columns = samples_ ? samples_->columns().size() : 0;
      if (column >= columns) return used_by(row, column - columns);
      if (!planned.sample_dependent || planned.block_samples > 0 || row.element >= samples_->count())
        return {};
      return samples_->text(row.element, column);
    };
    Truth all = is_on_worker(row);
    for (const Where& condition : conditions_) {
      if (all == Truth::no) break;
      const Truth truth = condition.evaluate(lookup);
      if (truth != Truth::yes) all = truth;
    }
    return all;
  }

  const specs::Plan& plan_;
  engine::Client& client_;
  TaskUsages usages_;
  bool with_usage_;
  std::unique_ptr<const specs::SampleTable> samples_;
  unsigned mask_;
  std::vector<Where> conditions_;
  std::string worker_;
  std::vector<Stretch> stretches_;
  std::size_t place_ = 0;  // of the stretch that is visited
};

}  // namespace

std::string TaskRow::state_name() const {
  return missing ? std::string(kMissing) : std::string(name_of(state));
}

fs::path open_selection(SelectionOptions& options) {
  Meant meant = meant_by(options.words);
  options.tasks = std::move(meant.tasks);
  return meant.campaign;
}

bool chooses_single_tasks(const SelectionOptions& options) {
  return !options.where.empty() || !options.worker.empty() || !options.duration.empty() || options.failed ||
         options.missing;
}

std::vector<Stretch> stretches_of(const specs::Plan& plan, const SelectionOptions& options) {
  if (!options.step.empty() && !options.tasks.empty())
    throw Error(ExitCode::usage, "name the step once: as the tasks, or with --step");
  if (!options.step.empty())
    engine::arrays_of_step(plan, options.step);  // throws with the names of the steps
  const std::vector<Stretch> all =
      tasks_named(plan, options.step.empty() ? options.tasks : TaskWords{options.step});
  if (options.range.empty()) return all;
  std::vector<Stretch> parts;
  for (const Range& range : parse_ranges(options.range, "--range " + options.range)) {
    for (const Stretch& stretch : all) {
      const Range both{std::max(range.first, stretch.range.first), std::min(range.last, stretch.range.last)};
      if (both.first <= both.last) parts.push_back({stretch.first, stretch.last, both});
    }
  }
  return parts;
}

void add_chosen(CLI::App& command, SelectionOptions& options) {
  add_task_words(command, options.words);
  command.add_option("--step", options.step, "of this step only");
  command.add_option("--range", options.range,
                     "1-5,7 or 100: (to the last): these samples, both ends included");
  command.add_flag("--failed", options.failed, "that failed for good");
  command.add_flag("--missing", options.missing, "whose output a conversion could not use");
  command.add_option("--worker", options.worker, "on this worker, or on all of this host");
  command.add_option("--duration", options.duration,
                     "'>2', '<=1.5min': how long the last execution took or has taken");
  command.add_option("--where", options.where,
                     "an expression, for example \"omega_m > 0.3 and state = failed\" or \"memory > 1GiB\"");
}

void add_selection(CLI::App& command, SelectionOptions& options) {
  add_chosen(command, options);
  command
      .add_option("--state", options.states,
                  "in this state: blocked, ready, running, delayed, done, missing, failed, hard_failed, "
                  "skipped, cancelled")
      ->take_all();
  command.add_option("--exit-code", options.exit_code, "whose last execution ended with this exit code");
}

void select_tasks(const specs::Plan& plan, engine::Client& client, const SelectionOptions& options,
                  const std::function<bool(const TaskRow&)>& visit) {
  Selection(plan, client, options).run(visit);
}

std::vector<wire::Selection> in_messages(const wire::Selection& selection, std::size_t parts) {
  if (!selection.chosen || selection.parts.size() <= parts) return {selection};
  wire::Selection rest = selection;
  rest.parts.clear();
  std::vector<wire::Selection> messages;
  for (std::size_t first = 0; first < selection.parts.size(); first += parts) {
    const auto begin = selection.parts.begin() + static_cast<std::ptrdiff_t>(first);
    const std::size_t count = std::min(parts, selection.parts.size() - first);
    messages.push_back(rest);
    messages.back().parts.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
  }
  return messages;
}

namespace {

// The one task of this very name: `data` is a task, too, where its manifest is a second one of that step.
std::optional<specs::TaskId> task_named(const specs::Plan& plan, const SelectionOptions& options) {
  if (options.tasks.size() != 1 || !options.step.empty() || !options.range.empty()) return std::nullopt;
  try {
    return specs::find_task(plan, options.tasks.front());
  } catch (const Error&) {
    return std::nullopt;  // another part of the study, or none: tasks_named() says which
  }
}

}  // namespace

ChosenTasks chosen_tasks(const specs::Plan& plan, engine::Client& client, const SelectionOptions& options,
                         std::uint64_t limit) {
  const bool by_state = chooses_single_tasks(options) || !options.states.empty() || options.exit_code;
  if (!by_state && options.tasks.empty() && options.step.empty() && options.range.empty())
    throw Error(ExitCode::usage, "name the tasks: STEP/3, STEP/1-5,7, STEP, --failed or --where EXPRESSION");
  ChosenTasks chosen;
  const auto add = [&](ArrayId array, Element element) {
    if (limit == 0 || chosen.tasks.size() < limit) chosen.tasks.push_back({array, element});
    ++chosen.all;
  };
  if (const auto task = by_state ? std::nullopt : task_named(plan, options)) {
    chosen = {{*task}, 1};
  } else if (by_state) {
    select_tasks(plan, client, options, [&](const TaskRow& row) {
      add(row.array, row.element);
      return true;
    });
  } else {
    for (const Stretch& stretch : stretches_of(plan, options)) {
      const std::uint64_t count = stretch.size();
      for (std::uint64_t i = 0; i < count && (limit == 0 || chosen.tasks.size() < limit); ++i) {
        chosen.tasks.push_back({static_cast<ArrayId>(stretch.first + i / stretch.range.size()),
                                static_cast<Element>(stretch.range.first + i % stretch.range.size())});
      }
      chosen.all += count;
    }
  }
  if (chosen.all == 0) throw Error(ExitCode::usage, "there is no such task (wflow tasks lists all)");
  return chosen;
}

void print_rest(const ChosenTasks& chosen) {
  if (chosen.tasks.size() < chosen.all)
    fmt::print("\nthe first {} of {}; --limit 0 shows all\n", chosen.tasks.size(),
               text::format_count(chosen.all));
}

specs::TaskId single_task(const specs::Plan& plan, engine::Client& client, const SelectionOptions& options) {
  const ChosenTasks chosen = chosen_tasks(plan, client, options, 1);
  const specs::TaskId& first = chosen.tasks.front();
  if (!chosen.is_one()) {
    throw Error(ExitCode::usage,
                fmt::format("these are {} tasks; name one, for example {}", text::format_count(chosen.all),
                            specs::task_name(plan, first.array, first.element)));
  }
  return first;
}

}  // namespace wflow::cli
