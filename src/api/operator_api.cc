// Operators of a host: evn_runtime_register_operator, the callbacks and what they return, and the nodes that callbacks look at.

#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <deque>
#include <exception>

#include "api/barrier.h"
#include "api/objects.h"
#include "base/float_environment.h"
#include "base/library_work.h"
#include "base/small_array.h"
#include "base/status.h"
#include "base/user_data.h"
#include "graph/attributes.h"
#include "graph/edit.h"
#include "ops/custom.h"
#include "ops/merge.h"
#include "runtime/run/watch.h"

namespace evn {
namespace {

// An unwinder that has never thrown anything does not know the sizes of registers, and aborts in frames that another one has begun
// to unwind: the library's must be ready before a callback throws by the host's.
void prepare_unwinder() {
  try {
    throw 0;
  } catch (int) {}
}

constexpr std::size_t kMaxText = 256;        // bytes of a domain or name
constexpr std::uint32_t kMaxCount = 65'536;  // inputs or outputs

// What a callback may ask about.
struct NodeView {
  const Node* node = nullptr;
  std::deque<std::vector<std::uint64_t>> copies;  // of tensors that lie unaligned in the file
};

// ----------------------------------------------------------------------------------------------------------- views --

bool has_unknown_rank(const TensorDesc& d) { return InferContext::is_unknown_rank(d.shape); }

// `exact`: the dims are all known, and so is the size.
evn_tensor_view view_of(const TensorDesc& d, const void* data, bool exact) {
  evn_tensor_view v{};
  v.dtype = static_cast<evn_dtype>(d.dtype);
  if (d.dtype == DType::kUndefined) return v;
  v.rank = has_unknown_rank(d) ? EVN_UNKNOWN_RANK : static_cast<std::uint32_t>(d.shape.rank());
  for (int i = 0; i < EVN_MAX_RANK; ++i)
    v.dims[i] = !has_unknown_rank(d) && i < d.shape.rank() ? d.shape[i] : (has_unknown_rank(d) ? -1 : 0);
  v.data = const_cast<void*>(data);
  if (exact) v.size_bytes = d.size_bytes();
  if (v.size_bytes == 0) v.data = nullptr;
  return v;
}

// -------------------------------------------------------------------------------------------------- the registered --

struct HostOp final : CustomOp {
  evn_operator op{};
  UserData user;  // adopted once it is registered

  // `what` the callback did, as an error of this operator.
  [[noreturn, gnu::format(printf, 3, 4)]] void blame(const Node& node, const char* format, ...) const;

  // Calls a callback with a handle of the node; throws when it does not return EVN_OK.
  template <typename Call>
  void guard(const Node& node, const char* callback, Call call) const;

  void infer(const Node& node, std::span<const TensorDesc> inputs, std::span<const ConstTensor> values,
             std::span<TensorDesc> outputs) const override;
  void take(const Node& node, std::size_t k, const evn_tensor_view& view, bool all_known, TensorDesc* out) const;
  void run(const ReferenceContext& c) const;
};

}  // namespace

template <>
struct HandleTraits<std::shared_ptr<NodeView>> {
  static constexpr HandleKind kind = HandleKind::kOperatorNode;
  static constexpr const char* name = "operator node";
};

namespace {

const HostOp& host_op(const Node& node) { return static_cast<const HostOp&>(*node.op->custom); }

// A handle for the length of a callback.
class NodeHandle {
 public:
  explicit NodeHandle(const Node& node) {
    auto view = std::make_shared<NodeView>();
    view->node = &node;
    handle_ = make_handle(std::move(view));
  }
  NodeHandle(const NodeHandle&) = delete;
  NodeHandle& operator=(const NodeHandle&) = delete;
  ~NodeHandle() { g_handles.release(handle_, HandleKind::kOperatorNode); }
  evn_operator_node get() const { return static_cast<evn_operator_node>(handle_); }

