// SPDX-License-Identifier: Apache-2.0
#include "engine/update/changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <unordered_map>

#include "base/text.h"
#include "specs/plan/versions.h"
#include "specs/samples/samples.h"
#include "specs/study/blocks.h"

namespace wflow::engine {

namespace {

using specs::Edge;
using specs::EdgeKind;
using specs::PlannedStep;
using specs::StepKind;

// A part of StepChange: the outputs are gone, although nothing that decides them differs.
constexpr const char* kDeleted = "raw outputs deleted";

Range all_of(std::uint64_t count) {
  return {0, count - 1};
}

const PlannedStep& step_of(const specs::Plan& plan, ArrayId array) {
  return plan.steps()[plan.step_of(array)];
}

// Elements of a child that depend on an element of its parent; empty if there are none.
std::optional<Range> below(const Edge& edge, Range range, std::uint64_t count) {
  if (count == 0) return std::nullopt;
  if (edge.kind == EdgeKind::all) return all_of(count);
  if (edge.kind == EdgeKind::block) {
    const Blocks blocks = edge.blocks();
    range = {blocks.block_of(range.first), blocks.block_of(range.last)};
  }
  if (range.first >= count) return std::nullopt;
  return Range{range.first, std::min(range.last, count - 1)};
}

// Marks the steps of a study that are conversions and delete their inputs.
std::vector<bool> deleting_steps(const specs::Plan& plan) {
  std::vector<bool> deletes;
  for (const specs::Step& step : plan.study().steps) deletes.push_back(specs::deletes_inputs(step));
  return deletes;
}

// Steps in the order in which they depend on each other.
std::vector<std::size_t> by_depth(const specs::Plan& plan) {
  std::vector<std::size_t> order(plan.steps().size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return plan.steps()[a].depth < plan.steps()[b].depth;
  });
  return order;
}

// The part of a study outside its steps that decides outputs, and each step's own part, as text: if both are
// equal in two studies, so are the bases of all of the step's arrays.
class StepTexts {
 public:
  explicit StepTexts(const specs::Plan& plan) : plan_(plan) {
    const specs::Study& study = plan.study();
    // Whatever is not known to leave all outputs as they are.
    const std::set<std::string> others = {"description", "batch",  "study",   "samples",
                                          "workers",     "merlin", "iterate", "max_disk"};
    for (const auto& [key, value] : study.expanded.entries) {
      if (!others.contains(key.text)) common_ += key.text + ":\n" + yaml::emit(value) + "\n";
    }
    common_ += study.batch.shell + "\n" + std::to_string(study.merlin) + "\n" + study.options.parameters;
    if (study.samples) {
      common_ += fmt::format("\n{} {}", study.samples->level_max_dirs, study.samples->layout_count());
      for (const auto& column : study.samples->design.columns) common_ += "\n" + column.name;
    }
    const yaml::Node* list = study.expanded.find("study");
    if (list == nullptr) return;
    for (std::size_t i = 0; i < study.steps.size() && i < list->items.size(); ++i)
      own_[study.steps[i].name] = yaml::emit(list->items[i]);
  }

  bool same(const StepTexts& other, const PlannedStep& mine, const PlannedStep& theirs) const {
    const bool simple = mine.kind == StepKind::shell && mine.arrays == theirs.arrays &&
                        mine.elements == theirs.elements && mine.sample_dependent == theirs.sample_dependent;
    return simple && common_ == other.common_ && text_of(mine.name) == other.text_of(theirs.name) &&
           !text_of(mine.name).empty() && edges_of(mine) == other.edges_of(theirs);
  }

 private:
  std::string text_of(const std::string& step) const {
    const auto at = own_.find(step);
    return at == own_.end() ? std::string() : at->second;
  }
  std::string edges_of(const PlannedStep& step) const {
    std::string text;
    for (const Edge& edge : step.edges) {
      const PlannedStep& parent = step_of(plan_, edge.parent);
      text +=
          fmt::format("{} {} {} {}\n", parent.name, parent.arrays, static_cast<int>(edge.kind), edge.block);
    }
    return text;
  }

