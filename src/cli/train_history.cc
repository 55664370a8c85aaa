#include "cli/train_history.h"

#include <cmath>

#include "cli/failure.h"
#include "cli/load_report.h"
#include "cli/plot.h"

namespace evn::cli {
namespace {

// "12,345"
std::string grouped(double number) {
  std::string text = std::to_string(static_cast<std::uint64_t>(std::llround(number)));
  for (std::size_t at = text.size(); at > 3; text.insert(at, ",")) at -= 3;
  return text;
}

// A number of JSON, which has no NaN.
void put_number(std::string* to, const char* key, double value) {
  if (std::isfinite(value)) {
    put(to, ",\"%s\":%.9g", key, value);
  } else {
    put(to, ",\"%s\":null", key);
  }
}

void put_text(std::string* to, const char* key, const std::string& text) {
  put(to, ",\"%s\":", key);
  *to += text.empty() ? "null" : json_text(text);
}

}  // namespace

void TrainCurve::add(std::uint64_t batch, double loss, double rate) {
  sum_.batch += static_cast<double>(batch);
  sum_.loss += loss;
  sum_.rate += rate;
  if (++count_ < in_a_point_) return;
  const auto n = static_cast<double>(count_);
  points_.push_back({sum_.batch / n, sum_.loss / n, sum_.rate / n});
  sum_ = {};
  count_ = 0;
  if (points_.size() < kMostPoints) return;
  for (std::size_t i = 0; i < points_.size() / 2; ++i) {
    const Point &a = points_[2 * i], &b = points_[2 * i + 1];
    points_[i] = {(a.batch + b.batch) / 2, (a.loss + b.loss) / 2, (a.rate + b.rate) / 2};
  }
  points_.resize(points_.size() / 2);
  in_a_point_ *= 2;
}

std::vector<TrainCurve::Point> TrainCurve::points() const {
  std::vector<Point> all = points_;
  const auto n = static_cast<double>(count_);
  if (count_ > 0) all.push_back({sum_.batch / n, sum_.loss / n, sum_.rate / n});
  return all;
}

const TrainEpoch* TrainHistory::best() const {
  const TrainEpoch* best = nullptr;
  for (const TrainEpoch& e : epochs) {
    if (!e.is_validated || !std::isfinite(e.validation_loss)) continue;
    if (best == nullptr || e.accuracy > best->accuracy ||
        (e.accuracy == best->accuracy && e.validation_loss < best->validation_loss)) {
      best = &e;
    }
  }
  return best;
}

std::string epoch_line(const TrainPlan& plan, const TrainEpoch& e) {
  std::string line;
  put(&line, "epoch %llu/%llu: loss %.6g, learning rate %.4g", wide(e.number), wide(plan.epochs), e.loss, e.rate);
  if (e.is_validated) put(&line, ", validation loss %.6g", e.validation_loss);
  if (e.accuracy >= 0) put(&line, ", accuracy %.2f%%", 100 * e.accuracy);
  line += ", " + grouped(e.rate_of_samples()) + " samples/s";
  if (e.skipped > 0) put(&line, ", %llu steps skipped: the loss or a gradient is not finite", wide(e.skipped));
  return line;
}

std::string train_text(const TrainPlan& plan, const TrainHistory& history) {
  std::uint64_t steps = 0, skipped = 0;
  double samples = 0, seconds = 0;
  for (const TrainEpoch& e : history.epochs) {
    steps += e.steps;
    skipped += e.skipped;
    samples += static_cast<double>(e.samples);
    seconds += e.seconds;
  }
  std::string text;
  put(&text, "trained by %s, %s, %s rate: %llu batches (%llu skipped) in %.1f s, ", train_loss_name(plan.options.loss),
      train_optimizer_name(plan.options.optimizer), train_schedule_name(plan.options.schedule), wide(steps), wide(skipped),
      history.seconds);
  text += grouped(seconds > 0 ? samples / seconds : 0) + " samples/s\n";
  if (const TrainEpoch* best = history.best()) {
    const TrainEpoch& last = history.epochs.back();
    if (last.is_validated) put(&text, "validation: loss %.6g", last.validation_loss);
    if (last.is_validated && last.accuracy >= 0) put(&text, ", accuracy %.2f%%", 100 * last.accuracy);
    put(&text, "%s epoch %llu", last.is_validated ? "; best in" : "validation: best in", wide(best->number));
    if (best->accuracy >= 0) put(&text, " with %.2f%%", 100 * best->accuracy);
    text += "\n";
  }
  return text;
}

std::string train_json(const TrainPlan& plan, const TrainHistory& history, const std::string& trainer) {
  const evn_trainer_options& o = plan.options;
  std::string json = "{\"model\":" + json_text(plan.model);
  put_text(&json, "data", plan.data);
  put_text(&json, "validation", plan.validation);
  put_text(&json, "output", history.is_interrupted ? "" : plan.output);
  put_text(&json, "checkpoint", plan.checkpoint);
  put(&json, ",\"samples\":%llu,\"validation_samples\":%llu,\"batch\":%u,\"batches_of_epoch\":%llu,\"seed\":%llu",
      wide(history.samples), wide(history.validation_samples), plan.batch, wide(history.batches_of_epoch), wide(o.seed));
  put(&json, ",\"schedule_steps\":%llu,\"warmup_steps\":%llu,\"ranks\":%u,\"interrupted\":%s", wide(o.schedule_steps),
      wide(o.warmup_steps), o.rank_count == 0 ? 1 : o.rank_count, history.is_interrupted ? "true" : "false");
  put_number(&json, "seconds", history.seconds);
  json += ",\"epochs\":[";
  for (const TrainEpoch& e : history.epochs) {
    put(&json, "%s{\"epoch\":%llu,\"batches\":%llu,\"skipped\":%llu,\"samples\":%llu", &e == history.epochs.data() ? "" : ",",
        wide(e.number), wide(e.steps), wide(e.skipped), wide(e.samples));
    put_number(&json, "seconds", e.seconds);
    put_number(&json, "samples_per_second", e.rate_of_samples());
    put_number(&json, "loss", e.loss);
    put_number(&json, "learning_rate", e.rate);
    put_number(&json, "validation_loss", e.is_validated ? e.validation_loss : NAN);
    put_number(&json, "accuracy", e.accuracy >= 0 ? e.accuracy : NAN);
    json += "}";
  }
  json += "],\"curve\":[";
  const std::vector<TrainCurve::Point> points = history.curve.points();
  for (const TrainCurve::Point& p : points) {
    put(&json, "%s{\"batch\":%.6g", &p == points.data() ? "" : ",", p.batch);
    put_number(&json, "loss", p.loss);
    put_number(&json, "learning_rate", p.rate);
    json += "}";
  }
  return json + "],\"trainer\":" + trainer + "}";
}

}  // namespace evn::cli
