// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/world.h"

#include <limits>

#include "engine/query/selection.h"

namespace wflow::simulation {

void Users::send(wire::Message message) {
  if (!around_.endpoint) return;
  const std::string host = around_.hosts[draw_.below(around_.hosts.size())].name;
  const ConnectionId connection = around_.network.connect(*this, host, around_.endpoint->listener);
  if (std::holds_alternative<wire::Query>(message)) waiting_[connection] = around_.endpoint->listener;
  around_.network.send_to_server(connection, std::move(message));
}

void Users::connection_lost(ConnectionId connection) {
  waiting_.erase(connection);
}

void Users::receive(ConnectionId connection, wire::Message message) {
  if (!std::holds_alternative<wire::Answer>(message) || waiting_.erase(connection) == 0) return;
  around_.network.close(connection);
}

std::size_t Users::unanswered(std::uint64_t listener) const {
  std::size_t count = 0;
  for (const auto& [connection, asked] : waiting_) count += asked == listener ? 1 : 0;
  return count;
}

void Users::ask() {
  around_.faults.count(Fault::queried);
  switch (draw_.below(3)) {
    case 0:
      return send(wire::Query{wire::StatusRequest{}});
    case 1:
      return send(wire::Query{wire::TasksRequest{{}, 100, 0, 1000, ~0U}});
    default:
      return send(wire::Query{wire::WorkersRequest{}});
  }
}

void Users::pause(bool pause) {
  if (pause) around_.faults.count(Fault::paused);
  around_.trace.line("users", "{}", pause ? "pause" : "go on");
  send(wire::Query{wire::PauseRequest{pause}});
}

wire::Selection Users::some_tasks() {
  wire::Selection selection;
  const auto& steps = around_.study.plan.steps();
  const auto& step = steps[draw_.below(steps.size())];
  if (draw_.chance(0.8)) selection.step = step.name;
  selection.ranged = draw_.chance(0.5);
  selection.first = draw_.below(step.elements);
  selection.last = selection.first + draw_.below(step.elements - selection.first);
  return selection;
}

void Users::retry() {
  around_.faults.count(Fault::retried);
  around_.trace.line("users", "retry");
  send(wire::Query{wire::RetryRequest{some_tasks()}});
}

void Users::cancel(bool kill) {
  around_.faults.count(kill ? Fault::cancelled_running : Fault::cancelled);
  wire::CancelRequest request{some_tasks(), kill};
  around_.trace.line("users", "cancel {} {}..{}{}", request.tasks.step, request.tasks.first,
                     request.tasks.last, kill ? ", kill" : "");
  for (const auto& [array, range] : engine::parts_named(around_.study.plan, request.tasks))
    around_.history.cancel_asked(array, range);
  send(wire::Query{std::move(request)});
}

void Users::drain() {
  around_.faults.count(Fault::drained);
  around_.trace.line("users", "drain");
  if (draw_.chance(0.5)) return send(wire::Query{wire::DrainRequest{}});
  send(wire::Query{wire::StopRequest{}});
}

void Users::send_strange() {
  around_.faults.count(Fault::strange_message);
  constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();
  const wire::Lease odd{kHuge, 4000000000U, kHuge - 1, kHuge, 77, true, 1};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  wire::Hello hello;
  hello.worker = "stranger";
  hello.group = around_.study.groups[0].name;
  hello.cores = 1;
  hello.guardian = {"nowhere", "boot", "pid:[9]", 7, 7};
  hello.agent = {"nowhere", "boot", "pid:[9]", 8, 8};
  switch (draw_.below(10)) {
    case 0:
      hello.campaign = "another campaign";
      return send(hello);
    case 1:
      hello.campaign = around_.token;
      hello.protocol = 2;
      return send(hello);
    case 2:
      hello.campaign = around_.token;
      hello.group = "no such group";
      return send(hello);
    case 3:
      hello.campaign = around_.token;
      hello.cores = -5;
      hello.held = {odd, {1, 0, 0, 0, 0, false, 0}};
      return send(hello);
    case 4:
      return send(wire::Results{kHuge, {{1, 0, 0, 1, 0, nan, -1, 1e300}}, {}, {}});
    case 5:
      return send(wire::Returned{{odd}});
    case 6:
      return send(wire::Leases{{odd}});
    case 7: {
      wire::Selection selection;
      selection.chosen = true;
      selection.parts = {{4000000000U, kHuge, 0}, {0, 5, kHuge}};
      return send(wire::Query{wire::RetryRequest{selection}});
    }
    case 8: {
      wire::Selection selection;
      selection.step = "no such step";
      return send(wire::Query{wire::CancelRequest{selection, true}});
    }
    default:
      return send(wire::Query{wire::TasksRequest{{4000000000U, kHuge}, 4000000000U, kHuge, 0, 0}});
  }
}

}  // namespace wflow::simulation