  const specs::Plan& plan_;
  std::string common_;
  std::map<std::string, std::string> own_;
};

class Comparison {
 public:
  Comparison(const specs::Plan& from, const specs::Plan& to, const ArrayParts& sources,
             const InputsDeleted& deleted, const OutputsGone& outputs_gone)
      : from_(from),
        to_(to),
        deleted_(deleted),
        outputs_gone_(outputs_gone),
        from_deletes_(deleting_steps(from)),
        to_deletes_(deleting_steps(to)),
        from_texts_(from),
        to_texts_(to),
        stale_(to.array_count()),
        parts_(to.steps().size()) {
    result_.arrays.resize(to.array_count());
    match();
    for (const auto& [array, range] : sources) {
      if (const auto at = to_of_.find(array); at != to_of_.end()) add_own(at->second, range, "sources");
    }
  }

  Changes run() {
    for (ArrayId array = 0; array < to_.array_count(); ++array) {
      if (result_.arrays[array].from) look_at_own(array);
    }
    find_deleted();
    propagate();
    while (add_deleted_inputs()) propagate();
    add_deletions();
    summarize();
    return std::move(result_);
  }

 private:
  std::uint64_t count(ArrayId array) const { return step_of(to_, array).elements; }
  std::uint64_t old_count(ArrayId array) const {
    return step_of(from_, *result_.arrays[array].from).elements;
  }

  void match() {
    std::unordered_map<std::string, ArrayId> names;
    const bool same_names = same_shape();
    for (ArrayId array = 0; !same_names && array < from_.array_count(); ++array)
      names.emplace(from_.array_name(array), array);
    std::vector<bool> kept(from_.array_count());
    for (ArrayId array = 0; array < to_.array_count(); ++array) {
      std::optional<ArrayId> from;
      if (same_names) {
        from = array;
      } else if (const auto at = names.find(to_.array_name(array)); at != names.end()) {
        from = at->second;
      }
      if (from && step_of(from_, *from).kind != step_of(to_, array).kind) from.reset();
      result_.arrays[array].from = from;
      if (!from) continue;
      kept[*from] = true;
      to_of_[*from] = array;
    }
    for (ArrayId array = 0; array < from_.array_count(); ++array) {
      if (!kept[array]) result_.removed.push_back(array);
    }
  }

  // Arrays of equal numbers have equal names, without a look at each.
  bool same_shape() const {
    if (from_.steps().size() != to_.steps().size()) return false;
    for (std::size_t i = 0; i < from_.steps().size(); ++i) {
      if (from_.steps()[i].name != to_.steps()[i].name ||
          !to_texts_.same(from_texts_, to_.steps()[i], from_.steps()[i])) {
        const bool single =
            from_.steps()[i].arrays == 1 && to_.steps()[i].arrays == 1 &&
            from_.steps()[i].name == to_.steps()[i].name &&
            from_.array_name(from_.steps()[i].first_array) == to_.array_name(to_.steps()[i].first_array);
        if (!single) return false;
      }
    }
    return true;
  }

  void add_own(ArrayId array, Range range, const char* part) {
    const std::uint64_t both = std::min(count(array), old_count(array));
    if (both == 0 || range.first >= both) return;
    stale_[array].add(Range{range.first, std::min(range.last, both - 1)});
    result_.arrays[array].own = true;
    parts_[to_.step_of(array)].insert(part);
  }