 private:
  void* handle_;
};

void HostOp::blame(const Node& node, const char* format, ...) const {
  char text[400];
  va_list list;
  va_start(list, format);
  std::vsnprintf(text, sizeof text, format, list);
  va_end(list);
  throw make_error(EVN_ERROR_INTERNAL, "custom operator %.64s::%.64s: %s", domain.c_str(), name.c_str(), text)
      .with_node(node.name.c_str());
}

template <typename Call>
void HostOp::guard(const Node& node, const char* callback, Call call) const {
  if (on_callers_thread && LibraryWork::is_here()) {
    throw make_error(EVN_ERROR_UNSUPPORTED,
                     "custom operator %.64s::%.64s runs on the caller's thread only, and not on one of the library's",
                     domain.c_str(), name.c_str())
        .with_node(node.name.c_str());
  }
  const NodeHandle handle(node);
  evn_error error = EVN_ERROR_INIT;
  evn_status status = EVN_OK;
  char thrown[200] = "";
  try {
    const HostFloatEnvironment hosts;
    status = call(handle.get(), &error);
  } catch (const std::exception& e) {
    std::snprintf(thrown, sizeof thrown, "%s threw an exception: %s", callback, e.what());
  } catch (...) {
    std::snprintf(thrown, sizeof thrown, "%s threw an exception", callback);
  }
  if (thrown[0] != '\0') blame(node, "%s", thrown);
  if (status == EVN_OK) return;
  if (!is_status(status)) blame(node, "%s returned %d, which is no status", callback, status);
  error.message[sizeof error.message - 1] = '\0';
  const char* message = error.message[0] != '\0' ? error.message : "no reason is given";
  throw make_error(status, "custom operator %.64s::%.64s: %s failed: %s", domain.c_str(), name.c_str(), callback, message)
      .with_node(node.name.c_str());
}

// Checks and takes over what `infer` said of output k.
void HostOp::take(const Node& node, std::size_t k, const evn_tensor_view& view, bool all_known, TensorDesc* out) const {
  const auto dtype = static_cast<DType>(view.dtype);
  if (view.dtype <= 0 || view.dtype >= kDTypeCount || !is_stored(dtype) || dtype == DType::kString)
    blame(node, "infer gave output %zu the dtype %d", k, view.dtype);
  out->dtype = dtype;
  if (view.rank == EVN_UNKNOWN_RANK) {
    if (all_known) blame(node, "infer left the rank of output %zu unknown, though all of its inputs are known", k);
    out->shape = Shape::of_rank(1, InferContext::kUnknownRank);
    return;
  }
  if (view.rank > EVN_MAX_RANK) blame(node, "infer gave output %zu the rank %u", k, view.rank);
  bool known = true;
  for (std::uint32_t i = 0; i < view.rank; ++i) {
    if (view.dims[i] < -1) blame(node, "infer gave output %zu a negative dimension", k);
    known &= view.dims[i] >= 0;
  }
  out->shape = Shape(std::span<const std::int64_t>(view.dims, view.rank));
  if (known) {
    out->size_bytes();  // throws when it overflows
  } else if (all_known) {
    blame(node, "infer left a dimension of output %zu unknown, though all of its inputs are known", k);
  }
}

void HostOp::infer(const Node& node, std::span<const TensorDesc> inputs, std::span<const ConstTensor> values,
                   std::span<TensorDesc> outputs) const {
  for (const TensorDesc& d : inputs) {
    if (d.dtype == DType::kString)
      fail(EVN_ERROR_UNSUPPORTED, "operators of the host do not take strings");  // whose elements are addresses
  }
  SmallArray<evn_tensor_view> in(inputs.size());
  SmallArray<evn_tensor_view> out(outputs.size());
  bool all_known = true;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool given = inputs[i].dtype != DType::kUndefined;
    const bool exact = given && !has_unknown_rank(inputs[i]) && inputs[i].shape.is_known();
    const bool by_value = given && i < 32 && (op.value_inputs >> i & 1) != 0;
    const void* data = by_value && exact && i < values.size() ? values[i].data : nullptr;
    in[i] = view_of(inputs[i], data, exact);
    if (data == nullptr) in[i].size_bytes = 0;
    const bool has_elements = exact && inputs[i].shape.elements() != 0;
    all_known &= !given || (exact && (!by_value || data != nullptr || !has_elements));
  }
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    out[k] = evn_tensor_view{};
    out[k].rank = EVN_UNKNOWN_RANK;
    std::fill(std::begin(out[k].dims), std::end(out[k].dims), -1);
  }
  guard(node, "infer", [&](evn_operator_node handle, evn_error* error) {
    return op.infer(op.user, handle, in.data(), static_cast<std::uint32_t>(in.size()), out.data(),
                    static_cast<std::uint32_t>(out.size()), error);
  });
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    outputs[k] = TensorDesc{};
    if (k < node.outputs.size() && node.outputs[k] == kNoValue) continue;
    take(node, k, out[k], all_known, &outputs[k]);
  }
}

