// The one table of the configuration's keys. The reader, the messages and the check of config/schema.yaml all go by it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"

namespace evn {

enum class KeyType {
  kMap,    // of the keys whose paths continue this one
  kNames,  // a map from names that the user chooses to what stands at `.*`
  kList,   // a list of what stands at `.*`
  kInteger,
  kBytes,
  kDuration,  // kept in nanoseconds
  kBoolean,
  kString,
  kStrings,  // one text or a list of them
  kChoice,   // one of `words`
};

// A value as its key's type reads it.
struct KeyValue {
  std::uint64_t number = 0;        // integers, bytes, nanoseconds, booleans, the index of a choice
  std::string text;                // strings and choices
  std::vector<std::string> texts;  // kStrings
  std::size_t offset = 0;          // where it stands
  int line = 0;
};

// A configuration while it is read, with the places that later checks point at.
struct ConfigDraft {
  Config config;
  struct DevicePlaces {
    std::size_t name = 0;
    std::size_t threads = 0;  // 0: not set
    std::size_t spin = 0;
    std::size_t match = 0;    // 0: not set
    std::size_t clblast = 0;  // 0: not set
  };
  std::vector<DevicePlaces> device_places;  // as config.devices
  struct RulePlaces {
    std::size_t rule = 0;
    std::size_t device = 0;
    std::size_t policy = 0;  // 0: not set
  };
  std::vector<RulePlaces> rule_places;  // as config.rules
  std::size_t default_place = 0;
};

struct KeyRow {
  const char* path;  // `*` stands for a name or an element
  KeyType type;
  const char* fallback;  // the default as it would be written; "" for maps and lists, nullptr where the key must be there
  std::uint64_t min;     // of a number
  std::uint64_t max;
  const char* words;                             // kChoice: its words, split by '|'. Numbers: one word that is accepted too, or ""
  std::uint64_t word_number;                     // what that word stands for
  void (*store)(ConfigDraft&, const KeyValue&);  // devices and rules: the last of the draft. nullptr: nothing to store
};

std::span<const KeyRow> config_schema();

// Its name in config/schema.yaml and in messages.
const char* key_type_name(KeyType type);

}  // namespace evn