  void look_at_own(ArrayId array) {
    const PlannedStep& step = step_of(to_, array);
    const PlannedStep& old = step_of(from_, *result_.arrays[array].from);
    const bool same_text = texts_equal(to_.step_of(array), step, old);
    const bool same_samples = same_design();
    if (same_text && same_samples) return;
    const specs::Basis is = specs::basis_of(to_, array);
    if (!same_text) {
      const auto differing = specs::differing_parts(specs::basis_of(from_, *result_.arrays[array].from), is);
      for (const std::string& part : differing)
        add_own(array, all_of(std::max<std::uint64_t>(old.elements, 1)), part.c_str());
      if (step.block_samples != old.block_samples && differing.empty())
        add_own(array, all_of(std::max<std::uint64_t>(old.elements, 1)), "shard_samples");
    }
    if (!same_samples) look_at_rows(array, step, is.columns);
  }

  bool texts_equal(std::size_t index, const PlannedStep& step, const PlannedStep& old) {
    const auto [at, is_new] = texts_equal_.try_emplace(index, false);
    if (is_new) at->second = to_texts_.same(from_texts_, step, old);
    return at->second;
  }

  bool same_design() {
    if (same_design_) return *same_design_;
    const auto& was = from_.study().samples;
    const auto& is = to_.study().samples;
    same_design_ = !was && !is;
    if (was && is)
      same_design_ = specs::to_json(was->design) == specs::to_json(is->design) &&
                     was->design.kind != specs::DesignKind::file;
    return *same_design_;
  }

  void look_at_rows(ArrayId array, const PlannedStep& step, const std::vector<std::string>& columns) {
    const bool by_block = step.kind == StepKind::convert && step.block_samples > 0;
    if ((!step.sample_dependent && !by_block) || !from_.study().samples || !to_.study().samples) return;
    const auto known = rows_.find(columns);
    const auto& rows = known != rows_.end()
                           ? known->second
                           : rows_
                                 .emplace(columns, specs::equal_rows(from_.study().samples->design,
                                                                     to_.study().samples->design, columns))
                                 .first->second;
    // The rows of both plans between the equal ones.
    const std::uint64_t both =
        std::min(from_.study().samples->design.count, to_.study().samples->design.count);
    std::uint64_t next = 0;
    const auto differ = [&](std::uint64_t first, std::uint64_t end) {
      if (first >= end) return;
      const Blocks blocks =
          specs::blocks_of(by_block ? step.block_samples : 1, by_block ? to_.block_starts() : nullptr);
      add_own(array, {blocks.block_of(first), blocks.block_of(end - 1)}, "samples");
    };
    for (const specs::RowRange& range : rows) {
      differ(next, range.first);
      next = range.last + 1;
    }
    differ(next, both);
  }

  // Finds the inputs that conversions have deleted (delete_inputs), as elements of the arrays that made them.
  void find_deleted() {
    if (!from_.study().samples) return;
    const std::uint64_t samples = from_.study().samples->design.count;
    for (ArrayId old = 0; old < from_.array_count(); ++old) {
      const PlannedStep& step = step_of(from_, old);
      if (step.block_samples == 0 || !from_deletes_[step.study_step]) continue;
      for (const Edge& edge : from_.edges(old)) {
        const auto parent = to_of_.find(edge.parent);
        if (edge.kind != EdgeKind::block || parent == to_of_.end()) continue;
        for (Element block = 0; block < step.elements; ++block) {
          if (deleted_ && !deleted_(old, block)) continue;
          const BlockRange items = edge.blocks().items(block, samples);
          gone_[parent->second].add(Range{items.first, items.end - 1});
        }
      }
    }
  }

  // It must be made again for what reads it and runs (again). True if something was added.
  bool add_deleted_inputs() {
    bool added = false;
    for (ArrayId array = 0; array < to_.array_count(); ++array) {
      if (result_.arrays[array].open.empty() || (gone_.empty() && !outputs_gone_)) continue;
      const std::vector<Edge> edges = to_.edges(array);
      for (const Edge& edge : edges) look_for(edge.parent);
      if (runs_after_deletion(array, edges)) continue;
      for (const Edge& edge : edges) {
        const auto gone = gone_.find(edge.parent);
        if (gone == gone_.end()) continue;
        std::vector<Range> again;
        result_.arrays[array].open.for_each([&](Range range) {
          gone->second.for_each_in(read_by(edge, range), [&](Range part) { again.push_back(part); });
        });
        const std::uint64_t before = stale_[edge.parent].size();
        for (const Range& part : again) add_own(edge.parent, part, kDeleted);
        added = added || stale_[edge.parent].size() > before;
      }
    }
    return added;
  }