// Bytes that mean true but are not 1, and bits behind the last element, would come back as they are.
void tidy(const MutableTensor& t) {
  auto* bytes = static_cast<std::uint8_t*>(t.data);
  if (t.desc.dtype == DType::kBool) {
    const std::int64_t n = t.desc.shape.elements();
    for (std::int64_t i = 0; i < n; ++i) bytes[i] = bytes[i] != 0 ? 1 : 0;
  } else if (is_sub_byte(t.desc.dtype)) {
    const std::size_t bits =
        dtype_bits(t.desc.dtype) * (static_cast<std::size_t>(t.desc.shape.elements()) % (8 / dtype_bits(t.desc.dtype)));
    const std::size_t size = t.desc.size_bytes();
    if (bits != 0) bytes[size - 1] = static_cast<std::uint8_t>(bytes[size - 1] & ((1u << bits) - 1));
  }
}

void HostOp::run(const ReferenceContext& c) const {
  SmallArray<evn_tensor_view> in(c.inputs.size());
  SmallArray<evn_tensor_view> out(c.outputs.size());
  for (std::size_t i = 0; i < c.inputs.size(); ++i) in[i] = view_of(c.inputs[i].desc, c.inputs[i].data, true);
  for (std::size_t k = 0; k < c.outputs.size(); ++k) out[k] = view_of(c.outputs[k].desc, c.outputs[k].data, true);
  guard(c.node, "run", [&](evn_operator_node handle, evn_error* error) {
    return op.run(op.user, handle, in.data(), static_cast<std::uint32_t>(in.size()), out.data(),
                  static_cast<std::uint32_t>(out.size()), error);
  });
  for (const MutableTensor& t : c.outputs) {
    if (t.present() && t.data != nullptr) tidy(t);
  }
}

// ---------------------------------------------------------------------------------------------- as a row of a table --

DType dtype_of_output(const Node& node, std::span<const DType> inputs, int output) {
  SmallArray<TensorDesc> in(inputs.size());
  SmallArray<TensorDesc> out(node.outputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) in[i] = {inputs[i], Shape::of_rank(1, InferContext::kUnknownRank)};
  host_op(node).infer(node, in.span(), {}, out.span());
  return out[static_cast<std::size_t>(output)].dtype;
}

void infer_shapes(InferContext& c) { host_op(c.node).infer(c.node, c.inputs, c.values, c.outputs); }

void run_host(const ReferenceContext& c) { host_op(c.node).run(c); }

int count_of(std::uint32_t count, const char* what) {
  if (count == EVN_VARIADIC) return kVariadic;
  if (count > kMaxCount) fail(EVN_ERROR_INVALID_ARGUMENT, "%s is %u, the most is %u", what, count, kMaxCount);
  return static_cast<int>(count);
}

std::string text_of(const char* text, const char* what) {
  require(text != nullptr, what);
  const std::size_t size = strnlen(text, kMaxText + 1);
  if (size == 0 || size > kMaxText) fail(EVN_ERROR_INVALID_ARGUMENT, "%s is empty or has more than %zu bytes", what, kMaxText);
  return std::string(text, size);
}

