// SPDX-License-Identifier: Apache-2.0
// Keeps one connection, with one question at a time. Light questions several times a second, whole ones less
// often: lists of workers and curves change little from one answer to the next, and cost the coordinator
// most.
#include <fmt/format.h>
#include <poll.h>
#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/trainings.h"
#include "cli/top/feed.h"
#include "cli/top/rates.h"
#include "cli/top/step_tasks.h"
#include "cli/view/status.h"
#include "engine/query/client.h"
#include "engine/wire/transport.h"
#include "specs/plan/plan.h"

namespace wflow::cli::top {

namespace {

namespace fs = std::filesystem;

constexpr double kLight_s = 0.25;      // between two questions
constexpr double kWhole_s = 1;         // between two whole ones
constexpr double kHistory_s = 30;      // between two questions for all workers, also earlier ones
constexpr double kAnswer_s = 20;       // a coordinator that is silent for longer counts as gone
constexpr double kConnectAgain_s = 2;  // between two connections to the same one
constexpr double kReadAgain_s = 2;
constexpr double kTasks_s = 5;    // between two readings of a list of tasks
constexpr double kNotice_s = 15;  // duration of a notice
constexpr std::uint32_t kPoints = 4000, kPointsAside = 1000;
constexpr std::uint32_t kWorkers = 1000, kRunning = 500;
constexpr std::size_t kLogBytes = 4 << 20;  // last bytes of a task's output

wire::WatchRequest whole_request(View view) {
  return {view == View::training ? kPoints : kPointsAside, kWorkers, kRunning};
}

class LiveFeed : public Feed {
 public:
  explicit LiveFeed(fs::path campaign) : campaign_(std::move(campaign)) {
    data_.link = Link::none;
    data_.status.directory = campaign_.string();
    data_.status.name = campaign_.filename().string();
    data_.status.state = engine::CampaignState::interrupted;
  }

  bool poll(View view) override {
    const double now_s = steady_now_s();
    bool news = receive(now_s);
    if (socket_ && (socket_->lost() || (asked_at_s_ > 0 && now_s > asked_at_s_ + kAnswer_s))) {
      lose(now_s);
      news = true;
    }
    if (!socket_) news = reach(now_s) || news;
    if (!data_.notice.empty() && now_s > notice_until_s_) {
      data_.notice.clear();
      news = true;
    }
    if (socket_ && asked_at_s_ <= 0) ask_next(view, now_s);
    return news;
  }

  void wait(std::chrono::milliseconds timeout, int fd) override {
    if (socket_) return socket_->wait(timeout, std::span(&fd, 1));
    pollfd input{fd, POLLIN, 0};
    ::poll(&input, 1, static_cast<int>(timeout.count()));
  }

  void wish(const Wish& wish) override {
    using Kind = Wish::Kind;
    if (wish.kind == Kind::log) return show_log(wish);
    if (wish.kind == Kind::tasks) return open_step(wish.title);
    if (wish.kind == Kind::explain && data_.link != Link::live) return explain_at_rest(wish);
    if (wish.kind == Kind::replay) return;
    if (data_.link != Link::live) {
      notice() = fmt::format("no coordinator runs; {} continues the campaign",
                             wish.kind == Kind::retry ? "wflow retry" : "wflow resume");
      return;
    }
    wishes_.push_back(wish);
  }

  const TopData& data() const override { return data_; }

 private:
  const specs::Plan& plan() {
    if (!plan_) plan_.emplace(read_plan(campaign_));
    return *plan_;
  }

  // The notice to set: it stays for kNotice_s.
  std::string& notice() {
    notice_until_s_ = steady_now_s() + kNotice_s;
    return data_.notice;
  }

  // ---- the connection

  // Returns true if the data have changed.
  bool reach(double now_s) {
    const auto endpoint = wire::read_endpoint(campaign_);
    const bool same = endpoint && endpoint->epoch == lost_epoch_;
    const bool may = endpoint && !wire::is_out_of_reach(*endpoint) && (!same || now_s >= connect_again_s_);
    if (may) {
      try {
        socket_.emplace(wire::read_keys(campaign_), wire::attempt(*endpoint, attempts_++));
        epoch_ = endpoint->epoch;
        asked_at_s_ = 0;
      } catch (const Error& error) {
        notice() = error.what();
        lost_epoch_ = endpoint->epoch;
        connect_again_s_ = now_s + kConnectAgain_s;
      }
    }
    // A coordinator that was just lost may come back: read the record only when its address is gone.
    const bool reads = !recorded_ && now_s >= read_again_s_ && (!endpoint || same);
    return reads && read_at_rest(now_s);
  }

