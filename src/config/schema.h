// The table of the configuration's keys. The reader, the messages and the check of config/schema.yaml all go by it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/setting.h"

namespace evn {

struct KeyValue : SettingValue {
  std::size_t offset = 0;  // where it stands
  int line = 0;
};

// A configuration while it is read, with the places that later checks point at.
struct ConfigDraft {
  Config config;
  std::vector<std::size_t> device_places;  // of the names of config.devices
  struct RulePlaces {
    std::size_t rule = 0;
    std::size_t device = 0;
    std::size_t split = 0;    // 0: not set
    std::size_t policy = 0;   // 0: not set
    std::size_t measure = 0;  // 0: not set, or false
  };
  std::vector<RulePlaces> rule_places;  // as config.rules
  std::size_t default_place = 0;
  std::size_t split_place = 0;
  std::size_t measure_place = 0;  // of session.measure; 0: not set, or false
  struct ModelPlaces {
    std::size_t name = 0;
    std::size_t path = 0;
    std::size_t device = 0;
    std::size_t cache = 0;
    std::size_t batching = 0;  // 0: not set
    std::size_t measure = 0;   // 0: not set, or false
  };
  std::vector<ModelPlaces> model_places;  // as config.models
  std::size_t buckets_place = 0;
};

struct KeyRow {
  Setting setting;
  void (*store)(ConfigDraft&,
                const KeyValue&) = nullptr;  // devices, rules, models: the last of the draft. nullptr: nothing to store
};

// All keys but the options of device types, which stand below `devices.*` too; the words of devices.*.type are the types' names.
std::span<const KeyRow> config_schema();

// Its name in config/schema.yaml and in messages.
const char* setting_type_name(SettingType type);

}  // namespace evn
