// SPDX-License-Identifier: Apache-2.0
#include "engine/store/campaign_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/process.h"

namespace wflow::engine::store {

namespace {

using nlohmann::json;

constexpr std::size_t kHash = 32;
constexpr std::size_t kRecord = 1024;  // always: overwritten in place, because the lock is on this file
constexpr double kFresh_s = 8;         // a heartbeat of another host that is no older may be its last
constexpr double kLook_s = 0.25;

std::filesystem::path lock_file(const std::filesystem::path& campaign) {
  return campaign / ".wflow" / "coordinator.lock";
}

struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

std::string text_of(const LockRecord& record) {
  const json value = {{"host", record.process.host},
                      {"boot", record.process.boot},
                      {"namespace", record.process.namespace_id},
                      {"pid", record.process.pid},
                      {"start", record.process.start_ticks},
                      {"state", static_cast<int>(record.state)},
                      {"number", record.number},
                      {"beats", record.beats},
                      {"time_s", record.time_s}};
  std::string text = value.dump();
  text.resize(kRecord - kHash - 2, ' ');
  return text + "\n" + hash_bytes(text) + "\n";
}

std::optional<LockRecord> record_of(std::string_view text) {
  constexpr std::size_t kBody = kRecord - kHash - 2;
  if (text.size() != kRecord || hash_bytes(text.substr(0, kBody)) != text.substr(kBody + 1, kHash))
    return std::nullopt;
  try {
    const json value = json::parse(text.substr(0, kBody));
    LockRecord record;
    record.process = {value.at("host").get<std::string>(), value.at("boot").get<std::string>(),
                      value.at("namespace").get<std::string>(), value.at("pid").get<std::int64_t>(),
                      value.at("start").get<std::uint64_t>()};
    const int state = value.at("state").get<int>();
    if (state < 0 || state > static_cast<int>(HolderState::released)) return std::nullopt;
    record.state = static_cast<HolderState>(state);
    record.number = value.at("number").get<std::uint64_t>();
    record.beats = value.at("beats").get<std::uint64_t>();
    record.time_s = value.at("time_s").get<double>();
    return record;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

ProcessLife life_of_process(const ProcessIdentity& process) {
  const ProcessIdentity self = own_identity();
  // A zombie has ended, too: its parent may not have read its exit code yet.
  if (process.same_table(self))
    return ProcessHandle(process).ended() ? ProcessLife::ended : ProcessLife::lives;
  return process.host == self.host && process.boot != self.boot ? ProcessLife::ended : ProcessLife::unknown;
}

std::string sentence(const std::string& campaign, const std::optional<LockRecord>& record, double unix_s) {
  const std::string said = fmt::format("{}: another coordinator runs this campaign", campaign);
  if (!record) return said;
  return fmt::format("{}, on {} (pid {}), heard of {:.0f} s ago", said, record->process.host,
                     record->process.pid, std::max(0.0, unix_s - record->time_s));
}

void sleep_s(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace

// Opens it each time: network file systems then ask the server.
std::optional<LockRecord> read_lock(const std::filesystem::path& campaign) {
  constexpr int kTries = 3;  // a record may be caught half written
  for (int i = 0; i < kTries; ++i) {
    const FileDescriptor file(::open(lock_file(campaign).c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) return std::nullopt;
    std::array<char, kRecord> buffer{};
    const ssize_t got = ::pread(file.get(), buffer.data(), buffer.size(), 0);
    if (got <= 0) return std::nullopt;
    if (auto record = record_of({buffer.data(), static_cast<std::size_t>(got)})) return record;
  }
  return std::nullopt;
}

namespace {

bool has_holder(const std::optional<LockRecord>& record) {
  if (!record || record->state != HolderState::held) return false;
  const ProcessLife life = life_of_process(record->process);
  if (life != ProcessLife::unknown) return life == ProcessLife::lives;
  return std::abs(unix_now_s() - record->time_s) < kFresh_s;
}

}  // namespace

bool is_held(const std::filesystem::path& campaign) {
  return has_holder(read_lock(campaign));
}

bool may_go_on_elsewhere(const std::optional<LockRecord>& record) {
  return record && record->state == HolderState::held &&
         life_of_process(record->process) == ProcessLife::unknown;
}

std::optional<LockRecord> refuse_if_held(const std::filesystem::path& campaign) {
  auto record = read_lock(campaign);
  if (has_holder(record) && record->process != own_identity())
    throw Error(ExitCode::busy, sentence(campaign.string(), record, unix_now_s()));
  return record;
}

// ---- the rules

LockRules::LockRules(LockPlace& place, const std::filesystem::path& campaign, const ProcessIdentity& self,
                     LockTiming timing)
    : place_(place), campaign_(campaign.string()), timing_(timing) {
  record_.process = self;
}

void LockRules::refuse(const std::optional<LockRecord>& record) const {
  throw Error(ExitCode::busy, sentence(campaign_, record, place_.now().unix_s));
}

bool LockRules::take() {
  const double now_s = place_.now().steady_s;
  switch (phase_) {
    case Phase::free:
      return begin(now_s);
    case Phase::watching:
      return watch(now_s);
    case Phase::settling:
      if (now_s < until_s_) return false;
      if (const auto now = place_.read(); !mine(now)) refuse(now);
      phase_ = Phase::taken;
      return true;
    case Phase::taken:
      return true;
  }
  return true;
}

bool LockRules::begin(double now_s) {
  if (!place_.try_lock()) refuse(place_.read());
  before_ = place_.read();
  if (!before_ || before_->state != HolderState::held || before_->process == record_.process)
    return write_own(false, now_s);
  const ProcessLife life = place_.life_of(before_->process);
  if (life == ProcessLife::lives) refuse(before_);
  if (life == ProcessLife::ended) return write_own(false, now_s);
  phase_ = Phase::watching;
  until_s_ = now_s + timing_.dead_s;
  return false;
}

// The file's lock is free; but that may only mean that locks do not reach from the holder's host to this one.
bool LockRules::watch(double now_s) {
  const auto now = place_.read();
  if (now) {
    if (now->number != before_->number || now->process != before_->process) refuse(now);
    if (now->state != HolderState::held) return write_own(true, now_s);
    if (now->beats != before_->beats) refuse(now);
  }
  return now_s >= until_s_ && write_own(true, now_s);
}

// `settle`: another process may do the same, and whoever wrote last has it.
bool LockRules::write_own(bool settle, double now_s) {
  record_.number = (before_ ? before_->number : 0) + 1;
  write();
  phase_ = settle ? Phase::settling : Phase::taken;
  until_s_ = now_s + timing_.settle_s;
  return !settle;
}

bool LockRules::mine(const std::optional<LockRecord>& record) const {
  return record && record->process == record_.process && record->number == record_.number;
}

// An error leaves the heartbeat old, which check() sees.
void LockRules::write() {
  const Now began = place_.now();
  ++record_.beats;
  record_.time_s = began.unix_s;
  if (place_.write(record_)) last_beat_s_ = began.steady_s;
}

// Does not overwrite another process's record: check() reports it.
void LockRules::beat() {
  if (const auto now = place_.read(); !now || mine(now)) write();
}

void LockRules::check() {
  const auto now = place_.read();
  // A missing or damaged record does not mean that another process took the lock: other code reports the
  // damage.
  if (now && !mine(now)) {
    throw Error(ExitCode::busy, fmt::format("this coordinator has lost the campaign and ends: {}",
                                            sentence(campaign_, now, place_.now().unix_s)));
  }
  if (is_late()) write();  // this process, or the file system, stood still for a while
}

void LockRules::end(HolderState state) {
  if (const auto now = place_.read(); now && !mine(now)) return;
  record_.state = state;
  write();
}

// ---- the file

class CampaignLock::File final : public LockPlace {
 public:
  explicit File(const std::filesystem::path& campaign)
      : campaign_(campaign), file_(open_file(lock_file(campaign), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {}
  // Any other error than these two: a file system without locks, where the record has to do.
  bool try_lock() override {
    struct flock lock = whole_file();
    return ::fcntl(file_.get(), F_OFD_SETLK, &lock) == 0 || (errno != EAGAIN && errno != EACCES);
  }
  std::optional<LockRecord> read() override { return read_lock(campaign_); }
  bool write(const LockRecord& record) override {
    const std::string text = text_of(record);
    return ::pwrite(file_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  }
  ProcessLife life_of(const ProcessIdentity& process) override { return life_of_process(process); }
  Now now() override { return {steady_now_s(), unix_now_s()}; }
  int descriptor() const { return file_.get(); }

 private:
  std::filesystem::path campaign_;
  FileDescriptor file_;
};

CampaignLock::CampaignLock(const std::filesystem::path& campaign, LockTiming timing)
    : campaign_(campaign),
      timing_(timing),
      file_(std::make_unique<File>(campaign)),
      rules_(*file_, campaign, own_identity(), timing) {
  while (!rules_.take()) sleep_s(kLook_s);
  try {
    beats_ = std::thread([this] { keep_beating(); });
  } catch (const std::system_error& error) {
    end(HolderState::handed_over);
    throw system_error(error.code().value(),
                       "cannot start the thread that renews the campaign's lock; allow more processes "
                       "(ulimit -u)");
  }
}

CampaignLock::~CampaignLock() {
  if (!ended_) end(HolderState::handed_over);
  if (beats_.joinable()) beats_.join();
}

void CampaignLock::check() {
  const std::lock_guard lock(mutex_);
  rules_.check();
}

void CampaignLock::check_if_late() {
  constexpr double kOften_s = 1;
  const std::lock_guard lock(mutex_);
  const double now_s = steady_now_s();
  if (!rules_.is_late() || now_s - late_check_s_ < kOften_s) return;
  late_check_s_ = now_s;
  rules_.check();
}

void CampaignLock::check_place() {
  constexpr double kOften_s = 1;
  const double now_s = steady_now_s();
  if (now_s - place_check_s_ < kOften_s) return;
  place_check_s_ = now_s;
  struct stat status {};
  if (::stat(lock_file(campaign_).c_str(), &status) == 0 || errno != ENOENT) return;
  // The kernel knows where the open file is now.
  std::error_code none;
  const auto now = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", file_->descriptor()), none);
  const std::filesystem::path place = now.parent_path().parent_path();
  if (none || !std::filesystem::exists(now, none))
    throw Error(ExitCode::system,
                fmt::format("{} was removed while its coordinator ran", campaign_.string()));
  throw Error(ExitCode::system,
              fmt::format("{} was moved to {} while its coordinator ran; go on there with: wflow resume {}",
                          campaign_.string(), place.string(), place.string()));
}

void CampaignLock::end(HolderState state) {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
  rules_.end(state);
}

void CampaignLock::keep_beating() {
  std::unique_lock lock(mutex_);
  const auto beat = std::chrono::duration<double>(timing_.beat_s);
  while (!changed_.wait_for(lock, beat, [this] { return ended_; })) rules_.beat();
}

}  // namespace wflow::engine::store
