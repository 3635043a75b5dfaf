// SPDX-License-Identifier: Apache-2.0
// One message of every kind with no field at its default: for tests.
#pragma once

#include <vector>

#include "engine/wire/messages.h"

namespace wflow::engine::wire {

inline specs::TaskTemplate sample_template() {
  specs::TaskTemplate t;
  t.array = 7;
  t.step = "simulate";
  t.label = "OMEGA.0.3";
  t.kind = specs::StepKind::convert;
  t.command = {{specs::Piece::Kind::literal, "echo ", 0}, {specs::Piece::Kind::column, "", 3}};
  t.restart = {{specs::Piece::Kind::sample_path, "", 0}};
  t.shell = "/bin/bash";
  t.settings = "output: x\n";
  t.workspace = "/campaign/simulate";
  t.script = "simulate_OMEGA.0.3";
  t.campaign = "/campaign";
  t.sample_dependent = true;
  t.sample_count = 1'000'000'000'000;
  t.level_max_dirs = 100;
  t.resources = {4, 1, std::int64_t{1} << 40, 2, 8};
  t.timeout_s = 12.5;
  t.block_samples = 64;
  t.source_workspace = "/campaign/other";
  t.environment = {{"KEY", "value with \n and \xff"}, {"EMPTY", ""}};
  t.shell_given = true;
  t.suffix = ".slurm";
  t.bundle = 4096;
  t.output = specs::OutputMode::packed;
  t.outputs = {{{{specs::Piece::Kind::literal, "u.h5", 0}}, "density", {64, 64, 64}, true}};
  return t;
}

inline std::vector<Message> sample_messages() {
  const Lease lease{1ULL << 63, 7, 100, 1ULL << 40, 2, true, -5};
  const Outcome outcome{9, 7, 12, 1, EndReason::timed_out, -15, 1.7e9, 0.25, "no space left\n"};
  return {
      Hello{kProtocol,
            "0.1.0",
            "token",
            "host-1-abc",
            "host",
            "cpu",
            4711,
            64,
            8,
            std::int64_t{1} << 38,
            {lease}},
      Results{3, {{9, 7, 0, 1000, 12.5, 0.75, 1.7e9}}, {outcome}, {{7, 12, 1, 1.7e9, R"({"type":"note"})"}}},
      Heartbeat{200, {{7, 12, 1.7e9}}},
      Goodbye{"drained"},
      Welcome{"/campaign", R"({"kind":"sobol"})", 0.5, 30},
      Refuse{"another campaign"},
      Templates{{sample_template(), {}}},
      Leases{{lease, {}}},
      Acknowledge{1ULL << 50},
      Revoke{{1, 2, 1ULL << 60}, true},
      Drain{},
      Pulse{},
      Returned{{lease}},
      Query{"status", "{}"},
      Answer{false, std::string(100'000, 'x')},
  };
}

}  // namespace wflow::engine::wire
