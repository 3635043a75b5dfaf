// SPDX-License-Identifier: Apache-2.0
// How the coordinator sees a worker, and which moves between these states are legal.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace wflow::engine {

//   awaited ──▶ joining ──▶ working ──▶ draining ──▶ gone
//      │           │           │           │          ▲
//      └───────────┴───────────┴───────────┴─▶ ending ┘
enum class WorkerState : std::uint8_t {
  awaited,  // of an earlier coordinator: it lives, or may live
  joining,  // it has said Hello; its row is not durable yet, so that it gets no lease
  working,
  draining,  // finishes what runs
  ending,    // its process has ended or its fence has passed; its journal is not read yet
  gone,
};
inline constexpr std::size_t kWorkerStates = 6;

constexpr std::string_view name_of(WorkerState state) {
  constexpr std::string_view kNames[kWorkerStates] = {"awaited",  "joining", "working",
                                                      "draining", "ending",  "gone"};
  return kNames[static_cast<std::size_t>(state)];
}

// The table of legal moves. A worker that is `ending` because it was silent may say Hello again.
constexpr bool may_move(WorkerState from, WorkerState to) {
  using enum WorkerState;
  constexpr std::array<std::array<bool, kWorkerStates>, kWorkerStates> kMoves = {{
      // awaited, joining, working, draining, ending, gone
      {false, true, false, false, true, true},    // awaited
      {false, true, true, true, true, true},      // joining
      {false, false, true, true, true, true},     // working
      {false, false, true, true, true, true},     // draining
      {false, true, true, true, true, true},      // ending
      {false, false, false, false, false, false}  // gone
  }};
  return kMoves[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

}  // namespace wflow::engine
