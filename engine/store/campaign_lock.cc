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

enum class Life : std::uint8_t { ended, lives, unknown };

Life life_of(const ProcessIdentity& process) {
  const ProcessIdentity self = own_identity();
  // A zombie has ended, too: its parent may not have read its exit code yet.
  if (process.same_table(self)) return ProcessHandle(process).ended() ? Life::ended : Life::lives;
  return process.host == self.host && process.boot != self.boot ? Life::ended : Life::unknown;
}

std::string sentence(const std::filesystem::path& campaign, const std::optional<LockRecord>& record) {
  const std::string said = fmt::format("{}: another coordinator runs this campaign", campaign.string());
  if (!record) return said;
  return fmt::format("{}, on {} (pid {}), heard of {:.0f} s ago", said, record->process.host,
                     record->process.pid, std::max(0.0, unix_now_s() - record->time_s));
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

bool is_held(const std::filesystem::path& campaign) {
  const auto record = read_lock(campaign);
  if (!record || record->state != HolderState::held) return false;
  const Life life = life_of(record->process);
  if (life != Life::unknown) return life == Life::lives;
  return std::abs(unix_now_s() - record->time_s) < kFresh_s;
}

void refuse_if_held(const std::filesystem::path& campaign) {
  const auto record = read_lock(campaign);
  if (!record || record->process == own_identity() || !is_held(campaign)) return;
  throw Error(ExitCode::busy, sentence(campaign, record));
}

CampaignLock::CampaignLock(const std::filesystem::path& campaign, LockTiming timing)
    : campaign_(campaign),
      timing_(timing),
      file_(open_file(lock_file(campaign), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
  acquire();
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

void CampaignLock::refuse(const std::optional<LockRecord>& record) const {
  throw Error(ExitCode::busy, sentence(campaign_, record));
}

void CampaignLock::acquire() {
  struct flock lock = whole_file();
  // Any other error: a file system without locks, where the record has to do.
  if (::fcntl(file_.get(), F_OFD_SETLK, &lock) != 0 && (errno == EAGAIN || errno == EACCES))
    refuse(read_lock(campaign_));
  const auto before = read_lock(campaign_);
  const ProcessIdentity self = own_identity();
  bool settle = false;
  if (before && before->state == HolderState::held && before->process != self) {
    const Life life = life_of(before->process);
    if (life == Life::lives) refuse(before);
    if (life == Life::unknown) {
      watch(*before);
      settle = true;
    }
  }
  record_.process = self;
  record_.number = (before ? before->number : 0) + 1;
  write();
  if (!settle) return;
  sleep_s(timing_.settle_s);
  if (const auto now = read_lock(campaign_); !mine(now)) refuse(now);
}

// Its lock is free; but that may only mean that locks do not reach from its host to this one.
void CampaignLock::watch(const LockRecord& other) const {
  for (const double until_s = steady_now_s() + timing_.dead_s; steady_now_s() < until_s;) {
    sleep_s(kLook_s);
    const auto now = read_lock(campaign_);
    if (!now) continue;
    if (now->number != other.number || now->process != other.process) refuse(now);
    if (now->state != HolderState::held) return;
    if (now->beats != other.beats) refuse(now);
  }
}

bool CampaignLock::mine(const std::optional<LockRecord>& record) const {
  return record && record->process == record_.process && record->number == record_.number;
}

// An error leaves the heartbeat old, which check() sees.
void CampaignLock::write() {
  const double began_s = steady_now_s();
  ++record_.beats;
  record_.time_s = unix_now_s();
  const std::string text = text_of(record_);
  if (::pwrite(file_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()))
    last_beat_s_ = began_s;
}

void CampaignLock::check() {
  const std::lock_guard lock(mutex_);
  check_record();
}

void CampaignLock::check_if_late() {
  constexpr double kOften_s = 1;
  const std::lock_guard lock(mutex_);
  const double now_s = steady_now_s();
  if (now_s - last_beat_s_ <= timing_.valid_s || now_s - late_check_s_ < kOften_s) return;
  late_check_s_ = now_s;
  check_record();
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
  const auto now = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", file_.get()), none);
  const std::filesystem::path place = now.parent_path().parent_path();
  if (none || !std::filesystem::exists(now, none))
    throw Error(ExitCode::system, fmt::format("{} was removed while its coordinator ran", campaign_.string()));
  throw Error(ExitCode::system,
              fmt::format("{} was moved to {} while its coordinator ran; go on there with: wflow resume {}",
                          campaign_.string(), place.string(), place.string()));
}

void CampaignLock::check_record() {
  const auto now = read_lock(campaign_);
  // A missing or damaged record does not mean that another process took the lock: other code reports the damage.
  if (now && !mine(now)) {
    throw Error(ExitCode::busy,
                fmt::format("this coordinator has lost the campaign and ends: {}", sentence(campaign_, now)));
  }
  // This process, or the file system, stood still for a while.
  if (steady_now_s() - last_beat_s_ > timing_.valid_s) write();
}

void CampaignLock::end(HolderState state) {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
  if (const auto now = read_lock(campaign_); now && !mine(now)) return;
  record_.state = state;
  write();
}

void CampaignLock::keep_beating() {
  std::unique_lock lock(mutex_);
  const auto beat = std::chrono::duration<double>(timing_.beat_s);
  while (!changed_.wait_for(lock, beat, [this] { return ended_; })) {
    // Do not overwrite another process's record: check() reports it.
    if (const auto now = read_lock(campaign_); !now || mine(now)) write();
  }
}

}  // namespace wflow::engine::store