  void lose(double now_s) {
    socket_.reset();
    asked_at_s_ = 0;
    asked_.reset();
    questions_.reset();
    wishes_.clear();
    lost_epoch_ = epoch_;
    connect_again_s_ = now_s + kConnectAgain_s;
    read_again_s_ = now_s;
    recorded_ = false;
    data_.link = Link::none;
    data_.now_s = unix_now_s();
  }

  bool read_at_rest(double now_s) {
    read_again_s_ = now_s + kReadAgain_s;
    try {
      const auto record = engine::read_record(campaign_, {kPoints, 0, 0}, kSlices);
      if (!record) return false;
      TopData picture = picture_of(*record);
      picture.needs = needs_of(plan());
      picture.notice = std::move(data_.notice);
      picture.pane = std::move(data_.pane);
      picture.training_parameters = std::move(data_.training_parameters);
      data_ = std::move(picture);
      note_parameters();
      data_.link =
          engine::is_at_rest(data_.status.state) && data_.status.state != engine::CampaignState::interrupted
              ? Link::at_rest
              : Link::none;
      data_.now_s = unix_now_s();
      recorded_ = true;
      if (data_.status.failures.size() < data_.status.failed()) read_tasks(questions_about_failures(plan()));
      if (!step_.empty()) read_tasks(questions_about_step(plan(), step_));
    } catch (const Error& error) {
      notice() = error.what();
    }
    return true;
  }

  // ---- questions

  void ask_next(View view, double now_s) {
    if (!wishes_.empty()) {
      const Wish wish = wishes_.front();
      wishes_.pop_front();
      send(request_of(wish), wish, now_s);
    } else if (now_s >= next_history_s_) {
      next_history_s_ = now_s + kHistory_s;
      history_.clear();
      send(wire::WorkersRequest{0}, std::nullopt, now_s);
    } else if (now_s >= next_whole_s_ || view != view_) {
      next_whole_s_ = now_s + kWhole_s;
      next_light_s_ = now_s + kLight_s;
      begin_questions(view, now_s);
      view_ = view;
      whole_asked_ = true;
      send(whole_request(view), std::nullopt, now_s);
    } else if (now_s >= next_light_s_) {
      next_light_s_ = now_s + kLight_s;
      whole_asked_ = false;
      send(wire::WatchRequest{}, std::nullopt, now_s);
    } else if (questions_) {
      send(*questions_->next(), std::nullopt, now_s);
    }
  }

  // ---- lists of tasks, page by page, between the other questions

  void open_step(const std::string& step) {
    step_ = step;
    data_.tasks.reset();
    questions_.reset();
    next_tasks_s_ = 0;
    if (data_.link != Link::live) read_tasks(questions_about_step(plan(), step));
  }

  void begin_questions(View view, double now_s) {
    if (questions_ || now_s < next_tasks_s_) return;
    const bool unlisted = data_.status.failures.size() < data_.status.failed();
    if (view == View::tasks && !step_.empty()) {
      questions_ = questions_about_step(plan(), step_);
    } else if (view == View::failures && unlisted) {
      questions_ = questions_about_failures(plan());
    }
  }

  void take_tasks(const StepTasks& tasks) {
    if (tasks.step.empty()) data_.older_failures = tasks.failed;
    // A list that is read again replaces the last one when it is complete.
    if (tasks.step == step_ && !step_.empty() && (!tasks.loading || !data_.tasks)) data_.tasks = tasks;
  }

  template <class PageAnswer>
  void take_page(const PageAnswer& answer, double now_s) {
    if (!questions_) return;
    questions_->take(answer);
    const bool more = questions_->next().has_value();
    if (!more || !data_.tasks) take_tasks(questions_->tasks());
    if (more) return;
    questions_.reset();
    next_tasks_s_ = now_s + kTasks_s;
  }
  void take(wire::TasksAnswer& answer, double now_s) { take_page(answer, now_s); }
  void take(wire::UsageAnswer& answer, double now_s) { take_page(answer, now_s); }

  void read_tasks(TaskQuestions questions) {
    try {
      engine::Client client(plan());
      take_tasks(all_answers(client, std::move(questions)));
    } catch (const Error& error) {
      notice() = error.what();
    }
  }

  static wire::Request request_of(const Wish& wish) {
    switch (wish.kind) {
      case Wish::Kind::pause:
      case Wish::Kind::unpause:
        return wire::PauseRequest{wish.kind == Wish::Kind::pause};
      case Wish::Kind::retry:
        return wire::RetryRequest{wish.tasks};
      case Wish::Kind::cancel:
        return wire::CancelRequest{wish.tasks, wish.kill};
      default:
        return wire::ExplainRequest{wish.task};
    }
  }

