// SPDX-License-Identifier: Apache-2.0
// The fields of every message in the order in which they travel: one list serves writing and reading.
// Changing any of them changes the protocol: raise kProtocol and docs/formats/wire.md.
#pragma once

#include <tuple>

#include "engine/wire/messages.h"

namespace wflow::engine::wire {

template <class T>
struct Layout;

#define WFLOW_LAYOUT(type, ...)                             \
  template <>                                               \
  struct Layout<type> {                                     \
    using T = type;                                         \
    static constexpr auto fields = std::tuple{__VA_ARGS__}; \
  }

WFLOW_LAYOUT(LeftOut, &T::first, &T::count, &T::reason);
WFLOW_LAYOUT(Lease, &T::id, &T::array, &T::first, &T::count, &T::attempt, &T::restart, &T::priority,
             &T::memory_bytes, &T::uncharged, &T::failures, &T::crashes, &T::nodes, &T::trust_from,
             &T::left_out);
WFLOW_LAYOUT(Outcome, &T::lease, &T::array, &T::element, &T::attempt, &T::reason, &T::exit_code,
             &T::started_s, &T::duration_s, &T::detail);
WFLOW_LAYOUT(ProcessIdentity, &T::host, &T::boot, &T::namespace_id, &T::pid, &T::start_ticks);
WFLOW_LAYOUT(DoneRun, &T::lease, &T::array, &T::first, &T::count, &T::attempt, &T::duration_sum_s,
             &T::duration_square_sum, &T::last_end_s);
WFLOW_LAYOUT(TaskUsage, &T::lease, &T::array, &T::first, &T::count, &T::attempt, &T::started_s,
             &T::duration_s, &T::cpu_s, &T::peak_bytes, &T::read_bytes, &T::written_bytes);
WFLOW_LAYOUT(Metric, &T::name, &T::epoch, &T::step, &T::value);
WFLOW_LAYOUT(Progress, &T::done, &T::total, &T::unit);
WFLOW_LAYOUT(Note, &T::text);
WFLOW_LAYOUT(Artifact, &T::kind, &T::path);
WFLOW_LAYOUT(Checkpoint, &T::path, &T::hash, &T::epoch, &T::step);
WFLOW_LAYOUT(Submission, &T::kind, &T::id, &T::spec, &T::options, &T::directory);
WFLOW_LAYOUT(MissingSample, &T::sample, &T::reason);
WFLOW_LAYOUT(MissingReason, &T::reason, &T::samples, &T::first);
WFLOW_LAYOUT(Converted, &T::samples, &T::missing);
WFLOW_LAYOUT(OtherEvent, &T::type, &T::json);
WFLOW_LAYOUT(TaskEvent, &T::array, &T::element, &T::attempt, &T::time_s, &T::body);
WFLOW_LAYOUT(RunningElement, &T::array, &T::element, &T::started_s, &T::memory_bytes);
WFLOW_LAYOUT(specs::Piece, &T::kind, &T::text, &T::column);
WFLOW_LAYOUT(specs::Resources, &T::cores, &T::gpus, &T::memory_bytes, &T::nodes, &T::procs, &T::min_nodes);
WFLOW_LAYOUT(specs::DeclaredOutput, &T::file, &T::dataset, &T::shape, &T::finite);
WFLOW_LAYOUT(specs::SampleColumn, &T::name, &T::low, &T::high, &T::log, &T::integer, &T::values);
WFLOW_LAYOUT(specs::SampleDesign, &T::kind, &T::count, &T::seed, &T::columns, &T::file, &T::header,
             &T::checksum, &T::grown, &T::parts);
WFLOW_LAYOUT(specs::PluginBlock, &T::library, &T::symbol, &T::bundle, &T::parameters, &T::check_finite,
             &T::seed, &T::posterior, &T::command, &T::directory, &T::samples);
WFLOW_LAYOUT(yaml::Node, &T::kind, &T::quoted, &T::text, &T::items, &T::entries);
WFLOW_LAYOUT(specs::UnreadBlock, &T::block, &T::errors);
WFLOW_LAYOUT(specs::TaskTemplate, &T::array, &T::step, &T::label, &T::kind, &T::command, &T::restart,
             &T::shell, &T::shell_given, &T::settings, &T::workspace, &T::script, &T::suffix, &T::campaign,
             &T::sample_dependent, &T::sample_count, &T::level_max_dirs, &T::layout_samples, &T::resources,
             &T::timeout_s, &T::stall_timeout_s, &T::trust_markers, &T::block_samples, &T::source_workspace,
             &T::environment, &T::sample_starts, &T::bundle, &T::output, &T::outputs);

WFLOW_LAYOUT(Hello, &T::protocol, &T::version, &T::campaign, &T::worker, &T::group, &T::guardian, &T::agent,
             &T::started_by, &T::cores, &T::gpus, &T::memory_bytes, &T::allocation, &T::node, &T::incarnation,
             &T::left_s, &T::held);
WFLOW_LAYOUT(Results, &T::sequence, &T::done, &T::outcomes, &T::events, &T::usage);
WFLOW_LAYOUT(Heartbeat, &T::number, &T::queued, &T::running, &T::left_s);
WFLOW_LAYOUT(Goodbye, &T::reason);
WFLOW_LAYOUT(Welcome, &T::campaign_directory, &T::samples, &T::heartbeat_s, &T::lost_s);
WFLOW_LAYOUT(Refuse, &T::reason);
WFLOW_LAYOUT(Templates, &T::templates);
WFLOW_LAYOUT(Leases, &T::leases);
WFLOW_LAYOUT(Acknowledge, &T::sequence);
WFLOW_LAYOUT(Revoke, &T::leases, &T::all, &T::kill_running);
WFLOW_LAYOUT(Returned, &T::leases);
WFLOW_LAYOUT(Pulse, &T::heartbeat, &T::gangs, &T::gather_s, &T::watched);

WFLOW_LAYOUT(Part, &T::array, &T::first, &T::last);
WFLOW_LAYOUT(Selection, &T::step, &T::ranged, &T::first, &T::last, &T::by_exit_code, &T::exit_code,
             &T::chosen, &T::parts);
WFLOW_LAYOUT(TaskPlace, &T::array, &T::element);
WFLOW_LAYOUT(TasksRequest, &T::from, &T::last_array, &T::first, &T::last, &T::states, &T::missing);
WFLOW_LAYOUT(ExplainRequest, &T::task);
WFLOW_LAYOUT(UsageRequest, &T::array, &T::first, &T::last, &T::limit);
WFLOW_LAYOUT(WorkersRequest, &T::from);
WFLOW_LAYOUT(WatchRequest, &T::points, &T::workers, &T::running);
WFLOW_LAYOUT(RetryableRequest, &T::tasks);
WFLOW_LAYOUT(SnapshotRequest, &T::path);
WFLOW_LAYOUT(PauseRequest, &T::pause);
WFLOW_LAYOUT(RetryRequest, &T::tasks);
WFLOW_LAYOUT(CancelRequest, &T::tasks, &T::kill);
WFLOW_LAYOUT(AllocationsCommand, &T::verb, &T::name, &T::count);
WFLOW_LAYOUT(Query, &T::request);

WFLOW_LAYOUT(Refusal, &T::code, &T::sentence);
WFLOW_LAYOUT(Done, &T::count, &T::running);
WFLOW_LAYOUT(FailureView, &T::number, &T::task, &T::step, &T::array, &T::element, &T::attempt, &T::reason,
             &T::worker, &T::time_s, &T::duration_s, &T::final, &T::detail);
WFLOW_LAYOUT(MetricPoint, &T::epoch, &T::step, &T::value);
WFLOW_LAYOUT(MetricCurve, &T::array, &T::element, &T::task, &T::name, &T::points);
WFLOW_LAYOUT(Spread, &T::median, &T::p95, &T::most, &T::sum);
WFLOW_LAYOUT(UsageView, &T::executions, &T::duration_s, &T::cpu_s, &T::peak_bytes, &T::read_bytes,
             &T::written_bytes);
WFLOW_LAYOUT(StepStatus, &T::name, &T::kind, &T::arrays, &T::elements, &T::counts, &T::mean_s,
             &T::deviation_s, &T::rate_per_s, &T::left_s, &T::progress_done, &T::progress_total,
             &T::progress_unit, &T::usage, &T::missing, &T::samples, &T::held);
WFLOW_LAYOUT(SlowView, &T::task, &T::worker, &T::running_s, &T::usual_s);
WFLOW_LAYOUT(WorkerStatus, &T::id, &T::host, &T::cores, &T::running, &T::leased, &T::silent_s, &T::draining,
             &T::ended);
WFLOW_LAYOUT(HistoryView, &T::number, &T::time_s, &T::kind, &T::text);
WFLOW_LAYOUT(ArtifactView, &T::step, &T::kind, &T::path);
WFLOW_LAYOUT(FollowupView, &T::kind, &T::iteration, &T::spec, &T::directory, &T::state, &T::handed_to,
             &T::elements, &T::ended, &T::failed);
WFLOW_LAYOUT(AllocationView, &T::token, &T::id, &T::pool, &T::scheduler, &T::state, &T::nodes, &T::walltime_s,
             &T::created_s, &T::started_s, &T::ends_s, &T::ended_s, &T::workers, &T::leaving, &T::reason,
             &T::never_clears, &T::node_names);
WFLOW_LAYOUT(PoolView, &T::name, &T::scheduler, &T::nodes, &T::slots, &T::min, &T::max, &T::walltime_s,
             &T::used_node_h, &T::left_node_h, &T::ends_s, &T::more, &T::gave_up);
WFLOW_LAYOUT(AllocationsAnswer, &T::allocations, &T::allocations_total, &T::pools, &T::excluded_nodes);
WFLOW_LAYOUT(RefusedView, &T::connections, &T::other_keys, &T::messages);
WFLOW_LAYOUT(StatusAnswer, &T::name, &T::directory, &T::state, &T::coordinator, &T::started_s, &T::elapsed_s,
             &T::time_s, &T::steps, &T::workers, &T::workers_total, &T::failures, &T::last_failure,
             &T::metrics, &T::artifacts, &T::artifacts_total, &T::history, &T::followups, &T::iterations,
             &T::allocations, &T::refused, &T::slow, &T::slow_total);
WFLOW_LAYOUT(MissingTask, &T::array, &T::element, &T::reason);
WFLOW_LAYOUT(TaskRun, &T::array, &T::first, &T::last, &T::state);
WFLOW_LAYOUT(TaskRecord, &T::array, &T::element, &T::executions, &T::exit_code, &T::reason, &T::worker,
             &T::started_s, &T::duration_s, &T::message);
WFLOW_LAYOUT(TaskLease, &T::array, &T::first, &T::last, &T::worker);
WFLOW_LAYOUT(RunningTask, &T::array, &T::element, &T::started_s);
WFLOW_LAYOUT(TasksAnswer, &T::runs, &T::records, &T::leases, &T::running, &T::missing, &T::next);
WFLOW_LAYOUT(ParentView, &T::array, &T::needed, &T::counts, &T::open, &T::ended_badly);
WFLOW_LAYOUT(ExecutionView, &T::attempt, &T::reason, &T::worker, &T::host, &T::started_s, &T::duration_s,
             &T::final, &T::detail, &T::worker_ended_s, &T::worker_reason);
WFLOW_LAYOUT(UsedView, &T::usage, &T::worker);
WFLOW_LAYOUT(ExplainAnswer, &T::task, &T::step, &T::state, &T::paused, &T::worker, &T::running_since_s,
             &T::parents, &T::parents_total, &T::executions, &T::executions_total, &T::used, &T::missing,
             &T::waits_for);
WFLOW_LAYOUT(WorkerView, &T::id, &T::host, &T::group, &T::pid, &T::cores, &T::gpus, &T::joined_s, &T::ended_s,
             &T::reason, &T::failures, &T::state, &T::leased, &T::running);
WFLOW_LAYOUT(WorkersAnswer, &T::workers, &T::next);
WFLOW_LAYOUT(UsageAnswer, &T::used, &T::next);
WFLOW_LAYOUT(StepSketches, &T::step, &T::body);
WFLOW_LAYOUT(LostTime, &T::step, &T::reason, &T::executions, &T::seconds);
WFLOW_LAYOUT(UsageSummary, &T::steps, &T::lost);
WFLOW_LAYOUT(RunningView, &T::array, &T::element, &T::task, &T::worker, &T::started_s, &T::memory_bytes);
WFLOW_LAYOUT(CheckpointView, &T::array, &T::element, &T::epoch, &T::step, &T::time_s, &T::path);
WFLOW_LAYOUT(WatchAnswer, &T::status, &T::running, &T::running_total, &T::checkpoints);
WFLOW_LAYOUT(Answer, &T::body);

#define WFLOW_EMPTY_LAYOUT(type)                 \
  template <>                                    \
  struct Layout<type> {                          \
    static constexpr auto fields = std::tuple{}; \
  }

WFLOW_EMPTY_LAYOUT(std::monostate);
WFLOW_EMPTY_LAYOUT(Convergence);
WFLOW_EMPTY_LAYOUT(Drain);
WFLOW_EMPTY_LAYOUT(Identify);
WFLOW_EMPTY_LAYOUT(AllocationsRequest);
WFLOW_EMPTY_LAYOUT(StatusRequest);
WFLOW_EMPTY_LAYOUT(UsageSummaryRequest);
WFLOW_EMPTY_LAYOUT(DrainRequest);
WFLOW_EMPTY_LAYOUT(StopRequest);

#undef WFLOW_EMPTY_LAYOUT

#undef WFLOW_LAYOUT

template <class T>
concept Described = requires {
  Layout<T>::fields;
};

// The last legal value of each enumeration.
template <class E>
inline constexpr E kLast = E{};
template <>
inline constexpr CampaignState kLast<CampaignState> = CampaignState::interrupted;
template <>
inline constexpr FollowupState kLast<FollowupState> = FollowupState::handed_over;
template <>
inline constexpr ElementState kLast<ElementState> = ElementState::cancelled;
template <>
inline constexpr WorkerViewState kLast<WorkerViewState> = WorkerViewState::unknown;
template <>
inline constexpr AllocationsVerb kLast<AllocationsVerb> = AllocationsVerb::drain;
template <>
inline constexpr ExitCode kLast<ExitCode> = ExitCode::internal;
template <>
inline constexpr EndReason kLast<EndReason> = engine::kLastEndReason;
template <>
inline constexpr specs::Piece::Kind kLast<specs::Piece::Kind> = specs::Piece::Kind::quoted_column;
template <>
inline constexpr specs::StepKind kLast<specs::StepKind> = specs::StepKind::propose;
template <>
inline constexpr yaml::Kind kLast<yaml::Kind> = yaml::Kind::map;
template <>
inline constexpr specs::DesignKind kLast<specs::DesignKind> = specs::DesignKind::parts;
template <>
inline constexpr specs::OutputMode kLast<specs::OutputMode> = specs::OutputMode::packed;

}  // namespace wflow::engine::wire
