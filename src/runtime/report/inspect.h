// What a model needs, told without a session and also when it cannot run: evn_model_inspect.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/survey.h"
#include "runtime/loaded/model.h"

namespace evn {

struct InspectRequest {
  ModelSource source;                                 // its data stays for the call
  std::vector<std::pair<std::string, Shape>> shapes;  // of inputs, by name
};

// "ai.onnx" for "".
std::string shown_domain(const std::string& domain);

// An operator that the model uses, with all its nodes.
struct OperatorUse {
  std::string domain;  // "" is ai.onnx
  std::string name;
  std::int64_t opset = 0;          // the domain's version that the model, or the function around it, imports; 0: not imported
  int since = 0;                   // the version of the operator that applies; 0: not known
  std::string refusal;             // why it is not supported, or ""
  std::vector<std::size_t> nodes;  // indices into Survey::nodes
};

// A node of an operator that is supported, but not as it is used there.
struct RefusedNode {
  std::string name;
  std::string reason;
};

// What a run takes, for the shapes that are known. Memory is that of the CPU device.
struct Estimate {
  bool complete = true;            // all nodes are counted
  std::size_t nodes_left_out = 0;  // not supported
  std::size_t nodes_of_unknown_shape = 0;
  std::string first_unknown;                     // the first of these
  std::size_t bodies_of_unknown_iterations = 0;  // counted as one iteration
  double multiply_adds = 0;
  std::map<std::string, double> by_operator;  // those that have any
  std::uint64_t weights_bytes = 0;            // the file and what is made of it while loading
  std::uint64_t packed_bytes = 0;             // copies that kernels want
  std::uint64_t arena_bytes = 0;              // intermediate values and scratch, after sharing
  std::uint64_t input_bytes = 0;
  std::uint64_t output_bytes = 0;
  std::uint64_t peak_bytes() const { return weights_bytes + packed_bytes + arena_bytes + input_bytes + output_bytes; }
};

struct Inspection {
  std::string file_name;
  Survey survey;
  std::vector<OperatorUse> operators;  // sorted by domain, name, opset
  std::vector<RefusedNode> refused;
  std::optional<Error> error;                         // what loading ends with; none: it loads
  std::vector<std::pair<std::string, Shape>> shapes;  // that the estimate is for: of the main graph's inputs
  std::optional<Estimate> estimate;                   // none: the graph cannot be followed
};

// Throws what survey_onnx throws, EVN_ERROR_INVALID_ARGUMENT (shapes that do not fit), EVN_ERROR_OUT_OF_MEMORY, EVN_ERROR_IO (the
// file itself), EVN_ERROR_TIMEOUT.
Inspection inspect_model(Runtime& runtime, const InspectRequest& request);

// estimate.cc. The graph is validated and optimized.
struct ModelBytes {
  std::span<const unsigned char> all;  // that weights may lie in
  std::size_t held = 0;                // of them in memory
  bool may_let_go = false;             // weights of which all users have packed copies are not held (plain_weights.h)
};
Estimate estimate_run(const Graph& graph, Runtime& runtime, const ModelBytes& bytes);

// inspect_render.cc
std::string render_inspection(const Inspection& inspection, evn_format format);

}  // namespace evn