  // Checks if its outputs are gone as a whole.
  void look_for(ArrayId array) {
    const auto& from = result_.arrays[array].from;
    if (!outputs_gone_ || !from || !looked_for_.insert(array).second || old_count(array) == 0) return;
    if (outputs_gone_(*from)) gone_[array].add(all_of(old_count(array)));
  }

  // Blocks that are whole run again where their conversion deletes its inputs from now on. Their shards stay
  // as they are, so that nothing follows.
  void add_deletions() {
    for (ArrayId array = 0; array < to_.array_count(); ++array) {
      ArrayChange& change = result_.arrays[array];
      const PlannedStep& step = step_of(to_, array);
      if (!change.from || step.block_samples == 0 || !to_deletes_[step.study_step]) continue;
      if (from_deletes_[step_of(from_, *change.from).study_step]) continue;
      const std::uint64_t both = std::min(step.elements, old_count(array));
      const std::uint64_t before = change.open.size();
      if (both > 0) change.open.add(all_of(both));
      change.deletes = change.open.size() - before;
    }
  }

  Range read_by(const Edge& edge, Range range) const {
    if (edge.kind == EdgeKind::element) return range;
    if (edge.kind == EdgeKind::all) return {0, std::max<std::uint64_t>(count(edge.parent), 1) - 1};
    const std::uint64_t items = count(edge.parent);
    const Blocks blocks = edge.blocks();
    return {blocks.items(range.first, items).first,
            std::max<std::uint64_t>(blocks.items(range.last, items).end, 1) - 1};
  }

  // A step that waits for the conversion, too, does not read what that deletes.
  bool runs_after_deletion(ArrayId array, const std::vector<Edge>& edges) const {
    return std::any_of(edges.begin(), edges.end(), [&](const Edge& edge) {
      const PlannedStep& parent = step_of(to_, edge.parent);
      return step_of(to_, array).study_step != parent.study_step && to_deletes_[parent.study_step];
    });
  }

  void propagate() {
    for (const std::size_t index : by_depth(to_)) {
      const PlannedStep& step = to_.steps()[index];
      for (ArrayId array = step.first_array; array < step.first_array + step.arrays; ++array)
        settle(array, step);
    }
  }

  void settle(ArrayId array, const PlannedStep& step) {
    ArrayChange& change = result_.arrays[array];
    change.open = {};
    if (step.elements == 0) return;
    if (!change.from) {
      change.open.add(all_of(step.elements));
      return;
    }
    const std::uint64_t was = old_count(array);
    const std::uint64_t both = std::min(was, step.elements);
    for (const Edge& edge : to_.edges(array)) take_from(edge, array, step.elements);
    widen_to_bundles(array, step);
    stale_[array].for_each([&](Range range) {
      if (range.first < both) change.open.add(Range{range.first, std::min(range.last, both - 1)});
    });
    change.stale = change.open.size();
    if (step.elements > was) change.open.add(Range{was, step.elements - 1});
  }

  void take_from(const Edge& edge, ArrayId array, std::uint64_t elements) {
    const ArrayChange& parent = result_.arrays[edge.parent];
    const auto add = [&](Range range) {
      if (const auto part = below(edge, range, elements)) stale_[array].add(*part);
    };
    parent.open.for_each(add);
    if (!parent.from) return;
    const std::uint64_t was = old_count(edge.parent);
    const std::uint64_t is = count(edge.parent);
    if (was <= is) return;
    // The parent has lost elements: affects readers of all of them, and the block that lost some.
    if (edge.kind == EdgeKind::all) add({0, 0});
    if (edge.kind == EdgeKind::block && edge.blocks().around(is, is + 1).first != is) add({is, is});
  }