  void send(const wire::Request& request, std::optional<Wish> wish, double now_s) {
    if (!socket_->send(wire::Query{request})) return;
    asked_at_s_ = now_s;
    asked_ = std::move(wish);
  }

  bool receive(double now_s) {
    bool news = false;
    while (socket_) {
      auto message = socket_->receive();
      if (!message) break;
      auto* answer = std::get_if<wire::Answer>(&*message);
      if (answer == nullptr) continue;
      asked_at_s_ = 0;
      std::visit([&](auto& body) { take(body, now_s); }, answer->body);
      asked_.reset();
      news = true;
    }
    return news;
  }

  // ---- answers

  void take(wire::WatchAnswer& answer, double now_s) {
    if (data_.link != Link::live) {
      // Start the rates anew: earlier ends did not happen while this feed watched.
      rates_ = RateHistory();
      worker_rates_ = WorkerRates();
      data_.notice.clear();
      data_.needs = needs_of(plan());
      core_use_ = CoreUse();
      next_history_s_ = now_s;
    }
    wire::StatusAnswer before = std::exchange(data_.status, std::move(answer.status));
    if (whole_asked_) {
      data_.running = std::move(answer.running);
      data_.checkpoints = std::move(answer.checkpoints);
      worker_rates_.add(data_.status.workers, now_s);
      data_.worker_rates = worker_rates_.rates();
      data_.running_total = answer.running_total;
      data_.now_s = data_.status.time_s;
      core_use_.add(data_, now_s);
      data_.cores_used = core_use_.used();
      searches_ = take_searches(plan(), data_.status.metrics);
      note_parameters();
    } else {
      data_.status.workers = std::move(before.workers);
      data_.status.metrics = std::move(before.metrics);
    }
    data_.running_total = answer.running_total;
    data_.now_s = data_.status.time_s;
    if (data_.status.failures.size() >= data_.status.failed()) data_.older_failures.clear();
    data_.link = Link::live;
    recorded_ = false;
    rates_.add(data_.status, now_s);
    data_.rates = rates_.rates();
    data_.rate_span_s = rates_.span_s();
  }

  // Reads the parameters from the study when another training begins to report.
  void note_parameters() {
    std::vector<TrainingPlace> places;
    for (const wire::MetricCurve& curve : data_.status.metrics) {
      const TrainingPlace place{curve.array, curve.element};
      if (places.empty() || places.back() != place) places.push_back(place);
    }
    if (places != trainings_) parameters_ = parameter_texts(plan(), places);
    trainings_ = std::move(places);
    data_.training_parameters = parameters_;
    add_searches(searches_, data_.training_parameters);
  }

  void take(wire::WorkersAnswer& answer, double now_s) {
    std::ranges::move(answer.workers, std::back_inserter(history_));
    if (answer.next) return send(wire::WorkersRequest{*answer.next}, std::nullopt, now_s);
    data_.workers = std::move(history_);
    history_.clear();
  }

  void take(wire::ExplainAnswer& answer, double) {
    show_lines("explain " + answer.task, explain_lines(plan(), answer, true, Terminal()));
  }

  void take(wire::Done& done, double now_s) {
    next_light_s_ = now_s;  // show the effect at once
    if (!asked_) return;
    const auto tasks = [](std::uint64_t count) {
      return fmt::format("{} task{}", text::format_count(count), count == 1 ? "" : "s");
    };
    if (asked_->kind == Wish::Kind::pause) notice() = "paused: nothing new starts; p goes on";
    if (asked_->kind == Wish::Kind::unpause) notice() = "the campaign goes on";
    if (asked_->kind == Wish::Kind::retry) notice() = tasks(done.count) + " will run again";
    if (asked_->kind != Wish::Kind::cancel) return;
    notice() = tasks(done.count) + " cancelled";
    if (!asked_->kill && done.running > 0)
      notice() += fmt::format("; {} with workers go on", tasks(done.running));
  }

  void take(wire::Refusal& refusal, double now_s) {
    notice() = refusal.sentence;
    questions_.reset();
    next_tasks_s_ = now_s + kTasks_s;
  }
  template <class Other>
  void take(Other&, double) {}

  // ---- texts

  void show_lines(std::string title, std::vector<std::string> lines) {
    data_.pane = {std::move(title), std::move(lines)};
    const WorkerNames names = worker_names(data_);
    for (std::string& line : data_.pane.lines) line = names.in(printable(line));
  }