std::unique_ptr<HostOp> make_host_op(const evn_operator& o) {
  if (o.reserved != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "reserved is not 0");
  if ((o.flags & ~std::uint64_t{EVN_OPERATOR_CALLER_THREAD}) != 0)
    fail(EVN_ERROR_INVALID_ARGUMENT, "flags is %llu", static_cast<unsigned long long>(o.flags));
  require(o.infer != nullptr, "infer");
  require(o.run != nullptr, "run");
  if (o.since_version < 1) fail(EVN_ERROR_INVALID_ARGUMENT, "since_version is %d", o.since_version);
  auto host = std::make_unique<HostOp>();
  host->domain = text_of(o.domain, "domain");
  host->name = text_of(o.name, "name");
  if (host->domain == "ai.onnx" || host->domain == kInternalDomain || host->domain == kQuantizerDomain) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "domain %s may not be extended", host->domain.c_str());
  }
  host->op = o;
  host->on_callers_thread = (o.flags & EVN_OPERATOR_CALLER_THREAD) != 0;
  OpDef& def = host->def;
  def.name = host->name.c_str();
  def.domain = host->domain.c_str();
  def.since = o.since_version;
  def.min_inputs = count_of(o.min_inputs == EVN_VARIADIC ? kMaxCount + 1 : o.min_inputs, "min_inputs");
  def.max_inputs = count_of(o.max_inputs, "max_inputs");
  def.min_outputs = count_of(o.min_outputs == EVN_VARIADIC ? kMaxCount + 1 : o.min_outputs, "min_outputs");
  def.max_outputs = count_of(o.max_outputs, "max_outputs");
  if (def.min_inputs > def.max_inputs || def.min_outputs > def.max_outputs || def.max_outputs == 0) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "the operator takes %u to %u inputs and makes %u to %u outputs", o.min_inputs, o.max_inputs,
         o.min_outputs, o.max_outputs);
  }
  def.dtypes = UINT32_MAX;
  def.value_inputs = o.value_inputs;
  def.output_dtype = dtype_of_output;
  def.infer = infer_shapes;
  def.reference = run_host;
  def.custom = host.get();
  return host;
}

// ------------------------------------------------------------------------------------------------------- attributes --

using NodePin = Pin<std::shared_ptr<NodeView>>;

const Attribute* attribute_of(const Node& node, const char* name) {
  require(name != nullptr, "name");
  return find_attribute(node.attributes, name);
}

template <typename T>
const T& attribute(const Node& node, const char* name) {
  const Attribute* a = attribute_of(node, name);
  if (a == nullptr) fail(EVN_ERROR_INVALID_ARGUMENT, "the node has no attribute \"%s\"", name);
  const T* value = std::get_if<T>(&a->value);
  if (value == nullptr) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "attribute \"%s\" is of type %s", name, attribute_type_name(attribute_type(a->value)));
  }
  return *value;
}

evn_attribute_type type_number(AttributeType type) {
  switch (type) {
    case AttributeType::kNone: return EVN_ATTRIBUTE_NONE;
    case AttributeType::kFloat: return EVN_ATTRIBUTE_FLOAT;
    case AttributeType::kInt: return EVN_ATTRIBUTE_INT;
    case AttributeType::kString: return EVN_ATTRIBUTE_STRING;
    case AttributeType::kTensor: return EVN_ATTRIBUTE_TENSOR;
    case AttributeType::kGraph: return EVN_ATTRIBUTE_GRAPH;
    case AttributeType::kFloats: return EVN_ATTRIBUTE_FLOATS;
    case AttributeType::kInts: return EVN_ATTRIBUTE_INTS;
    case AttributeType::kStrings: return EVN_ATTRIBUTE_STRINGS;
    case AttributeType::kType: return EVN_ATTRIBUTE_NONE;
  }
  return EVN_ATTRIBUTE_NONE;
}

template <typename T>
void give_list(const std::vector<T>& list, const T** values, std::size_t* count) {
  require(values != nullptr, "values");
  require(count != nullptr, "count");
  *values = list.data();
  *count = list.size();
}

}  // namespace
}  // namespace evn

using namespace evn;