  // Samples of one process share their files.
  void widen_to_bundles(ArrayId array, const PlannedStep& step) {
    if (step.bundle <= 1 || stale_[array].empty()) return;
    std::vector<Range> wide;
    stale_[array].for_each([&](Range range) {
      const Blocks bundles = specs::blocks_of(step.bundle, to_.block_starts());
      wide.push_back({bundles.around(range.first, range.first + 1).first,
                      bundles.around(range.last, range.last + step.bundle).end - 1});
    });
    for (const Range& range : wide) stale_[array].add(range);
  }

  void summarize() {
    for (std::size_t i = 0; i < to_.steps().size(); ++i) {
      const PlannedStep& step = to_.steps()[i];
      StepChange summary;
      summary.step = step.name;
      summary.parts.assign(parts_[i].begin(), parts_[i].end());
      bool any_old = false;
      for (ArrayId array = step.first_array; array < step.first_array + step.arrays; ++array) {
        const ArrayChange& change = result_.arrays[array];
        const std::uint64_t was = change.from ? old_count(array) : 0;
        any_old = any_old || change.from;
        summary.stale += change.stale;
        summary.more += change.open.size() - change.stale - change.deletes;
        summary.deletes += change.deletes;
        summary.gone += was > step.elements ? was - step.elements : 0;
        summary.elements += was;
      }
      if (summary.stale + summary.more + summary.gone + summary.deletes == 0) continue;
      summary.kind = !any_old                 ? StepChange::Kind::added
                     : !summary.parts.empty() ? StepChange::Kind::changed
                     : summary.stale > 0      ? StepChange::Kind::follows
                                              : StepChange::Kind::grown;
      result_.steps.push_back(std::move(summary));
    }
    std::set<std::string> names;
    for (const PlannedStep& step : to_.steps()) names.insert(step.name);
    std::map<std::string, std::uint64_t> gone;
    std::map<std::string, ArrayId> first;
    for (const ArrayId array : result_.removed) {
      gone[step_of(from_, array).name] += step_of(from_, array).elements;
      first.try_emplace(step_of(from_, array).name, array);
    }
    for (const auto& [name, elements] : gone) {
      const auto at =
          std::find_if(result_.steps.begin(), result_.steps.end(),
                       [&, step = name](const StepChange& change) { return change.step == step; });
      if (at != result_.steps.end()) {
        at->gone += elements;
        continue;
      }
      StepChange summary;
      summary.step = name;
      summary.kind = names.contains(name) ? StepChange::Kind::grown : StepChange::Kind::removed;
      summary.gone = elements;
      if (summary.kind == StepChange::Kind::removed) summary.directory = directory_of(first.at(name));
      result_.steps.push_back(std::move(summary));
    }
  }

  // The folder of a step of the old plan: all of its combinations.
  std::string directory_of(ArrayId array) const {
    const std::filesystem::path workspace = from_.task_template(array).workspace;
    const std::filesystem::path below = workspace.lexically_relative(from_.campaign());
    return below.empty() || *below.begin() == ".." ? workspace.string()
                                                   : (from_.campaign() / *below.begin()).string();
  }

