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

WFLOW_LAYOUT(Lease, &T::id, &T::array, &T::first, &T::count, &T::attempt, &T::restart, &T::priority);
WFLOW_LAYOUT(Outcome, &T::lease, &T::array, &T::element, &T::attempt, &T::reason, &T::exit_code,
             &T::started_s, &T::duration_s, &T::detail);
WFLOW_LAYOUT(ProcessIdentity, &T::host, &T::boot, &T::namespace_id, &T::pid, &T::start_ticks);
WFLOW_LAYOUT(DoneRun, &T::lease, &T::array, &T::first, &T::count, &T::attempt, &T::duration_sum_s,
             &T::duration_square_sum, &T::last_end_s);
WFLOW_LAYOUT(TaskEvent, &T::array, &T::element, &T::attempt, &T::time_s, &T::line);
WFLOW_LAYOUT(RunningElement, &T::array, &T::element, &T::started_s);
WFLOW_LAYOUT(specs::Piece, &T::kind, &T::text, &T::column);
WFLOW_LAYOUT(specs::Resources, &T::cores, &T::gpus, &T::memory_bytes, &T::nodes, &T::procs);
WFLOW_LAYOUT(specs::DeclaredOutput, &T::file, &T::dataset, &T::shape, &T::finite);
WFLOW_LAYOUT(specs::TaskTemplate, &T::array, &T::step, &T::label, &T::kind, &T::command, &T::restart,
             &T::shell, &T::shell_given, &T::settings, &T::workspace, &T::script, &T::suffix, &T::campaign,
             &T::sample_dependent, &T::sample_count, &T::level_max_dirs, &T::resources, &T::timeout_s,
             &T::block_samples, &T::source_workspace, &T::environment, &T::bundle, &T::output, &T::outputs);

WFLOW_LAYOUT(Hello, &T::protocol, &T::version, &T::campaign, &T::worker, &T::group, &T::guardian, &T::agent,
             &T::started_by, &T::cores, &T::gpus, &T::memory_bytes, &T::held);
WFLOW_LAYOUT(Results, &T::sequence, &T::done, &T::outcomes, &T::events);
WFLOW_LAYOUT(Heartbeat, &T::number, &T::queued, &T::running);
WFLOW_LAYOUT(Goodbye, &T::reason);
WFLOW_LAYOUT(Welcome, &T::campaign_directory, &T::sample_design, &T::heartbeat_s, &T::lost_s);
WFLOW_LAYOUT(Refuse, &T::reason);
WFLOW_LAYOUT(Templates, &T::templates);
WFLOW_LAYOUT(Leases, &T::leases);
WFLOW_LAYOUT(Acknowledge, &T::sequence);
WFLOW_LAYOUT(Revoke, &T::leases, &T::all, &T::kill_running);
WFLOW_LAYOUT(Returned, &T::leases);
WFLOW_LAYOUT(Query, &T::verb, &T::arguments);
WFLOW_LAYOUT(Answer, &T::ok, &T::body);
WFLOW_LAYOUT(Pulse, &T::heartbeat);

template <>
struct Layout<Drain> {
  static constexpr auto fields = std::tuple{};
};
template <>
struct Layout<Identify> {
  static constexpr auto fields = std::tuple{};
};

#undef WFLOW_LAYOUT

template <class T>
concept Described = requires {
  Layout<T>::fields;
};

// The last legal value of each enumeration.
template <class E>
inline constexpr E kLast = E{};
template <>
inline constexpr EndReason kLast<EndReason> = EndReason::cancelled;
template <>
inline constexpr specs::Piece::Kind kLast<specs::Piece::Kind> = specs::Piece::Kind::sample_count;
template <>
inline constexpr specs::StepKind kLast<specs::StepKind> = specs::StepKind::plugin;
template <>
inline constexpr specs::OutputMode kLast<specs::OutputMode> = specs::OutputMode::packed;

}  // namespace wflow::engine::wire
