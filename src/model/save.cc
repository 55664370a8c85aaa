// Messages are put together from the inside out: each is a list of pieces whose size is known when it goes into the one around it.
#include "model/save.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <string_view>

#include "base/cancel.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/os/new_files.h"
#include "core/text.h"

namespace evn {
namespace {

constexpr std::size_t kCopied = 256;       // bytes of tensors below which they are not pieces of their own
constexpr std::size_t kExternal = 1024;    // bytes from which a constant goes into a file of its own, where there is one
constexpr std::size_t kExternalStep = 64;  // where such constants begin

// The file beside the model's.
struct External {
  std::string name;
  std::vector<SavedPiece> pieces;
  std::uint64_t size = 0;
};

// How graphs are written.
struct Form {
  External* external = nullptr;  // nullptr: none
  bool value_types = false;
};

// One protobuf message.
class Message {
 public:
  std::uint64_t size() const { return size_; }

  Message& varint(std::uint32_t field, std::int64_t value) {
    put_tag(field, 0);
    put_varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  Message& fixed32(std::uint32_t field, float value) {
    put_tag(field, 5);
    put({reinterpret_cast<const char*>(&value), sizeof value});
    return *this;
  }
  Message& text(std::uint32_t field, std::string_view value) {
    put_tag(field, 2);
    put_varint(value.size());
    put(value);
    return *this;
  }
  // Fields that are left out where they are empty.
  Message& text_if(std::uint32_t field, std::string_view value) { return value.empty() ? *this : text(field, value); }
  Message& data(std::uint32_t field, const WeightPtr& weight) {
    if (weight->size_bytes < kCopied) {
      return text(field, {static_cast<const char*>(weight->size_bytes == 0 ? "" : weight->bytes()), weight->size_bytes});
    }
    put_tag(field, 2);
    put_varint(weight->size_bytes);
    pieces_.push_back({{}, weight});
    size_ += weight->size_bytes;
    return *this;
  }
  Message& message(std::uint32_t field, Message&& inner) {
    put_tag(field, 2);
    put_varint(inner.size_);
    size_ += inner.size_;
    for (SavedPiece& p : inner.pieces_) {
      if (p.data == nullptr && !pieces_.empty() && pieces_.back().data == nullptr) {
        pieces_.back().bytes += p.bytes;
      } else {
        pieces_.push_back(std::move(p));
      }
    }
    return *this;
  }
  std::vector<SavedPiece> take() { return std::move(pieces_); }

 private:
  std::vector<SavedPiece> pieces_;
  std::uint64_t size_ = 0;

  void put(std::string_view bytes) {
    if (pieces_.empty() || pieces_.back().data != nullptr) pieces_.emplace_back();
    pieces_.back().bytes += bytes;
    size_ += bytes.size();
  }
  void put_varint(std::uint64_t v) {
    char bytes[10];
    std::size_t n = 0;
    for (; v >= 0x80; v >>= 7) bytes[n++] = static_cast<char>(v | 0x80);
    bytes[n++] = static_cast<char>(v);
    put({bytes, n});
  }
  void put_tag(std::uint32_t field, std::uint32_t type) { put_varint(field << 3 | type); }
};

Message entry_message(std::string_view key, std::string_view value) {
  Message m;
  m.text(1, key).text(2, value);
  return m;
}

void put_external(Message& m, const WeightPtr& weight, External& external) {
  if (const std::uint64_t rest = external.size % kExternalStep; rest != 0) {
    external.pieces.emplace_back().bytes.assign(kExternalStep - rest, '\0');
    external.size += kExternalStep - rest;
  }
  m.message(13, entry_message("location", external.name));
  m.message(13, entry_message("offset", std::to_string(external.size)));
  m.message(13, entry_message("length", std::to_string(weight->size_bytes)));
  m.varint(14, 1);
  external.pieces.push_back({{}, weight});
  external.size += weight->size_bytes;
}

// TensorProto. `external`: null: none.
Message tensor_message(std::string_view name, const WeightPtr& weight, External* external) {
  Message m;
  const TensorDesc& desc = weight->desc;
  for (const std::int64_t dim : desc.shape.dims()) m.varint(1, dim);
  m.varint(2, static_cast<std::int64_t>(desc.dtype));
  m.text_if(8, name);
  if (desc.dtype == DType::kString) {
    const auto* texts = weight->as<TextElement>();
    for (std::int64_t i = 0; i < desc.shape.elements(); ++i) m.text(6, text_of(texts[i]));
  } else if (external != nullptr && weight->size_bytes >= kExternal) {
    put_external(m, weight, *external);
  } else {
    m.data(9, weight);
  }
  return m;
}

// TypeProto.
Message type_message(DType dtype, const Wraps& wraps, const Value* shaped) {
  Message type;
  if (const Wrap outer = wraps.outer(); outer != Wrap::kNone) {
    Message inner = type_message(dtype, wraps.inside(), shaped);
    Message around;
    switch (outer) {
      case Wrap::kSequence: type.message(4, std::move(around.message(1, std::move(inner)))); break;
      case Wrap::kOptional: type.message(9, std::move(around.message(1, std::move(inner)))); break;
      default:
        around.varint(1, outer == Wrap::kMapOfStrings ? EVN_DTYPE_STRING : EVN_DTYPE_INT64);
        type.message(5, std::move(around.message(2, std::move(inner))));
    }
    return type;
  }
  Message tensor;
  tensor.varint(1, static_cast<std::int64_t>(dtype));
  if (shaped != nullptr && shaped->has_shape) {
    Message shape;
    for (int i = 0; i < shaped->shape.rank(); ++i) {
      const auto k = static_cast<std::size_t>(i);
      Message dim;
      if (shaped->shape[i] >= 0) {
        dim.varint(1, shaped->shape[i]);
      } else if (k < shaped->symbols.size()) {
        dim.text_if(2, shaped->symbols[k]);
      }
      shape.message(1, std::move(dim));
    }
    tensor.message(2, std::move(shape));
  }
  type.message(1, std::move(tensor));
  return type;
}

Message value_info_message(const Value& value) {
  Message m;
  m.text(1, value.name);
  if (value.dtype != DType::kUndefined) m.message(2, type_message(value.dtype, value.wraps, &value));
  return m;
}

// value_info of what nodes make and is no output, without shapes.
void put_value_types(Message& m, const Graph& graph) {
  std::vector<bool> is_output(graph.values.size(), false);
  for (const ValueId v : graph.outputs) is_output[static_cast<std::size_t>(v)] = true;
  for (const Node& node : graph.nodes) {
    for (const ValueId v : node.outputs) {
      if (v == kNoValue || is_output[static_cast<std::size_t>(v)]) continue;
      const Value& value = graph.values[static_cast<std::size_t>(v)];
      if (value.dtype == DType::kUndefined) continue;
      Message info;
      info.text(1, value.name);
      info.message(2, type_message(value.dtype, value.wraps, nullptr));
      m.message(13, std::move(info));
    }
  }
}

Message graph_message(const Graph& graph, const Form& form, std::span<const InputDefault> defaults = {});

// AttributeProto.AttributeType, by our own.
constexpr std::int64_t kTypeNumbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 13};

Message attribute_message(const Attribute& attribute, const char* node, const Form& form) {
  const AttributeType type = attribute_type(attribute.value);
  if (!attribute.ref.empty() || type == AttributeType::kNone) {
    throw make_error(EVN_ERROR_UNSUPPORTED, "attribute '%.64s' comes from a function's and cannot be saved", attribute.name.c_str())
        .with_node(node);
  }
  Message m;
  m.text(1, attribute.name);
  switch (type) {
    case AttributeType::kFloat: m.fixed32(2, std::get<float>(attribute.value)); break;
    case AttributeType::kInt: m.varint(3, std::get<std::int64_t>(attribute.value)); break;
    case AttributeType::kString: m.text(4, std::get<std::string>(attribute.value)); break;
    case AttributeType::kTensor: m.message(5, tensor_message("", std::get<WeightPtr>(attribute.value), nullptr)); break;
    case AttributeType::kGraph: m.message(6, graph_message(*std::get<std::shared_ptr<Graph>>(attribute.value), form)); break;
    case AttributeType::kFloats:
      for (const float v : std::get<std::vector<float>>(attribute.value)) m.fixed32(7, v);
      break;
    case AttributeType::kInts:
      for (const std::int64_t v : std::get<std::vector<std::int64_t>>(attribute.value)) m.varint(8, v);
      break;
    case AttributeType::kStrings:
      for (const std::string& v : std::get<std::vector<std::string>>(attribute.value)) m.text(9, v);
      break;
    default: {
      const auto& desc = std::get<TensorDesc>(attribute.value);
      m.message(14, type_message(desc.dtype, desc.wraps, nullptr));
    }
  }
  m.varint(20, kTypeNumbers[static_cast<std::size_t>(type)]);
  return m;
}

void check_savable(const Node& node) {
  const char* what = !node.epilogue.empty() ? "steps that were fused into it"
                     : node.region >= 0     ? "a branch of an If that was put among the other nodes"
                     : node.body != nullptr ? "a body that was changed"
                                            : nullptr;
  if (what != nullptr) throw make_error(EVN_ERROR_UNSUPPORTED, "%s cannot be saved", what).with_node(node.name.c_str());
}

Message node_message(const Graph& graph, const Node& node, const Form& form) {
  check_savable(node);
  Message m;
  const auto name_of = [&](ValueId v) {
    return v == kNoValue ? std::string_view() : std::string_view(graph.values[static_cast<std::size_t>(v)].name);
  };
  for (const ValueId v : node.inputs) m.text(1, name_of(v));
  for (const ValueId v : node.outputs) m.text(2, name_of(v));
  m.text_if(3, node.name);
  m.text(4, node.op_type);
  for (const Attribute& a : node.attributes) m.message(5, attribute_message(a, node.name.c_str(), form));
  m.text_if(7, node.domain);
  m.text_if(8, node.overload);
  return m;
}

// `defaults`: of inputs of the graph that have one.
Message graph_message(const Graph& graph, const Form& form, std::span<const InputDefault> defaults) {
  Message m;
  for (const Node& node : graph.nodes) m.message(1, node_message(graph, node, form));
  m.text(2, graph.name.empty() ? "graph" : graph.name);
  for (const Value& v : graph.values) {
    if (v.constant == nullptr) continue;
    Message tensor = tensor_message(v.name, v.constant, form.external);
    if (v.origin != Origin::kUnknown) tensor.message(16, entry_message(kOriginKey, origin_kind(v.origin)));
    m.message(5, std::move(tensor));
  }
  for (const ValueId v : graph.inputs) m.message(11, value_info_message(graph.values[static_cast<std::size_t>(v)]));
  std::set<std::string_view> constants;
  for (const Value& v : graph.values) {
    if (!defaults.empty() && v.constant != nullptr) constants.insert(v.name);
  }
  for (const InputDefault& d : defaults) {
    if (d.input >= 0) m.message(5, tensor_message(d.declared.name, d.value, form.external));
    else if (constants.contains(d.declared.name)) m.message(11, value_info_message(d.declared));
  }
  for (const ValueId v : graph.outputs) m.message(12, value_info_message(graph.values[static_cast<std::size_t>(v)]));
  if (form.value_types) put_value_types(m, graph);
  return m;
}

Message opset_message(const OpsetImport& opset) {
  Message m;
  m.text(1, opset.domain).varint(2, opset.version);
  return m;
}

}  // namespace

SavedModel save_onnx(const Model& model, const Graph& graph, const std::string& external, bool value_types) {
  if (!model.functions.empty()) fail(EVN_ERROR_UNSUPPORTED, "a model with functions cannot be saved before they are put in place");
  Message m;
  m.varint(1, model.ir_version);
  m.text_if(2, model.producer);
  External beside;
  beside.name = external;
  m.message(7, graph_message(graph, {external.empty() ? nullptr : &beside, value_types}, model.defaults));
  for (const OpsetImport& o : model.opsets) m.message(8, opset_message(o));
  for (const MetadataEntry& e : model.metadata) m.message(14, entry_message(e.key, e.value));
  SavedModel saved;
  saved.size = m.size();
  saved.pieces = m.take();
  saved.external = std::move(beside.pieces);
  return saved;
}

std::string external_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1) + ".data"; }

