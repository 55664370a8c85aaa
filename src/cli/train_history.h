// How a training went: what is reported and drawn.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/train_plan.h"

namespace evn::cli {

struct TrainEpoch {
  std::uint64_t number = 0;  // from 1 on
  std::uint64_t steps = 0;   // batches that were learned from, in this run
  std::uint64_t skipped = 0;
  std::uint64_t samples = 0;
  double seconds = 0;            // without validation
  double loss = 0;               // the mean over samples of what was not skipped; a NaN where all was
  double rate = 0;               // of the last step
  std::uint64_t last_batch = 0;  // how many batches there have been, those before this run included
  bool is_validated = false;
  double validation_loss = 0;
  double accuracy = -1;  // a share; negative: the loss has none

  double rate_of_samples() const { return seconds > 0 ? static_cast<double>(samples) / seconds : 0; }
};

// The loss and the rate by batch; where there are many, points are means over equally many.
class TrainCurve {
 public:
  struct Point {
    double batch = 0, loss = 0, rate = 0;
  };
  void add(std::uint64_t batch, double loss, double rate);
  // The points, that of a stretch that is not full yet included.
  std::vector<Point> points() const;

 private:
  static constexpr std::size_t kMostPoints = 1000;
  std::vector<Point> points_;
  Point sum_;
  std::uint64_t count_ = 0;  // in the sum
  std::uint64_t in_a_point_ = 1;
};

struct TrainHistory {
  std::vector<TrainEpoch> epochs;
  TrainCurve curve;
  std::uint64_t batches_of_epoch = 0;
  std::uint64_t samples = 0, validation_samples = 0;
  double seconds = 0;  // all of it
  bool is_interrupted = false;

  const TrainEpoch* best() const;  // of the validated ones by accuracy, else by loss; nullptr: none was
};

// "epoch 2/5: loss 0.1234, rate 0.00095, validation loss 0.15, accuracy 95.31%, 8,120 samples/s"
std::string epoch_line(const TrainPlan& plan, const TrainEpoch& epoch);
std::string train_text(const TrainPlan& plan, const TrainHistory& history);
// `trainer`: what evn_trainer_describe says as JSON.
std::string train_json(const TrainPlan& plan, const TrainHistory& history, const std::string& trainer);
// The loss, the rate and the accuracy over the batches, as an SVG picture.
std::string train_picture(const TrainPlan& plan, const TrainHistory& history);

}  // namespace evn::cli
