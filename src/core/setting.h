// How a value that a host sets by text is written and read: a key of the configuration, an option of a device type.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace evn {

enum class SettingType {
  kMap,    // of the settings whose names continue this one after a dot
  kNames,  // a map from names that the user chooses to what stands at `.*`
  kList,   // a list of what stands at `.*`
  kInteger,
  kBytes,
  kDuration,  // kept in nanoseconds
  kBoolean,
  kText,
  kTexts,     // one text or a list of them
  kIntegers,  // one whole number or a list of them
  kChoice,    // one of `words`
};

// A row of a table.
struct Setting {
  const char* name;  // a path such as "limits.nodes"; `*` stands for a name or an element
  SettingType type;
  const char* fallback = "";      // the default as it would be written; nullptr: it must be given; "": none, as for maps and lists
  std::uint64_t min = 0;          // of a number
  std::uint64_t max = 0;          // of a number
  const char* words = "";         // kChoice: its words, split by '|'. Numbers: one word that is accepted too, or ""
  std::uint64_t word_number = 0;  // what that word stands for
};

// A value as its setting's type reads it.
struct SettingValue {
  std::uint64_t number = 0;                 // integers, bytes, nanoseconds, booleans, the index of a choice
  std::string text = {};                    // as it was written; not of lists
  std::vector<std::string> texts = {};      // kTexts
  std::vector<std::uint64_t> numbers = {};  // kIntegers
};

}  // namespace evn
