// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/trainings.h"
#include "cli/top/feed.h"

namespace wflow::cli::top {

namespace {

constexpr double kWholeReplay_s = 60;
constexpr double kFastest = 1e6;
constexpr std::uint32_t kReplayPoints = 40'000;

class ReplayFeed : public Feed {
 public:
  ReplayFeed(const std::filesystem::path& campaign, double speed) {
    auto record = engine::read_record(campaign, {kReplayPoints, 0, 0}, kSlices);
    if (!record)
      throw Error(ExitCode::usage,
                  fmt::format("{} is running; leave out --replay to watch it", campaign.string()));
    record_ = std::move(*record);
    plan_.emplace(read_plan(campaign));
    const specs::Plan& plan = *plan_;
    needs_ = needs_of(plan);
    auto& failures = record_.watch.status.failures;
    if (failures.size() < record_.watch.status.failed()) {
      engine::Client client(plan);
      failures = all_answers(client, questions_about_failures(plan)).failed;
    }
    std::vector<TrainingPlace> places;
    for (const wire::MetricCurve& curve : record_.watch.status.metrics) {
      const TrainingPlace place{curve.array, curve.element};
      if (places.empty() || places.back() != place) places.push_back(place);
    }
    parameters_ = parameter_texts(plan, places);
    clock_.begin_s = clock_.at_s = record_.timeline.begin_s;
    clock_.end_s = record_.timeline.end_s;
    clock_.speed = speed > 0 ? speed : std::max(1.0, (clock_.end_s - clock_.begin_s) / kWholeReplay_s);
    show();
  }

  bool poll(View) override {
    const double now_s = steady_now_s();
    const double before_s = std::exchange(polled_s_, now_s);
    const double passed_s = before_s > 0 ? now_s - before_s : 0;
    if (clock_.paused || clock_.at_s >= clock_.end_s) return std::exchange(changed_, false);
    clock_.at_s = std::min(clock_.at_s + passed_s * clock_.speed, clock_.end_s);
    show();
    changed_ = false;
    return true;
  }

  void wait(std::chrono::milliseconds timeout, int fd) override {
    pollfd input{fd, POLLIN, 0};
    ::poll(&input, 1, static_cast<int>(timeout.count()));
  }

  void wish(const Wish& wish) override {
    if (wish.kind == Wish::Kind::tasks) {
      engine::Client client(*plan_);
      tasks_ = all_answers(client, questions_about_step(*plan_, wish.title));
      show();
    } else if (wish.kind != Wish::Kind::replay) {
      data_.notice = "this is a replay: without --replay that is possible";
    } else if (wish.seek != 0) {
      const double by_s = wish.seek * (clock_.end_s - clock_.begin_s);
      clock_.at_s = std::clamp(clock_.at_s + by_s, clock_.begin_s, clock_.end_s);
      // The sum of the steps differs from the whole by rounding.
      if (clock_.end_s - clock_.at_s < std::abs(by_s) / 2) clock_.at_s = clock_.end_s;
    } else if (wish.faster != 1) {
      clock_.speed = std::clamp(clock_.speed * wish.faster, 1 / kFastest, kFastest);
    } else {
      clock_.paused = !clock_.paused;
    }
    if (wish.kind == Wish::Kind::replay) show();
    changed_ = true;
  }

  const TopData& data() const override { return data_; }

 private:
  void show() {
    data_ = picture_at(record_, clock_.at_s);
    data_.needs = needs_;
    data_.training_parameters = parameters_;
    add_searches(take_searches(*plan_, data_.status.metrics), data_.training_parameters);
    if (tasks_) data_.tasks = tasks_at(*tasks_, clock_.at_s);
    data_.replay = clock_;
  }

  engine::RecordedCampaign record_;
  std::map<std::string, StepNeeds> needs_;
  std::optional<specs::Plan> plan_;
  std::map<TrainingPlace, std::string> parameters_;
  std::optional<StepTasks> tasks_;  // of the step that is open, at the end
  ReplayClock clock_;
  TopData data_;
  double polled_s_ = 0;  // by the process's clock
  bool changed_ = false;
};

}  // namespace

std::unique_ptr<Feed> replay_feed(const std::filesystem::path& campaign, double speed) {
  return std::make_unique<ReplayFeed>(campaign, speed);
}

}  // namespace wflow::cli::top
