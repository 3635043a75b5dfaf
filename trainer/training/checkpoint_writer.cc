// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/checkpoint_writer.h"

#include <memory>
#include <utility>

namespace wflow::trainer {
namespace {

constexpr std::size_t kMostJobs = 2;  // one being written, one waiting

}  // namespace

CheckpointWriter::CheckpointWriter(const CheckpointDirectory& directory, std::size_t most_copied_bytes)
    : directory_(directory), most_copied_bytes_(most_copied_bytes), thread_([this] { run(); }) {}

CheckpointWriter::~CheckpointWriter() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointWriter::write(std::int64_t step, const Snapshot& snapshot,
                             std::vector<std::int64_t> keep_steps, Done done, const PieceSource& source) {
  write(snapshot, static_cast<bool>(source),
        [this, step, keep = std::move(keep_steps), done = std::move(done), source](const Snapshot& what) {
          done(directory_.write(step, what, keep, source));
        });
}

void CheckpointWriter::write_best(const Snapshot& snapshot, const PieceSource& source) {
  write(snapshot, static_cast<bool>(source),
        [this, source](const Snapshot& what) { directory_.write_best(what, source); });
}

void CheckpointWriter::write(const Snapshot& snapshot, bool in_place, const Write& call) {
  if (in_place || snapshot.bytes() > most_copied_bytes_) {
    finish();
    call(snapshot);
    return;
  }
  add([call, copy = std::make_shared<const SnapshotCopy>(snapshot)] { call(copy->get()); });
}

void CheckpointWriter::add(Job job) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.size() < kMostJobs; });
  rethrow();
  jobs_.push_back(std::move(job));
  changed_.notify_all();
}

void CheckpointWriter::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty(); });
  rethrow();
}

void CheckpointWriter::rethrow() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void CheckpointWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job& job = jobs_.front();  // remains the first: only this thread removes jobs
    lock.unlock();
    std::exception_ptr error;
    try {
      job();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) error_ = error;
    jobs_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace wflow::trainer