extern "C" {

evn_status evn_runtime_register_operator(evn_runtime runtime, const evn_operator* op, evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    require(op != nullptr, "op");
    const evn_operator defaults = EVN_OPERATOR_INIT;
    const evn_operator o = read_options(op, defaults, offsetof(evn_operator, flags));
    std::unique_ptr<HostOp> host = make_host_op(o);
    prepare_unwinder();
    HostOp* registered = host.get();
    (*r)->operators().add(std::move(host));
    registered->user.adopt(o.release, o.user);
  });
}

evn_status evn_operator_node_name(evn_operator_node node, char* buffer, size_t capacity, size_t* size, evn_error* error) {
  return guarded(error, [&] {
    const NodePin n(node);
    write_text((*n)->node->name, buffer, capacity, size);
  });
}

evn_status evn_operator_attribute_type(evn_operator_node node, const char* name, evn_attribute_type* type, evn_error* error) {
  return guarded(error, [&] {
    const NodePin n(node);
    require(type != nullptr, "type");
    const Attribute* a = attribute_of(*(*n)->node, name);
    *type = a == nullptr ? static_cast<evn_attribute_type>(EVN_ATTRIBUTE_NONE) : type_number(attribute_type(a->value));
  });
}

evn_status evn_operator_attribute_int(evn_operator_node node, const char* name, int64_t* value, evn_error* error) {
  return guarded(error, [&] {
    const NodePin n(node);
    require(value != nullptr, "value");
    *value = attribute<std::int64_t>(*(*n)->node, name);
  });
}

evn_status evn_operator_attribute_float(evn_operator_node node, const char* name, float* value, evn_error* error) {
  return guarded(error, [&] {
    const NodePin n(node);
    require(value != nullptr, "value");
    *value = attribute<float>(*(*n)->node, name);
  });
}

evn_status evn_operator_attribute_string(evn_operator_node node, const char* name, char* buffer, size_t capacity, size_t* size,
                                         evn_error* error) {
  return guarded(error, [&] {
    const NodePin n(node);
    write_text(attribute<std::string>(*(*n)->node, name), buffer, capacity, size);
  });
}

evn_status evn_operator_attribute_ints(evn_operator_node node, const char* name, const int64_t** values, size_t* count,
                                       evn_error* error) {
  return guarded(error, [&] {
    const NodePin n(node);
    give_list(attribute<std::vector<std::int64_t>>(*(*n)->node, name), values, count);
  });
}

evn_status evn_operator_attribute_floats(evn_operator_node node, const char* name, const float** values, size_t* count,
                                         evn_error* error) {
  return guarded(error, [&] {
    const NodePin n(node);
    give_list(attribute<std::vector<float>>(*(*n)->node, name), values, count);
  });
}

evn_status evn_operator_attribute_string_count(evn_operator_node node, const char* name, uint32_t* count, evn_error* error) {
  return guarded(error, [&] {
    const NodePin n(node);
    require(count != nullptr, "count");
    *count = static_cast<uint32_t>(attribute<std::vector<std::string>>(*(*n)->node, name).size());
  });
}

evn_status evn_operator_attribute_string_at(evn_operator_node node, const char* name, uint32_t index, char* buffer, size_t capacity,
                                            size_t* size, evn_error* error) {
  return guarded(error, [&] {
    const NodePin n(node);
    const auto& list = attribute<std::vector<std::string>>(*(*n)->node, name);
    if (index >= list.size())
      fail(EVN_ERROR_INVALID_ARGUMENT, "index is %u, attribute \"%s\" has %zu strings", index, name, list.size());
    write_text(list[index], buffer, capacity, size);
  });
}

evn_status evn_operator_attribute_tensor(evn_operator_node node, const char* name, evn_tensor_view* view, evn_error* error) {
  return guarded(error, [&] {
    const NodePin n(node);
    require(view != nullptr, "view");
    const WeightPtr& weight = attribute<WeightPtr>(*(*n)->node, name);
    EVN_CHECK(weight != nullptr);
    if (weight->desc.dtype == DType::kString) fail(EVN_ERROR_UNSUPPORTED, "attribute \"%s\" is a tensor of strings", name);
    *view = view_of(weight->desc, aligned_bytes(*weight, (*n)->copies.emplace_back()), true);
  });
}

}  // extern "C"
