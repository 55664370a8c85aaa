#include "ops/infra/runtime_values.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/error.h"
#include "ops/infra/small_types.h"

namespace evn {
namespace {

void require_whole_bytes(const TensorDesc& desc) {
  if (is_sub_byte(desc.dtype)) fail(EVN_ERROR_UNSUPPORTED, "tensors of %s are not taken apart", dtype_name(desc.dtype));
}

// Keeps the texts of all runtime values.
std::shared_ptr<const void> texts_of(std::span<const RuntimeValuePtr> runtime_values) {
  if (runtime_values.empty() || runtime_values[0]->desc.dtype != DType::kString) return nullptr;
  auto all = std::make_shared<std::vector<std::shared_ptr<const void>>>();
  for (const RuntimeValuePtr& b : runtime_values) {
    cancellation_point();
    if (b->texts != nullptr) all->push_back(b->texts);
  }
  return all;
}

// The parts, none of which is borrowed if they hold strings: their texts must stay.
std::vector<RuntimeValuePtr> kept_strings(HostServices& services, std::span<const RuntimeValuePtr> parts) {
  std::vector<RuntimeValuePtr> kept(parts.begin(), parts.end());
  for (RuntimeValuePtr& b : kept) {
    cancellation_point();
    if (b->desc.dtype == DType::kString) b = services.keep(b);
  }
  return kept;
}

void copy_bytes(char* to, const char* from, std::size_t size) {
  if (size > 0) move_in_pieces(to, from, size);
}

}  // namespace

std::int64_t runtime_value_integer(const RuntimeValuePtr& runtime_value, const char* what) {
  const TensorDesc& d = runtime_value->desc;
  if (!runtime_value->is_tensor() || d.shape.elements() != 1) fail(EVN_ERROR_INVALID_ARGUMENT, "%s has not just one element", what);
  switch (d.dtype) {
    case DType::kBool: return *runtime_value->as<std::uint8_t>() != 0 ? 1 : 0;
    case DType::kInt32: return *runtime_value->as<std::int32_t>();
    case DType::kInt64: return *runtime_value->as<std::int64_t>();
    default: fail(EVN_ERROR_INVALID_ARGUMENT, "%s is of %s", what, dtype_name(d.dtype));
  }
}

RuntimeValuePtr make_runtime_value(const TensorDesc& element, Wrap outer, PartList parts) {
  auto runtime_value = std::make_shared<RuntimeValue>();
  runtime_value->desc = {element.dtype, {}, element.wraps.in(outer)};
  runtime_value->parts = std::move(parts);
  return runtime_value;
}

void require_inputs(const Node& node, std::size_t first, std::size_t end) {
  for (std::size_t i = first; i < end; ++i) {
    cancellation_point();
    if (node.inputs[i] == kNoValue) fail(EVN_ERROR_INVALID_MODEL, "input %zu of %s is missing", i, node.op->name);
  }
}

RuntimeValuePtr with_wraps(const RuntimeValuePtr& runtime_value, Wraps wraps) {
  if (runtime_value->desc.wraps == wraps) return runtime_value;
  if (wraps.outer() == Wrap::kOptional && wraps.inside() == runtime_value->desc.wraps)
    return make_runtime_value(runtime_value->desc, Wrap::kOptional, PartList{runtime_value});
  if (runtime_value->parts.empty()) fail(EVN_ERROR_INVALID_ARGUMENT, "an optional is empty where its element is needed");
  return runtime_value->parts[0];
}

TensorDesc common_type(const TensorDesc& a, const TensorDesc& b, const char* what) {
  if (a.dtype != b.dtype || a.wraps != b.wraps) {
    fail(EVN_ERROR_INVALID_MODEL, "%s: %s and %s", what, a.type_string().c_str(), b.type_string().c_str());
  }
  TensorDesc both = a;
  if (a.wraps) return both;
  if (rank_unknown(a) || rank_unknown(b) || a.shape.rank() != b.shape.rank()) {
    both.shape = unknown_rank();
    return both;
  }
  for (int i = 0; i < a.shape.rank(); ++i) {
    if (a.shape[i] != b.shape[i]) both.shape[i] = -1;
  }
  return both;
}

Shape with_dim(const Shape& shape, std::int64_t axis, std::int64_t dim) {
  const int at = normalize_axis(axis, shape.rank() + 1);
  Shape out;
  for (int i = 0; i < at; ++i) out.push_back(shape[i]);
  out.push_back(dim);
  for (int i = at; i < shape.rank(); ++i) out.push_back(shape[i]);
  return out;
}

Shape without_dim(const Shape& shape, int axis) {
  Shape out;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != axis) out.push_back(shape[i]);
  }
  return out;
}