  const specs::Plan& from_;
  const specs::Plan& to_;
  const InputsDeleted& deleted_;
  const OutputsGone& outputs_gone_;
  std::set<ArrayId> looked_for_;
  std::vector<bool> from_deletes_, to_deletes_;  // steps of the studies
  std::map<ArrayId, IntervalSet> gone_;          // deleted elements, by array of the new plan
  StepTexts from_texts_, to_texts_;
  Changes result_;
  std::unordered_map<ArrayId, ArrayId> to_of_;  // by array of the old plan
  std::vector<IntervalSet> stale_;
  std::vector<std::set<std::string>> parts_;  // by step of the new plan
  std::map<std::vector<std::string>, std::vector<specs::RowRange>> rows_;
  std::optional<bool> same_design_;
  std::map<std::size_t, bool> texts_equal_;  // by step of the new plan
};

std::string number(std::uint64_t count) {
  return text::format_count(count);
}

std::string line_of(const StepChange& change, bool keep_old) {
  using Kind = StepChange::Kind;
  std::vector<std::string> words;
  if (change.kind == Kind::added) return fmt::format("{}: new, {} to run", change.step, number(change.more));
  if (change.kind == Kind::removed)
    return fmt::format(
        "{}: removed; its {} {}", change.step, change.gone == 1 ? "output" : number(change.gone) + " outputs",
        keep_old ? "are kept with the replaced ones"
                 : fmt::format("stay{}; delete {} with: rm -r {}", change.gone == 1 ? "s" : "",
                               change.gone == 1 ? "it" : "them", text::shell_quote(change.directory)));
  if (change.parts == std::vector<std::string>{kDeleted} && change.more + change.gone == 0)
    return fmt::format("{}: raw outputs were deleted: {} {} again", change.step, number(change.stale),
                       change.stale == 1 ? "simulation runs" : "simulations run");
  std::vector<std::string> changed = change.parts;
  if (std::erase(changed, kDeleted) > 0) words.emplace_back("raw outputs were deleted");
  if (!changed.empty()) words.insert(words.begin(), text::join(changed, ", ") + " changed");
  if (change.kind == Kind::applies && change.gone == 0) words.emplace_back("nothing runs again");
  if (change.stale > 0)
    words.push_back(fmt::format("{} of {} stale", number(change.stale), number(change.elements)));
  if (change.more > 0) words.push_back(number(change.more) + " more to run");
  if (change.gone > 0) words.push_back(number(change.gone) + " no longer part of it");
  if (change.deletes > 0)
    words.push_back(fmt::format("delete_inputs added, {} {} what {} made of", number(change.deletes),
                                change.deletes == 1 ? "block deletes" : "blocks delete",
                                change.deletes == 1 ? "it was" : "they were"));
  return change.step + ": " + text::join(words, ", ");
}

}  // namespace

bool Changes::same_tasks() const {
  return removed.empty() && std::all_of(steps.begin(), steps.end(), [](const StepChange& change) {
           return change.stale + change.more + change.gone + change.deletes == 0;
         });
}

Changes compare(const specs::Plan& from, const specs::Plan& to, const ArrayParts& sources,
                const InputsDeleted& deleted, const OutputsGone& gone) {
  return Comparison(from, to, sources, deleted, gone).run();
}

Changes touched(const specs::Plan& from, Changes changes) {
  for (ArrayChange& array : changes.arrays) {
    const std::uint64_t had = array.from ? step_of(from, *array.from).elements : 0;
    if (had > 0) array.open.remove(all_of(had));
    array.stale = array.deletes = 0;
  }
  for (StepChange& step : changes.steps) {
    const bool adds = step.more > 0 || step.kind == StepChange::Kind::added;
    if (!adds && step.kind != StepChange::Kind::removed) step.kind = StepChange::Kind::applies;
    step.stale = step.deletes = 0;
  }
  return changes;
}

Changes again(const specs::Plan& plan, const ArrayParts& parts, const InputsDeleted& deleted,
              const OutputsGone& gone) {
  return Comparison(plan, plan, parts, deleted, gone).run();
}

std::vector<std::string> lines_of(const Changes& changes, bool keep_old) {
  std::vector<std::string> lines, follow;
  for (const StepChange& change : changes.steps) {
    const bool whole = change.kind == StepChange::Kind::follows && change.stale == change.elements &&
                       change.more + change.gone + change.deletes == 0;
    whole ? follow.push_back(change.step) : lines.push_back(line_of(change, keep_old));
  }
  if (!follow.empty())
    lines.push_back(fmt::format("{} follow{}", text::join(follow, ", "), follow.size() == 1 ? "s" : ""));
  return lines;
}

}  // namespace wflow::engine
