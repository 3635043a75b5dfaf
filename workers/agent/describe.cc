// SPDX-License-Identifier: Apache-2.0
#include "workers/agent/machine.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "engine/wire/messages.h"

namespace wflow::workers {

namespace {

namespace wire = engine::wire;

struct DescribeEvent {
  std::string operator()(const event::EndpointRead& read) const {
    return read.address ? fmt::format("the endpoint is that of coordinator {} on {}", read.address->epoch,
                                      read.address->host)
                        : "there is no endpoint";
  }
  std::string operator()(const event::Connected&) const { return "connected"; }
  std::string operator()(const event::ConnectionLost&) const { return "the connection is lost"; }
  std::string operator()(const event::Message& message) const { return wire::describe(message.message); }
  std::string operator()(const event::SamplesOpened& opened) const {
    return opened.error ? "the samples can't be read" : "the samples are open";
  }
  std::string operator()(const event::TaskStarted& started) const {
    return fmt::format("slot {}: started", started.slot);
  }
  std::string operator()(const event::TaskNotStarted& refused) const {
    return fmt::format("slot {}: not started: {}", refused.slot, refused.why);
  }
  std::string operator()(const event::TaskEnded& ended) const {
    return fmt::format("slot {}: ended: {}, {} parts run again", ended.slot, wire::describe(ended.results),
                       ended.again.size());
  }
  std::string operator()(const event::TaskChecking& checking) const {
    return fmt::format("slot {}: its outputs are checked", checking.slot);
  }
  std::string operator()(const event::TaskReports& reports) const {
    return fmt::format("slot {}: {} events", reports.slot, reports.events.size());
  }
  std::string operator()(const event::Terminate&) const { return "terminate"; }
  std::string operator()(const event::GuardianGone&) const { return "the guardian is gone"; }
  std::string operator()(const event::EndKnown& known) const {
    return fmt::format("the allocation ends at {:.3f} s", known.steady_s);
  }
  std::string operator()(const event::CampaignGone&) const { return "the campaign is gone"; }
  std::string operator()(const event::TaskSilent& silent) const {
    return fmt::format("slot {} has done nothing for {:.0f} s", silent.slot, silent.silent_s);
  }
  std::string operator()(const event::TaskMemory& memory) const {
    return fmt::format("the memory of {} tasks", memory.held.size());
  }
  std::string operator()(const event::JournalFailed& failed) const {
    return "the journal can't be written: " + failed.why;
  }
  std::string operator()(const event::Time&) const { return "time"; }
};

struct DescribeAction {
  std::string operator()(const action::LookUp&) const { return "read the endpoint"; }
  std::string operator()(const action::Connect& connect) const {
    return fmt::format("connect to coordinator {} on {}", connect.address.epoch, connect.address.host);
  }
  std::string operator()(const action::Send& send) const { return "send " + wire::describe(send.message); }
  std::string operator()(const action::AppendJournal& append) const {
    return "journal " + wire::describe(append.record);
  }
  std::string operator()(const action::ClearJournal&) const { return "empty the journal"; }
  std::string operator()(const action::SyncJournal&) const { return "sync the journal"; }
  std::string operator()(const action::NoteLost& note) const {
    return fmt::format("journal: the fence is {} s", note.lost_s);
  }
  std::string operator()(const action::OpenSamples&) const { return "open the samples"; }
  std::string operator()(const action::AddTemplate& add) const {
    return fmt::format("template of array {}", add.task_template.array);
  }
  std::string operator()(const action::StartTask& start) const {
    return fmt::format("slot {}: start {}", start.slot, wire::describe(start.lease));
  }
  std::string operator()(const action::EndTask& end) const {
    constexpr std::array<std::string_view, 4> kCauses = {"time limit", "cancelled", "stalled", "returned"};
    return fmt::format("slot {}: {}: {}", end.slot, end.kill ? "kill" : "terminate",
                       kCauses.at(static_cast<std::size_t>(end.cause)));
  }
  std::string operator()(const action::EndRanks& end) const {
    return fmt::format("kill what is left of lease {}", end.lease);
  }
  std::string operator()(const action::InterruptTask& interrupt) const {
    return fmt::format("slot {}: interrupt", interrupt.slot);
  }
  std::string operator()(const action::FollowEvents&) const { return "look for events of tasks"; }
  std::string operator()(const action::SetFence& fence) const {
    return fmt::format("fence at {:.3f} s", fence.steady_s);
  }
  std::string operator()(const action::Log& log) const { return log.text; }
  std::string operator()(const action::Exit& exit) const { return fmt::format("exit with {}", exit.code); }
};

}  // namespace

std::string describe(const AgentEvent& event) {
  return std::visit(DescribeEvent(), event);
}

std::string describe(const AgentAction& action) {
  return std::visit(DescribeAction(), action);
}

}  // namespace wflow::workers
