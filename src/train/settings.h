// Options of a trainer, checked and with their defaults.
#pragma once

#include <string>
#include <vector>

#include "evener/train.h"

namespace evn_train {

inline constexpr double kLeastLossScale = 1e-9, kMostLossScale = 1e9;
inline constexpr std::uint32_t kMostRanks = 65536;

struct ParameterGroup {
  std::vector<std::string> names;  // globs
  double rate_factor = 1, weight_decay = 0;
};

struct Settings {
  evn_trainer_options given;  // numbers alone are valid after the creation
  std::string output, device, collective, collective_store;
  std::vector<std::string> trainable, frozen, replicas;
  std::vector<ParameterGroup> groups;  // the last one is of all that no other has
  std::uint32_t accumulate = 1;

  bool accumulates() const { return accumulate > 1; }
};

// Throws EVN_ERROR_INVALID_ARGUMENT, EVN_ERROR_UNSUPPORTED.
Settings read_settings(const evn_trainer_options& options);

const char* loss_name(evn_loss loss);
const char* optimizer_name(evn_optimizer optimizer);
const char* schedule_name(evn_schedule schedule);

// Whether the name fits one of the globs.
bool fits_any(const std::vector<std::string>& patterns, const std::string& name);

}  // namespace evn_train
