// SPDX-License-Identifier: Apache-2.0
// The coordinator's answers to messages, one function a kind.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/process.h"
#include "base/version.h"
#include "engine/coordinate/coordinator_impl.h"
#include "engine/followups/followups.h"

namespace wflow::engine {

namespace {

// Between the Hello of a worker that comes back and the heartbeat that ends its hand-over.
constexpr double kHandOver_s = 60;

}  // namespace

void Coordinator::handle(const std::string& routing, wire::Message message) {
  std::visit(
      [&](const auto& value) {
        // Messages that only a coordinator sends are not for us; a peer that sends one is ignored.
        if constexpr (requires { on(routing, value); }) on(routing, value);
      },
      message);
}

std::optional<std::string> Coordinator::reason_to_refuse(const wire::Hello& hello) const {
  if (hello.campaign != keys_.token) return "this worker belongs to another campaign";
  if (hello.protocol != wire::kProtocol) {
    return fmt::format(
        "worker speaks protocol {} (wflow {}), coordinator {} (wflow {}); use the same version",
        hello.protocol, hello.version, wire::kProtocol, kVersion);
  }
  if (hello.cores < 1) return "a worker needs at least one core";
  return groups_.reason_to_refuse(hello.group, hello.host);
}

void Coordinator::on(const std::string& routing, const wire::Hello& hello) {
  if (const auto reason = reason_to_refuse(hello)) {
    socket_.send(routing, wire::Refuse{*reason});
    return;
  }
  const bool known = peers_.contains(hello.worker);
  Peer& peer = peers_[hello.worker];
  by_routing_.erase(peer.routing);
  by_routing_[routing] = hello.worker;
  peer.routing = routing;
  peer.host = hello.host;
  peer.pid = hello.pid;
  peer.heard_s = steady_now_s();
  peer.templates.clear();
  peer.local = hello.host == host_name() && pool_.adopt(static_cast<pid_t>(hello.pid), hello.group);
  wire::Welcome welcome;
  welcome.campaign_directory = plan_.campaign().string();
  if (plan_.study().samples) welcome.sample_design = specs::to_json(plan_.study().samples->design).dump();
  socket_.send(routing, welcome);
  scheduler_.worker_joined(hello.worker,
                           {hello.cores, hello.gpus, hello.memory_bytes, groups_.find(hello.group)->pools},
                           hello.held);
  // What it finished while it was alone comes next, and its first heartbeat after that: leases that it no
  // longer holds are not free before.
  const auto expected = expected_.find(hello.worker);
  const bool returned = expected != expected_.end();
  if (returned) expected->second.until_s = steady_now_s() + kHandOver_s;
  if (!known) {
    batch_.workers_joined.push_back(
        {hello.worker, hello.host, hello.group, hello.pid, hello.cores, hello.gpus, unix_now_s()});
    record("worker", fmt::format("worker {} {} with {} cores", hello.worker,
                                 returned ? "came back from an earlier coordinator" : "joined", hello.cores));
  }
  // Its templates went with its connection: leases that it still holds need theirs again.
  std::set<ArrayId> arrays;
  for (const wire::Lease& lease : hello.held) {
    if (lease.array < plan_.array_count()) arrays.insert(lease.array);
  }
  for (const ArrayId array : arrays) {
    socket_.send(routing, wire::Templates{{plan_.task_template(array)}});
    peer.templates.insert(array);
  }
  if (phase_ != Phase::running) socket_.send(routing, wire::Drain{});
}

void Coordinator::on(const std::string& routing, const wire::Results& results) {
  const auto name = by_routing_.find(routing);
  apply(results, name == by_routing_.end() ? std::string() : name->second);
  if (name == by_routing_.end())
    return;  // recorded, but not acknowledged: it will say Hello and send them again
  Peer& peer = peers_.at(name->second);
  peer.heard_s = steady_now_s();
  peer.acknowledge = std::max(peer.acknowledge, results.sequence);
}

void Coordinator::apply(const wire::Results& results, const std::string& worker) {
  const double now_s = steady_now_s();
  for (const wire::DoneRun& run : results.done) scheduler_.done(run);
  for (const wire::Outcome& outcome : results.outcomes) {
    scheduler_.ended_badly(outcome, worker, now_s);
    merlin_status_.stopped(outcome);
  }
  for (const wire::TaskEvent& event : results.events) {
    if (event.array >= plan_.array_count()) continue;
    status_.event(event);
    if (const auto note = LiveStatus::note_of(event); note && is_single(event.array)) {
      record("note", fmt::format("{}: {}", plan_.array_name(event.array), *note));
    }
    if (const auto followup = followup_of(event); followup && status_.submitted(*followup)) {
      record("submit", fmt::format("{}: {}", plan_.array_name(event.array),
                                   followup->spec.empty() ? followup->directory : followup->spec));
      batch_.followups.push_back(*followup);
    }
    batch_.events.push_back(event);
  }
}

void Coordinator::on(const std::string& routing, const wire::Heartbeat& heartbeat) {
  const auto name = by_routing_.find(routing);
  if (name == by_routing_.end()) return;
  Peer& peer = peers_.at(name->second);
  peer.heard_s = steady_now_s();
  peer.running = heartbeat.running;
  scheduler_.handed_over(name->second);
  expected_.erase(name->second);
}

void Coordinator::on(const std::string& routing, const wire::Goodbye& goodbye) {
  const auto name = by_routing_.find(routing);
  if (name == by_routing_.end()) return;
  const std::string worker = name->second;
  batch_.workers_ended.push_back({worker, unix_now_s(), goodbye.reason});
  scheduler_.worker_lost(worker, {});
  expected_.erase(worker);
  peers_.erase(worker);
  by_routing_.erase(routing);
}

void Coordinator::on(const std::string&, const wire::Returned& returned) {
  scheduler_.returned(returned.leases);
}

void Coordinator::on(const std::string& routing, const wire::Query& query) {
  if (query.verb == "status") {
    const CampaignStatus& status = status_.update(scheduler_, steady_now_s(), unix_now_s());
    socket_.send(routing, wire::Answer{true, to_json(status).dump()});
  } else {
    socket_.send(routing, answer(query));
  }
}

}  // namespace wflow::engine
