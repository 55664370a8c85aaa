// Loading for tests: from exact-size blocks, with the status as the result.
#pragma once

#include <string>

#include "base/error.h"
#include "graph/infer.h"
#include "graph/validate.h"
#include "model/load.h"
#include "tests/model/onnx_writer.h"

namespace evn::test {

inline Model load_bytes(const std::string& bytes, const LoadOptions& options = {}) {
  return load_onnx(exact_copy(bytes), bytes.size(), options);
}

// What reading alone comes to.
inline Error read_error(const std::string& bytes, const LoadOptions& options = {}) {
  try {
    load_bytes(bytes, options);
  } catch (const Error& e) {
    return e;
  }
  Error ok;
  ok.status = EVN_OK;
  return ok;
}
inline evn_status read_status(const std::string& bytes, const LoadOptions& options = {}) {
  return read_error(bytes, options).status;
}

// What reading, validation and inference come to.
inline Error load_error(const std::string& bytes, const LoadOptions& options = {}) {
  try {
    Model model = load_bytes(bytes, options);
    validate_model(model, options.limits);
    infer_graph(model.graph);
  } catch (const Error& e) {
    return e;
  }
  Error ok;
  ok.status = EVN_OK;
  return ok;
}
inline evn_status load_status(const std::string& bytes, const LoadOptions& options = {}) {
  return load_error(bytes, options).status;
}

}  // namespace evn::test
