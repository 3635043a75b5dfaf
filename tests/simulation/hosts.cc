// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/hosts.h"

#include <utility>

namespace wflow::simulation {

namespace {
constexpr double kEpoch_s = 1.7e9;  // Unix time at the beginning
}

Now Host::at(double true_s) const {
  return {uptime_s + (true_s - booted_s) * rate, kEpoch_s + true_s * rate + jump_s};
}

Host& Hosts::add(double rate, double uptime_s) {
  hosts_.push_back(std::make_unique<Host>());
  Host& host = *hosts_.back();
  host.name = "h" + std::to_string(hosts_.size());
  host.rate = rate;
  host.uptime_s = uptime_s;
  host.booted_s = timeline_.now_s();
  return host;
}

void Hosts::watch(const ProcessIdentity& process, std::function<void()> ended) {
  if (processes_.contains(process)) {
    watchers_[process].push_back(std::move(ended));
  } else {
    timeline_.after(0, std::move(ended));
  }
}

Process* Hosts::find(const ProcessIdentity& process) const {
  const auto at = processes_.find(process);
  return at == processes_.end() ? nullptr : at->second;
}

void Hosts::freeze(Host& host) {
  host.frozen = true;
}

void Hosts::thaw(Host& host) {
  if (!std::exchange(host.frozen, false)) return;
  std::vector<Process*> here;
  for (const auto& [identity, process] : processes_) {
    if (&process->host() == &host && !process->stopped()) here.push_back(process);
  }
  for (Process* process : here) process->wake();
}

void Hosts::crash(Host& host) {
  host.up = false;
  host.frozen = false;
  std::vector<Process*> here;
  for (const auto& [identity, process] : processes_) {
    if (&process->host() == &host) here.push_back(process);
  }
  for (Process* process : here) {
    process->alive_ = false;
    processes_.erase(process->identity());
    watchers_.erase(process->identity());  // they stood on the same host
  }
  for (Process* process : here) process->ended(true);
}

void Hosts::boot(Host& host) {
  host.up = true;
  ++host.boots;
  host.booted_s = timeline_.now_s();
  host.uptime_s = 20;
  host.next_pid = 100;  // numbers that were used before
}

Process::Process(Hosts& hosts, Host& host) : hosts_(hosts), host_(host) {
  identity_ = {host.name, host.name + "-boot-" + std::to_string(host.boots), "pid:[1]", host.next_pid++,
               static_cast<std::uint64_t>(host.at(hosts.timeline_.now_s()).steady_s * 100) + 1};
  hosts_.processes_[identity_] = this;
}

void Process::go_on() {
  if (!std::exchange(stopped_, false) || !runs()) return;
  wake();
}

void Process::wake() {
  woken_s_ = hosts_.timeline_.now_s();
  woken();
}

void Process::end() {
  if (!std::exchange(alive_, false)) return;
  hosts_.processes_.erase(identity_);
  ended(false);
  const auto at = hosts_.watchers_.find(identity_);
  if (at == hosts_.watchers_.end()) return;
  for (auto& watcher : at->second) hosts_.timeline_.after(0, std::move(watcher));
  hosts_.watchers_.erase(at);
}

}  // namespace wflow::simulation
