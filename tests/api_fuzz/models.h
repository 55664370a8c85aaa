// Small models of many kinds for random calls.
#pragma once

#include <span>
#include <string>

namespace evn::fuzz {

struct NamedModel {
  const char* name;  // of its file in the folder of the fuzzer
  std::string bytes;
};

std::span<const NamedModel> models();

}  // namespace evn::fuzz