void require_wrap(const InferContext& c, int i, Wrap outer) {
  if (!c.has_input(i)) return;
  const TensorDesc& d = c.inputs[static_cast<std::size_t>(i)];
  if (d.wraps.outer() != outer) {
    fail(EVN_ERROR_INVALID_MODEL, "input %d of %s is of type %s", i, c.node.op->name, d.type_string().c_str());
  }
}

void require_tensor(const InferContext& c, int i) { require_wrap(c, i, Wrap::kNone); }

RuntimeValuePtr integer_runtime_value(HostServices& services, std::int64_t value) {
  void* to = nullptr;
  RuntimeValuePtr runtime_value = services.make_tensor({DType::kInt64, {}}, &to);
  std::memcpy(to, &value, sizeof value);
  return runtime_value;
}

RuntimeValuePtr bool_runtime_value(HostServices& services, bool value) {
  void* to = nullptr;
  RuntimeValuePtr runtime_value = services.make_tensor({DType::kBool, {}}, &to);
  *static_cast<std::uint8_t*>(to) = value ? 1 : 0;
  return runtime_value;
}

std::vector<RuntimeValuePtr> cut_runtime_value(HostServices& services, const RuntimeValuePtr& given, int axis,
                                               std::span<const std::int64_t> lengths, bool drop) {
  require_whole_bytes(given->desc);
  std::vector<RuntimeValuePtr> parts;
  parts.reserve(lengths.size());
  const Shape& shape = given->desc.shape;
  const std::int64_t outer = shape.elements(0, axis);
  // The parts lie one behind the other in one copy of the bytes, and are objects of one block.
  const RuntimeValuePtr x = outer == 1 || given->desc.dtype == DType::kString ? services.keep(given) : given;
  std::shared_ptr<const void> bytes = x->data;
  void* to = nullptr;
  if (outer != 1) bytes = services.make_tensor(x->desc, &to)->data;
  const std::int64_t inner = shape.elements(axis + 1, shape.rank()) * static_cast<std::int64_t>(dtype_size(x->desc.dtype));
  TensorDesc desc = x->desc;
  if (drop) desc.shape = without_dim(shape, axis);
  std::int64_t at = 0;
  const auto all = std::make_shared<std::vector<RuntimeValue>>();
  all->reserve(lengths.size());
  for (const std::int64_t length : lengths) {
    cancellation_point();
    RuntimeValue& part = all->emplace_back();
    if (!drop) desc.shape[axis] = length;
    part.desc = desc;
    const std::int64_t block = length * inner;
    const std::int64_t begin = outer * at * inner;
    if (outer * block > 0) part.data = std::shared_ptr<const void>(bytes, static_cast<const char*>(bytes.get()) + begin);
    for (std::int64_t o = 0; outer != 1 && o < outer; ++o) {
      cancellation_point();
      copy_bytes(static_cast<char*>(to) + begin + o * block, x->as<char>() + (o * shape[axis] + at) * inner,
                 static_cast<std::size_t>(block));
    }
    part.texts = x->texts;
    parts.emplace_back(all, &part);
    at += length;
  }
  return parts;
}

