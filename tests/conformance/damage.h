// A conformance case as a model in a file, and the means to damage it: what the hostile tests of operators share.
#pragma once

#include <string>
#include <vector>

#include "evener/evener.h"
#include "tests/conformance/case.h"
#include "tests/model/onnx_writer.h"

namespace evn::conformance {

// One node "n" with its operands. Everything may be changed before it becomes a model.
struct Draft {
  struct Input {
    TensorDesc desc;  // no dtype: not given
    test::Bytes bytes;
    bool constant = false;
  };
  struct Given {
    std::string name;
    test::Proto proto;
    AttributeValue value;
  };
  const OpDef* op = nullptr;
  int opset = 0;
  std::vector<Input> inputs;
  std::vector<Given> attributes;
  int output_count = 1;
  bool symbolic = false;  // declare no dim of an input, so that shapes are first seen when a run is planned

  std::string model() const;
  std::string describe() const;
  void set(const std::string& name, AttributeValue value);
  Given* find(const std::string& name);
};

Draft make_draft(const Case& c);

// The cases that stand for an operator's version: the first, and the one that gives most. Sorted by table.
std::vector<const Case*> samples(const OpDef& op);

// An AttributeProto of any type but a graph.
test::Proto attribute_proto(const std::string& name, const AttributeValue& value);

// What the C API makes of a draft: loaded, placed and run once.
struct Outcome {
  enum Stage { kLoad, kSession, kRun } stage = kLoad;
  evn_error error = EVN_ERROR_INIT;
  evn_status status() const { return error.status; }
};

// A runtime with small limits.
class Lab {
 public:
  Lab();
  ~Lab();
  Lab(const Lab&) = delete;
  Lab& operator=(const Lab&) = delete;

  Outcome use(const Draft& draft);
  // What the CPU device had at most.
  std::uint64_t peak_bytes() const;

 private:
  evn_runtime runtime_ = nullptr;
  evn_device cpu_ = nullptr;

  evn_status run(evn_session session, const Draft& draft, evn_error* error);
};

}  // namespace evn::conformance
