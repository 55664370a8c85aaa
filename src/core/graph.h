// The IR: values, nodes and graphs. Plain data; what the operators mean is in ops/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/attribute.h"
#include "core/epilogue.h"
#include "core/origin.h"
#include "core/shape.h"

namespace evn {

struct OpDef;  // ops/op.h

using ValueId = std::int32_t;
inline constexpr ValueId kNoValue = -1;  // an optional input that is not given

struct Value {
  std::string name;
  DType dtype = DType::kUndefined;  // kUndefined: not known yet
  bool has_shape = false;           // the rank is known
  Origin origin = Origin::kUnknown;
  Shape shape;                       // -1 where a dim is not known
  std::vector<std::string> symbols;  // per dim, the name of an unknown one or ""; may be empty
  WeightPtr constant;                // the value itself, when it is a constant
  Wraps wraps;                       // sequences, optionals and maps have no shape
};

struct Node {
  std::string name;  // unique in its graph; made up when the model gives none
  std::string op_type;
  std::string domain;    // "" is ai.onnx
  std::string overload;  // of a call of one of the model's functions
  std::string
      model_op;  // the model's operator, where a rewrite has put one on bytes in its place; rules match either. "": op_type is it
  int since_version = 0;         // the domain's opset version that applies; 0 until graph/validate: the one that the model imports
  const OpDef* op = nullptr;     // set by graph/validate
  std::vector<ValueId> inputs;   // kNoValue: not given
  std::vector<ValueId> outputs;  // kNoValue: not wanted
  std::vector<Attribute> attributes;     // as the model gives them
  std::vector<AttributeValue> resolved;  // by index into the op's attribute table, defaults filled in; set by graph/validate
  Epilogue epilogue;                     // fused element-wise steps, applied to output 0 in order
  std::uint32_t rewrites = 0;            // bit i: the i-th of passes() (graph/passes) made or changed it
  std::uint32_t fingerprint = 0;         // of what that goes by
  std::vector<std::string> fused;        // names of the nodes that were folded into this one, for explain
  std::string part_of;                   // the node that devices share, of which this is a part (graph/cut_node.h); "": it is whole
  std::int32_t part = -1;    // number of its device (LoadedModel::parts); -1: it hands operands out or puts results together
  std::int32_t region = -1;  // index into Graph::regions; -1: runs always
  // The body of Loop, Scan and SequenceMap: the graph that is run many times, this node's own. Its last inputs are what it uses of
  // the graphs around it, which are also the node's last inputs (graph/bodies).
  std::shared_ptr<Graph> body;
  std::int32_t captures = 0;  // how many of the inputs these are
};

// One branch of an If. Its nodes stand among the others (graph/inline_if) and run only when the branch is taken; Merge nodes hand
// on what it made. The two branches of If number n are the regions 2n (then) and 2n + 1 (else); the condition is input 0 of any
// Merge with that number.
struct Region {
  std::int32_t parent = -1;
};

struct Graph {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;  // in topological order after graph/validate
  std::vector<Region> regions;
  std::vector<ValueId> inputs;  // without initializers
  std::vector<ValueId> outputs;
};

struct OpsetImport {
  std::string domain;
  std::int64_t version = 0;
};

struct MetadataEntry {
  std::string key;
  std::string value;
};

// A function of the model. (domain, name, overload) is unique. The values that its body's inputs and outputs are called by are
// distinct; the nodes' versions come from `opsets`.
struct Function {
  std::string domain;
  std::string name;
  std::string overload;
  std::vector<OpsetImport> opsets;
  std::vector<Attribute> defaults;  // of those attributes that have one
  Graph body;
};

// An input of a model that has an initializer, which is its value unless a run gives another.
struct InputDefault {
  Value declared;           // as the input is declared
  WeightPtr value;          // where the input is open; null: it is a constant of the graph
  std::int32_t input = -1;  // position among Graph::inputs, behind those without a default; -1: it is a constant of the graph
};

// What a model file holds.
struct Model {
  std::int64_t ir_version = 0;
  std::string producer;
  std::vector<OpsetImport> opsets;
  std::vector<MetadataEntry> metadata;
  std::vector<Function> functions;     // those that are called, until graph/expand_functions has put them in place
  std::vector<InputDefault> defaults;  // inputs with an initializer, in the model's order
  std::string callers_node;      // set by graph/validate: the first node whose operator runs on the caller's thread only; "": none
  std::string callers_operator;  // of it: domain::name
  bool has_gradients = false;    // set by graph/validate: a Gradient was replaced in the graph or a body
  Graph graph;
};

}  // namespace evn
