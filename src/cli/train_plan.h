// What evener train is asked to do.
#pragma once

#include <string>
#include <vector>

#include "cli/library.h"
#include "evener/train.h"

namespace evn::cli {

struct TrainPlan {
  explicit TrainPlan(const Arguments& arguments);  // throws a usage Failure
  TrainPlan(const TrainPlan&) = delete;
  TrainPlan& operator=(const TrainPlan&) = delete;

  // What depends on the number of steps and was not given: the schedule's length, the times of pruning. `batches`: of an epoch.
  void set_steps(std::uint64_t batches);
  bool writes() const { return options.rank == 0; }  // the other ranks are silent

  std::string model, data, validation, labels, checkpoint, resume, output, report, picture;
  std::uint64_t epochs = 1;
  std::uint64_t every = 0;  // batches between two checkpoints; 0: after each epoch
  std::uint32_t batch = 32;
  evn_trainer_options options = EVN_TRAINER_OPTIONS_INIT;  // refers to what follows

 private:
  void read_numbers(const Arguments& arguments);
  void read_ranks(const Arguments& arguments);

  std::vector<std::string> frozen_, trainable_;
  std::vector<const char*> frozen_names_, trainable_names_;
  bool has_schedule_steps_ = false, has_prune_begin_ = false, has_prune_steps_ = false;
};

const char* train_loss_name(evn_loss loss);
const char* train_optimizer_name(evn_optimizer optimizer);
const char* train_schedule_name(evn_schedule schedule);

}  // namespace evn::cli