void write_model_file(const std::string& path, const SavedModel& model) {
  if (model.size > kMostModelBytes) {
    throw make_error(EVN_ERROR_LIMIT, "the model would have %llu bytes; a file has at most %llu without external data",
                     static_cast<unsigned long long>(model.size), static_cast<unsigned long long>(kMostModelBytes))
        .with_bytes(model.size, kMostModelBytes);
  }
  std::vector<os::NewFile> files;
  for (const auto* const from : {&model.external, &model.pieces}) {
    if (from->empty()) continue;
    os::NewFile& file = files.emplace_back();
    file.path = from == &model.external ? path + ".data" : path;
    for (const SavedPiece& p : *from) {
      file.pieces.push_back(p.data != nullptr ? os::Piece{p.data->bytes(), p.data->size_bytes}
                                              : os::Piece{p.bytes.data(), p.bytes.size()});
    }
  }
  os::write_files_atomically(files);
}

std::shared_ptr<const void> model_bytes(const SavedModel& model, const LedgerPtr& ledger) {
  std::shared_ptr<void> bytes = allocate_charged(ledger, static_cast<std::size_t>(model.size), MemoryClass::kWeights);
  auto* to = static_cast<char*>(bytes.get());
  for (const SavedPiece& p : model.pieces) {
    const std::size_t size = p.data != nullptr ? p.data->size_bytes : p.bytes.size();
    move_in_pieces(to, p.data != nullptr ? p.data->bytes() : p.bytes.data(), size);
    to += size;
  }
  return bytes;
}

}  // namespace evn
