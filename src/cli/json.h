// Reads JSON that the library has written: explanations and traces.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace evn::cli {

struct Json {
  enum class Kind { kNull, kBoolean, kNumber, kText, kArray, kObject };

  Kind kind = Kind::kNull;
  std::string text;                                // kText; of kNumber and kBoolean what stands there
  std::vector<Json> elements;                      // kArray
  std::vector<std::pair<std::string, Json>> keys;  // kObject, in the order of the text

  // The value of a key, or null's where there is none.
  const Json& operator[](std::string_view key) const;
};

// Throws a Failure that names the place where it is no JSON, or is nested too deep.
Json parse_json(std::string_view text);

}  // namespace evn::cli
