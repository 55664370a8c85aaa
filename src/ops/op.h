// What an operator is to the rest of the library: arity, attributes, dtype rule, shape rule and reference kernel. Each file
// ops/<family>.cc defines `<family>_family`; configure finds it by its name.
#pragma once

#include <cstdint>
#include <span>

#include "base/cancel.h"
#include "base/error.h"
#include "core/graph.h"
#include "core/text.h"

namespace evn {

// -------------------------------------------------------------------------------------------------- attributes --

// One row of an operator's attribute table. `required`: the model must give it. Otherwise a scalar has the default that stands
// here, and a list, string without default, tensor or graph resolves to AttributeType::kNone when it is not given.
struct AttributeSpec {
  const char* name;
  AttributeType type;
  bool required = false;
  std::int64_t default_int = 0;
  float default_float = 0;
  const char* default_string = nullptr;
};

constexpr AttributeSpec int_attribute(const char* name, std::int64_t value) { return {name, AttributeType::kInt, false, value}; }
constexpr AttributeSpec float_attribute(const char* name, float value) { return {name, AttributeType::kFloat, false, 0, value}; }
constexpr AttributeSpec string_attribute(const char* name, const char* value) {
  return {name, AttributeType::kString, false, 0, 0, value};
}
constexpr AttributeSpec optional_attribute(const char* name, AttributeType type) { return {name, type}; }
constexpr AttributeSpec required_attribute(const char* name, AttributeType type) { return {name, type, true}; }

// Read a resolved attribute by its index in the table. EVN_CHECKs the type.
std::int64_t attr_int(const Node& node, int index);
float attr_float(const Node& node, int index);
const std::string& attr_string(const Node& node, int index);
std::span<const std::int64_t> attr_ints(const Node& node, int index);    // empty when not given
std::span<const float> attr_floats(const Node& node, int index);         // empty when not given
std::span<const std::string> attr_strings(const Node& node, int index);  // empty when not given
const Weight* attr_tensor(const Node& node, int index);                  // nullptr when not given
bool attr_given(const Node& node, int index);                            // has a value, default included

// ----------------------------------------------------------------------------------------------------- tensors --

// A tensor in host memory, row-major and aligned for its dtype. An optional input that is not given has no dtype.
struct ConstTensor {
  TensorDesc desc;
  const void* data = nullptr;
  bool present() const { return desc.dtype != DType::kUndefined; }
  template <typename T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
};

struct MutableTensor {
  TensorDesc desc;
  void* data = nullptr;
  bool present() const { return desc.dtype != DType::kUndefined; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

// ------------------------------------------------------------------------------------------------- shape rules --

// What a shape rule sees. Dims may be -1 (unknown) while a model loads; all are known when a run is planned, and then all dims of
// the outputs must be known too, or the planner reports a data-dependent shape. Inputs that are absent have no dtype. An input
// whose rank is unknown never reaches a shape rule (the outputs' ranks are then unknown too), but for operators with kOpAnyRank.
struct InferContext {
  const Node& node;
  std::span<const TensorDesc> inputs;
  std::span<const ConstTensor> values;    // per input, its value where it is known now (`data` not null)
  std::span<TensorDesc> outputs;          // dtypes are set already; the rule sets the shapes (and the wraps)
  std::span<const TensorDesc> body = {};  // of an operator with a body: the types of the body's outputs

  bool has_input(int i) const { return static_cast<std::size_t>(i) < inputs.size() && inputs[i].dtype != DType::kUndefined; }
  const Shape& shape(int i) const { return inputs[i].shape; }
  // The value of a known integer input (int32 or int64) as a shape-like list; false when it is not known now. Throws
  // EVN_ERROR_INVALID_MODEL on another dtype or more than kMaxValues elements.
  static constexpr int kMaxValues = 64;
  struct Ints {
    int count = 0;
    std::int64_t v[kMaxValues];
  };
  bool int_value(int i, Ints* out) const;
  // For an output whose rank cannot be told yet (its shape is an input of unknown length).
  void set_unknown_rank(int i) const { outputs[i].shape = Shape::of_rank(1, kUnknownRank); }
  static constexpr std::int64_t kUnknownRank = -2;
  static bool is_unknown_rank(const Shape& s) { return s.rank() == 1 && s[0] == kUnknownRank; }
};

// Sets each output's shape to that of input 0. A ready-made shape rule.
void infer_same_shape(InferContext& c);

// Broadcasts dims of which some may be unknown: unknown against 1 is unknown, unknown against n > 1 is n.
Shape broadcast_partial(const Shape& a, const Shape& b);

// A dimension that an operator computes from another: -1 stays -1.
inline std::int64_t dim_product(std::int64_t a, std::int64_t b) { return a < 0 || b < 0 ? -1 : a * b; }

// ------------------------------------------------------------------------------------------------ the operator --

// What a run lends to the reference kernels of its nodes.
struct RunServices {
  TextPool* texts = nullptr;      // keeps the strings that they make. nullptr: the operator that asks for it is refused
  std::uint64_t random_seed = 0;  // of evn_run_options, and in a body of the iteration
};

struct ReferenceContext {
  const Node& node;
  std::span<const ConstTensor> inputs;  // [i].present() is false where an optional input is not given
  std::span<const MutableTensor> outputs;
  RunServices services = {};
  // Which parts are to be computed, where the operator has `parts`. `end` may lie beyond the last.
  std::int64_t begin = 0;
  std::int64_t end = INT64_MAX;

  // A string that an operator makes.
  TextElement add_text(std::string_view bytes) const {
    EVN_CHECK(services.texts != nullptr);
    return services.texts->add(bytes);
  }

  const ConstTensor& input(int i) const { return inputs[i]; }
  const MutableTensor& output(int i = 0) const { return outputs[i]; }
  bool has_input(int i) const { return static_cast<std::size_t>(i) < inputs.size() && inputs[i].present(); }
};

// |a-b| <= rtol*|b| + atol*max|b| for a kernel against the reference, float32. Integer outputs are always exact.
struct Tolerance {
  double rtol = 0;
  double atol = 0;
};

// A set of dtypes, for tables.
constexpr std::uint32_t dtype_bit(DType d) { return 1u << static_cast<int>(d); }
inline constexpr std::uint32_t kFloats = dtype_bit(DType::kFloat32) | dtype_bit(DType::kFloat64);
inline constexpr std::uint32_t kSignedInts =
    dtype_bit(DType::kInt8) | dtype_bit(DType::kInt16) | dtype_bit(DType::kInt32) | dtype_bit(DType::kInt64);
inline constexpr std::uint32_t kUnsignedInts =
    dtype_bit(DType::kUint8) | dtype_bit(DType::kUint16) | dtype_bit(DType::kUint32) | dtype_bit(DType::kUint64);
inline constexpr std::uint32_t kNumbers = kFloats | kSignedInts | kUnsignedInts;
// Elements of whole bytes that operators compute with or move.
inline constexpr std::uint32_t kAnyDtype =
    kNumbers | dtype_bit(DType::kBool) | dtype_bit(DType::kFloat16) | dtype_bit(DType::kBfloat16);

// And the floating formats of 8 bits, and what is smaller than a byte.
inline constexpr std::uint32_t kFloat8s = dtype_bit(DType::kFloat8E4M3FN) | dtype_bit(DType::kFloat8E4M3FNUZ) |
                                          dtype_bit(DType::kFloat8E5M2) | dtype_bit(DType::kFloat8E5M2FNUZ) |
                                          dtype_bit(DType::kFloat8E8M0);
inline constexpr std::uint32_t kSubByte = dtype_bit(DType::kUint4) | dtype_bit(DType::kInt4) | dtype_bit(DType::kFloat4E2M1) |
                                          dtype_bit(DType::kUint2) | dtype_bit(DType::kInt2);
inline constexpr std::uint32_t kString = dtype_bit(DType::kString);
// Complex numbers: few operators compute with them, those that only move elements take them.
inline constexpr std::uint32_t kComplex = dtype_bit(DType::kComplex64) | dtype_bit(DType::kComplex128);
inline constexpr std::uint32_t kStoredDtype = kAnyDtype | kFloat8s | kSubByte | kString | kComplex;
// What operators take that only move elements (kOpMoves).
inline constexpr std::uint32_t kMoved = kStoredDtype;

inline constexpr int kVariadic = 1 << 20;  // as max_inputs or max_outputs

enum OpFlags : std::uint32_t {
  kOpView = 1,         // output 0 has the bytes of input 0: the planner may share them
  kOpShapeOnly = 2,    // reads input 0's shape and never its bytes
  kOpElementwise = 4,  // output 0 depends, element by element, on the inputs: it may be written over an input of its size
  kOpMerge = 8,        // hands on one of its inputs, as its condition says (ops/merge.h)
  kOpAnyRank = 16,     // its shape rule is called also while ranks of inputs are unknown
  kOpRandom = 32,      // another seed of the run gives another result
  kOpMoves = 64,       // only moves elements: the reference may be given those of less than a byte as bytes (ops/infra/unpack.h)
};

struct HostContext;  // ops/host.h
struct BodyRule;

// Domain of the operators that rewrites make; no model may import it.
inline constexpr const char kInternalDomain[] = "evener";

struct OpDef {
  const char* name;
  const char* domain = "";  // "" is ai.onnx
  int since;                // first opset version that this row describes; the row with the highest `since` <= the import applies
  int min_inputs = 1;
  int max_inputs = 1;
  int min_outputs = 1;
  int max_outputs = 1;
  std::span<const AttributeSpec> attributes = {};
  std::uint32_t dtypes;            // of input 0 (of output 0 where there is no input) that the reference takes
  std::uint32_t value_inputs = 0;  // bit i: a shape depends on the value of input i
  std::uint32_t flags = 0;
  // nullptr: every output has the dtype of input 0. Inputs that are absent are kUndefined.
  DType (*output_dtype)(const Node& node, std::span<const DType> inputs, int output) = nullptr;
  // Throws EVN_ERROR_INVALID_MODEL (or _ARGUMENT where only the caller's shapes can be wrong). Pure, allocates nothing.
  void (*infer)(InferContext& c) = nullptr;
  // Written to be read; accumulates in double. The oracle and the fallback. Its loops have cancellation points (base/cancel.h).
  void (*reference)(const ReferenceContext& c) = nullptr;
  Tolerance tolerance = {};  // the default: exact
  // For values that are more than tensors, and for operators with a body; `reference` may then be null. ops/host.h
  void (*host)(HostContext& c) = nullptr;
  const BodyRule* body = nullptr;
  const struct CustomOp* custom = nullptr;  // of a host (ops/custom.h); then attributes may have any names, and none are resolved
  // Into how many parts (rows, channels, boxes) of the outputs the work falls, by the shapes alone; no data is there. The reference
  // computes those of [c.begin, c.end), several threads each their own. nullptr: it cannot be cut.
  std::int64_t (*parts)(const ReferenceContext& c) = nullptr;

  // Returns true if a shape depends on the value of the input.
  bool reads_value(std::size_t input) const { return input < 32 && (value_inputs >> input & 1) != 0; }
};

struct OpFamily {
  std::span<const OpDef> ops;
};

// Whether the node runs between the parts of a plan (ops/host.h): values around it are more than tensors, or it has no reference.
bool runs_on_host(const Graph& graph, const Node& node);

// All families but those of ops/training, in the order of their file names (made at configure time).
std::span<const OpFamily* const> op_families();

// The row that applies, or nullptr; of ops/training too, where their module is there.
const OpDef* find_op(const std::string& domain, const std::string& name, std::int64_t opset);

// True when some version of the operator is known: then the model's opset is the problem.
bool op_known(const std::string& domain, const std::string& name);

// Whether an operator was left out of this build, which was made for some (EVN_OPERATORS).
bool op_left_out(const std::string& name);

// Runs op->reference and then the node's epilogue (on output 0, float32).
void run_reference(const ReferenceContext& c);

// One epilogue step and a whole chain on one float; the oracle of every fused kernel.
float apply_epilogue_op(const EpilogueOp& step, float x);
float apply_epilogue(const Epilogue& epilogue, float x);

}  // namespace evn