  void explain_at_rest(const Wish& wish) {
    try {
      engine::Client client(plan());
      show_lines("explain " + wish.title,
                 explain_lines(plan(), client.explain(wish.task), client.live(), Terminal()));
    } catch (const Error& error) {
      show_lines("explain " + wish.title, {error.what()});
    }
  }

  void show_log(const Wish& wish) {
    std::vector<std::string> lines;
    try {
      for (const TaskOutput& output :
           task_output(plan(), {wish.task.array, wish.task.element}, kLogBytes + 1)) {
        add_text("output" + output.out_from, output.out, lines);
        add_text("errors" + output.err_from, output.err, lines);
      }
    } catch (const Error& error) {
      lines = {error.what()};
    }
    for (std::string& line : lines) line = printable(line);
    data_.pane = {"what " + wish.title + " printed", std::move(lines)};
  }

  static void add_text(const std::string& title, const std::string& bytes, std::vector<std::string>& lines) {
    if (bytes.empty()) return;
    lines.push_back("== " + title);
    for (std::string& line : text::split(text::trim(text::tail(bytes, kLogBytes)), '\n'))
      lines.push_back(std::move(line));
  }

  fs::path campaign_;
  std::optional<specs::Plan> plan_;
  TopData data_;
  RateHistory rates_;
  WorkerRates worker_rates_;
  CoreUse core_use_;
  std::string step_;                        // the open one; empty: none was opened
  std::optional<TaskQuestions> questions_;  // under way
  double next_tasks_s_ = 0;                 // when a list of tasks is read again
  std::vector<TrainingPlace> trainings_;    // the trainings of parameters_
  std::map<TrainingPlace, std::string> parameters_;
  std::map<TaskPlace, SearchProgress> searches_;
  std::optional<wire::ClientSocket> socket_;
  std::size_t attempts_ = 0;      // number of attempts to connect: addresses are tried in turn
  std::uint64_t epoch_ = 0;       // the coordinator behind the socket
  std::uint64_t lost_epoch_ = 0;  // the coordinator that was lost last
  double connect_again_s_ = 0;    // when to connect to that one again
  double read_again_s_ = 0;
  double notice_until_s_ = 0;
  bool recorded_ = false;      // the record has been read since the last coordinator
  double asked_at_s_ = 0;      // 0: no question is under way
  std::optional<Wish> asked_;  // the question under way, if a key asked it
  bool whole_asked_ = false;
  View view_ = View::steps;  // the view of the last whole question
  double next_light_s_ = 0, next_whole_s_ = 0, next_history_s_ = 0;
  std::deque<Wish> wishes_;
  std::vector<wire::WorkerView> history_;  // pages of the workers so far
};

}  // namespace

std::unique_ptr<Feed> live_feed(const fs::path& campaign) {
  return std::make_unique<LiveFeed>(campaign);
}

namespace {

TaskQuestions questions(const specs::Plan& plan, std::string step, specs::ArrayId first, specs::ArrayId last,
                        TaskQuestions::Wanted wanted) {
  const auto name_of = [&plan](specs::ArrayId array, specs::Element element) {
    return array < plan.array_count() ? specs::task_name(plan, array, element)
                                      : std::string("a removed task");
  };
  return {std::move(step), first, last, wanted, name_of};
}

specs::ArrayId last_array(const specs::Plan& plan) {
  return static_cast<specs::ArrayId>(std::max<std::size_t>(plan.array_count(), 1) - 1);
}

}  // namespace

TaskQuestions questions_about_step(const specs::Plan& plan, const std::string& step) {
  using Wanted = TaskQuestions::Wanted;
  const auto found = std::ranges::find(plan.steps(), step, &specs::PlannedStep::name);
  if (found == plan.steps().end()) return questions(plan, step, 0, last_array(plan), Wanted::failures);
  const specs::ArrayId last = found->first_array + found->arrays - 1;
  return questions(plan, step, found->first_array, last, Wanted::failures_and_slowest);
}

TaskQuestions questions_about_failures(const specs::Plan& plan) {
  return questions(plan, "", 0, last_array(plan), TaskQuestions::Wanted::failures);
}

StepTasks all_answers(engine::Client& client, TaskQuestions questions) {
  while (const auto request = questions.next()) {
    if (const auto* page = std::get_if<wire::TasksRequest>(&*request)) questions.take(client.tasks(*page));
    if (const auto* page = std::get_if<wire::UsageRequest>(&*request)) questions.take(client.usage(*page));
  }
  return questions.tasks();
}

}  // namespace wflow::cli::top
