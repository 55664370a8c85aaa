// What a model file says, read without asking whether this library can run it: operators of all graphs and functions, inputs and
// outputs of any type, sizes of weights. Hostile bytes are its normal input, and it allocates little more than the names.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "model/load.h"

namespace evn {

struct SurveyDim {
  std::int64_t value = -1;  // -1: not known
  std::string symbol;       // the name of one that is not known, or ""
};

// An input or output of the main graph.
struct SurveyValue {
  std::string name;
  std::string type;  // "float32", "sequence(int64)", "" when the model does not say
  bool has_shape = false;
  std::vector<SurveyDim> dims;
};

struct SurveyNode {
  std::string name;  // its own, cut to 128 bytes; made up of operator and number when the model gives none
  std::string op_type;
  std::string domain;    // "" is ai.onnx
  std::size_t body = 0;  // index into Survey::bodies
  bool is_call = false;  // of a function of the model's own
};

// A list of nodes: the main graph, the body of a node, or a function of the model's own.
struct SurveyBody {
  static constexpr std::size_t kNoNode = SIZE_MAX;
  std::string name;  // "" of the main graph, "then" of a branch, "my.domain::gelu" of a function
  std::size_t node;  // index into Survey::nodes of the node that has the body; kNoNode: the main graph or a function
  std::shared_ptr<const std::map<std::string, std::int64_t>> opsets;  // imported versions by domain
};

struct SurveyWeights {
  std::uint64_t tensors = 0;
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;
  std::uint64_t external_bytes = 0;  // of `bytes`, in other files
};

struct SurveyFunction {
  std::string domain;
  std::string name;
  std::string overload;
};

struct Survey {
  std::int64_t ir_version = 0;
  std::string producer;
  std::vector<OpsetImport> opsets;
  std::vector<SurveyBody> bodies;     // the first is the main graph
  std::vector<SurveyNode> nodes;      // of the graph, of bodies, and of functions that are called
  std::vector<SurveyValue> inputs;    // without initializers
  std::vector<SurveyValue> defaults;  // inputs with initializers, from IR version 4 on
  std::vector<SurveyValue> outputs;
  std::vector<SurveyFunction> functions;         // that are called
  std::map<std::string, SurveyWeights> weights;  // by element type: initializers, and tensors in attributes
  std::set<std::string> external_files;          // as the model names them
};

// Path to the nodes of a body: "", "if_3/then/", "my.domain::gelu/"; cut to 512 bytes at the front.
std::string body_path(const Survey& survey, std::size_t body);

// Whether an operator stands above a function of its name.
using IsOperator = std::function<bool(const std::string& domain, const std::string& name, std::int64_t opset)>;

// Throws EVN_ERROR_INVALID_MODEL, EVN_ERROR_LIMIT (bytes, nesting; nodes, which limits bodies as well), EVN_ERROR_TIMEOUT. Reads no
// other file.
Survey survey_onnx(std::shared_ptr<const void> bytes, std::size_t size, const LoadOptions& options, const IsOperator& is_operator);

}  // namespace evn