RuntimeValuePtr slice_runtime_value(HostServices& services, const RuntimeValuePtr& given, int axis, std::int64_t begin,
                                    std::int64_t end, bool drop) {
  require_whole_bytes(given->desc);
  const RuntimeValuePtr x = given->desc.dtype == DType::kString ? services.keep(given) : given;
  const Shape& shape = x->desc.shape;
  TensorDesc desc = x->desc;
  desc.shape = drop ? without_dim(shape, axis) : shape;
  if (!drop) desc.shape[axis] = end - begin;
  const std::int64_t outer = shape.elements(0, axis);
  const std::int64_t inner = shape.elements(axis + 1, shape.rank()) * static_cast<std::int64_t>(dtype_size(desc.dtype));
  const std::int64_t block = inner * (end - begin);
  if (outer == 1 && block > 0 && !x->borrowed) {  // in one piece: part of the bytes that are there
    auto part = std::make_shared<RuntimeValue>();
    part->desc = desc;
    part->data = std::shared_ptr<const void>(x->data, x->as<char>() + begin * inner);
    part->texts = x->texts;
    return part;
  }
  void* to = nullptr;
  std::shared_ptr<RuntimeValue> made = services.make_tensor(desc, &to);
  for (std::int64_t o = 0; o < outer; ++o) {
    cancellation_point();
    copy_bytes(static_cast<char*>(to) + o * block, x->as<char>() + (o * shape[axis] + begin) * inner,
               static_cast<std::size_t>(block));
  }
  made->texts = x->texts;
  return made;
}

RuntimeValuePtr concat_runtime_values(HostServices& services, std::span<const RuntimeValuePtr> given, int axis) {
  const std::vector<RuntimeValuePtr> parts = kept_strings(services, given);
  EVN_CHECK(!parts.empty());
  TensorDesc desc = parts[0]->desc;
  require_whole_bytes(desc);
  std::int64_t length = 0;
  for (const RuntimeValuePtr& p : parts) {
    cancellation_point();
    bool fits = p->desc.dtype == desc.dtype && p->desc.shape.rank() == desc.shape.rank();
    for (int i = 0; fits && i < desc.shape.rank(); ++i) fits = i == axis || p->desc.shape[i] == desc.shape[i];
    if (!fits) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "tensors of shapes %s and %s cannot be joined", desc.shape.to_string().c_str(),
           p->desc.shape.to_string().c_str());
    }
    length = checked_add(length, p->desc.shape[axis]);
  }
  desc.shape[axis] = length;
  void* to = nullptr;
  std::shared_ptr<RuntimeValue> made = services.make_tensor(desc, &to);
  const std::int64_t outer = desc.shape.elements(0, axis);
  const std::int64_t inner = desc.shape.elements(axis + 1, desc.shape.rank()) * static_cast<std::int64_t>(dtype_size(desc.dtype));
  std::int64_t done = 0;
  for (const RuntimeValuePtr& p : parts) {
    cancellation_point();
    const std::int64_t block = p->desc.shape[axis] * inner;
    for (std::int64_t o = 0; o < outer; ++o) {
      cancellation_point();
      copy_bytes(static_cast<char*>(to) + (o * length + done) * inner, p->as<char>() + o * block, static_cast<std::size_t>(block));
    }
    done += p->desc.shape[axis];
  }
  made->texts = texts_of(parts);
  return made;
}

RuntimeValuePtr stack_runtime_values(HostServices& services, std::span<const RuntimeValuePtr> given, int axis) {
  const std::vector<RuntimeValuePtr> parts = kept_strings(services, given);
  EVN_CHECK(!parts.empty());
  TensorDesc desc = parts[0]->desc;
  require_whole_bytes(desc);
  for (const RuntimeValuePtr& p : parts) {
    cancellation_point();
    if (!(p->desc == desc)) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "tensors of shapes %s and %s cannot be stacked", desc.shape.to_string().c_str(),
           p->desc.shape.to_string().c_str());
    }
  }
  const auto count = static_cast<std::int64_t>(parts.size());
  const std::int64_t outer = desc.shape.elements(0, axis);
  const std::int64_t block = desc.shape.elements(axis, desc.shape.rank()) * static_cast<std::int64_t>(dtype_size(desc.dtype));
  desc.shape = with_dim(desc.shape, axis, count);
  void* to = nullptr;
  std::shared_ptr<RuntimeValue> made = services.make_tensor(desc, &to);
  for (std::int64_t n = 0; n < count; ++n) {
    cancellation_point();
    for (std::int64_t o = 0; o < outer; ++o) {
      cancellation_point();
      copy_bytes(static_cast<char*>(to) + (o * count + n) * block, parts[static_cast<std::size_t>(n)]->as<char>() + o * block,
                 static_cast<std::size_t>(block));
    }
  }
  made->texts = texts_of(parts);
  return made;
}

}  // namespace evn
