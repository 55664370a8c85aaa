// Models of a size that a test chooses: each is the worst of its kind for an algorithm that compares all with all.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/model/onnx_writer.h"

namespace evn::test {

struct SizedModel {
  const char* name;
  std::function<OnnxWriter(int n)> make;  // with an input "x"; strings, or numbers in one dim "n" where the shape says no more
};

const std::vector<SizedModel>& sized_models();

}  // namespace evn::test
