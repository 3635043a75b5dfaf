// SPDX-License-Identifier: Apache-2.0
// Hosts with their clocks, and the processes on them: which live, which are stopped, who waits for their end.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/plain_types.h"
#include "tests/simulation/timeline.h"

namespace wflow::simulation {

struct Host {
  std::string name;
  int boots = 1;
  bool up = true;
  bool frozen = false;  // suspended: its clocks go on
  double rate = 1;      // seconds of its clocks in a second
  double booted_s = 0;  // true time
  double uptime_s = 0;  // steady clock at that time
  double jump_s = 0;    // sum of the jumps of its wall clock
  std::int64_t next_pid = 100;

  Now at(double true_s) const;
  // When its steady clock shows this, if nothing happens to it.
  double true_time(double steady_s) const { return booted_s + (steady_s - uptime_s) / rate; }
};

class Process;

class Hosts {
 public:
  explicit Hosts(Timeline& timeline) : timeline_(timeline) {}

  Host& add(double rate, double uptime_s);
  Host& operator[](std::size_t index) { return *hosts_[index]; }
  std::size_t size() const { return hosts_.size(); }

  // The answer comes when it has ended; at once where it does not live.
  void watch(const ProcessIdentity& process, std::function<void()> ended);
  // Null: there is none any more.
  Process* find(const ProcessIdentity& process) const;

  void freeze(Host& host);
  void thaw(Host& host);
  // Ends all of its processes at once, without a message from them.
  void crash(Host& host);
  void boot(Host& host);

 private:
  friend class Process;
  Timeline& timeline_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::map<ProcessIdentity, Process*> processes_;
  std::map<ProcessIdentity, std::vector<std::function<void()>>> watchers_;
};

// Lives until it ends by itself or is killed. The object stays: what was under way to it refers to it.
class Process {
 public:
  Process(Hosts& hosts, Host& host);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  const ProcessIdentity& identity() const { return identity_; }
  Host& host() const { return host_; }
  bool alive() const { return alive_; }
  bool stopped() const { return stopped_; }
  bool runs() const { return alive_ && !stopped_ && !host_.frozen; }
  double woken_s() const { return woken_s_; }  // when it has stood still last, in true time

  void stop() { stopped_ = true; }
  void go_on();
  // SIGKILL, or an exit.
  void end();
  virtual void terminate() {}  // SIGTERM

 protected:
  ~Process() = default;
  // It runs again after a stop.
  virtual void woken() = 0;
  // It has ended. `with_host`: everything around it, too.
  virtual void ended(bool with_host) = 0;

 private:
  friend class Hosts;
  void wake();

  Hosts& hosts_;
  Host& host_;
  ProcessIdentity identity_;
  bool alive_ = true;
  bool stopped_ = false;
  double woken_s_ = 0;
};

}  // namespace wflow::simulation
