// Source of the field numbers: onnx.proto of ONNX 1.18.
#include "train/onnx.h"

#include <cstring>
#include <optional>
#include <set>
#include <string_view>

#include "base/cancel.h"
#include "train/library.h"

namespace evn_train {
namespace {

// ------------------------------------------------------------------------------------------------------ reading --

constexpr std::int64_t kFieldWork = 4;  // a short text is copied

struct Field {
  std::uint32_t number = 0, type = 0;
  std::uint64_t value = 0;
  std::string_view bytes;  // of type 2
  std::string_view whole;  // key and all
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : begin_(bytes.data()), at_(begin_), end_(begin_ + bytes.size()) {}

  bool next(Field* f) {
    if (at_ == end_) return false;
    const char* const start = at_;
    const std::uint64_t key = varint();
    f->number = static_cast<std::uint32_t>(key >> 3);
    f->type = static_cast<std::uint32_t>(key & 7);
    switch (f->type) {
      case 0: f->value = varint(); break;
      case 1: f->value = fixed(8); break;
      case 2: f->bytes = take(varint()); break;
      case 5: f->value = fixed(4); break;
      default: broken();
    }
    f->whole = {start, static_cast<std::size_t>(at_ - start)};
    return true;
  }

 private:
  [[noreturn]] static void broken() { fail(EVN_ERROR_INTERNAL, "the model that the library has written cannot be read"); }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ == end_) broken();
      const auto byte = static_cast<unsigned char>(*at_++);
      value |= static_cast<std::uint64_t>(byte & 127u) << shift;
      if (byte < 128) return value;
    }
    broken();
  }

  std::string_view take(std::uint64_t size) {
    if (size > static_cast<std::uint64_t>(end_ - at_)) broken();
    const std::string_view taken(at_, static_cast<std::size_t>(size));
    at_ += size;
    return taken;
  }

  std::uint64_t fixed(std::size_t size) {
    std::uint64_t value = 0;
    std::memcpy(&value, take(size).data(), size);  // little-endian, as the machine is
    return value;
  }

  const char* begin_;
  const char* at_;
  const char* end_;
};

// `f` gets each field of the message.
template <typename F>
void each(std::string_view message, F&& f) {
  Reader reader(message);
  for (Field field; reader.next(&field);) {
    evn::cancellation_point(kFieldWork);
    f(field);
  }
}

std::string copied(std::string_view bytes) {
  std::string copy;
  copy.reserve(bytes.size());
  evn::in_pieces(static_cast<std::int64_t>(bytes.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    copy.append(bytes.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
  });
  return copy;
}

OnnxNode read_node(std::string_view bytes) {
  OnnxNode node;
  each(bytes, [&](const Field& f) {
    switch (f.number) {
      case 1: node.inputs.emplace_back(f.bytes); break;
      case 2: node.outputs.emplace_back(f.bytes); break;
      case 3: node.name = f.bytes; break;
      case 4: node.op_type = f.bytes; break;
      case 5: node.attributes.push_back(copied(f.bytes)); break;
      case 7: node.domain = f.bytes; break;
      default: break;
    }
  });
  return node;
}

void find_nodes(const OnnxNode& node, std::vector<OnnxNode>* nodes) {
  for (const std::string& attribute : node.attributes) {
    each(attribute, [&](const Field& of_attribute) {
      if (of_attribute.number != 6 || of_attribute.type != 2) return;  // g
      each(of_attribute.bytes, [&](const Field& of_graph) {
        if (of_graph.number != 1) return;
        const OnnxNode inner = read_node(of_graph.bytes);
        find_nodes(inner, nodes);
        nodes->push_back(inner);
      });
    });
  }
}

void read_dims(const Field& f, std::vector<std::int64_t>* dims) {
  if (f.type == 0) return dims->push_back(static_cast<std::int64_t>(f.value));
  std::string_view rest = f.bytes;
  while (!rest.empty()) {
    evn::cancellation_point();
    std::uint64_t value = 0;
    unsigned shift = 0;
    for (bool more = true; more && !rest.empty(); rest.remove_prefix(1), shift += 7) {
      const auto byte = static_cast<unsigned char>(rest.front());
      if (shift < 64) value |= static_cast<std::uint64_t>(byte & 127u) << shift;
      more = byte >= 128;
    }
    dims->push_back(static_cast<std::int64_t>(value));
  }
}

// StringStringEntryProto.
std::pair<std::string_view, std::string_view> read_entry(std::string_view bytes) {
  std::pair<std::string_view, std::string_view> entry;
  each(bytes, [&](const Field& f) {
    if (f.number == 1) entry.first = f.bytes;
    if (f.number == 2) entry.second = f.bytes;
  });
  return entry;
}

OnnxTensor read_tensor(std::string_view bytes) {
  OnnxTensor tensor;
  tensor.whole = bytes;
  each(bytes, [&](const Field& f) {
    switch (f.number) {
      case 1: read_dims(f, &tensor.dims); break;
      case 2: tensor.dtype = static_cast<std::int32_t>(f.value); break;
      case 8: tensor.name = f.bytes; break;
      case 9: tensor.data = f.bytes; break;
      case 16:  // metadata_props
        if (const auto [key, kind] = read_entry(f.bytes); key == evn::kOriginKey) tensor.origin = evn::origin_of(kind);
        break;
      default: break;
    }
  });
  return tensor;
}

void read_shape(std::string_view bytes, OnnxValue* value) {
  value->has_shape = true;
  each(bytes, [&](const Field& dim) {
    if (dim.number != 1) return;
    value->dims.push_back(-1);
    value->symbols.emplace_back();
    each(dim.bytes, [&](const Field& f) {
      if (f.number == 1) value->dims.back() = static_cast<std::int64_t>(f.value);
      if (f.number == 2) value->symbols.back() = f.bytes;
    });
  });
}

OnnxValue read_value(std::string_view bytes) {
  OnnxValue value;
  value.whole = bytes;
  each(bytes, [&](const Field& f) {
    if (f.number == 1) value.name = f.bytes;
    if (f.number != 2) return;
    each(f.bytes, [&](const Field& type) {
      if (type.number != 1) return;  // tensor_type
      each(type.bytes, [&](const Field& t) {
        if (t.number == 1) value.dtype = static_cast<std::int32_t>(t.value);
        if (t.number == 2) read_shape(t.bytes, &value);
      });
    });
  });
  return value;
}

// Takes a Constant node of float32 as an initializer. Returns false if the node is none.
bool take_literal(std::string_view node, const OnnxNode& read, OnnxModel* model) {
  if (read.op_type != "Constant" || !read.domain.empty() || read.outputs.size() != 1) return false;
  std::optional<OnnxTensor> tensor;
  each(node, [&](const Field& of_node) {
    if (of_node.number != 5) return;
    each(of_node.bytes, [&](const Field& f) {
      if (f.number == 5 && f.type == 2) tensor = read_tensor(f.bytes);  // t
    });
  });
  if (!tensor || tensor->dtype != kFloat) return false;
  tensor->name = read.outputs[0];
  tensor->whole = {};
  tensor->is_literal = true;
  model->initializers.push_back(*tensor);
  return true;
}

void take_type(const OnnxValue& value, OnnxModel* model) {
  if (value.dtype != 0) model->types.emplace_back(value.name, value.dtype);
}

void read_graph(std::string_view bytes, OnnxModel* model) {
  each(bytes, [&](const Field& f) {
    switch (f.number) {
      case 1: {
        OnnxNode node = read_node(f.bytes);
        if (!take_literal(f.bytes, node, model)) model->nodes.push_back(std::move(node));
        break;
      }
      case 2: model->graph_name = f.bytes; break;
      case 5: model->initializers.push_back(read_tensor(f.bytes)); break;
      case 11: model->inputs.push_back(read_value(f.bytes)); break;
      case 12:
        model->outputs.push_back(read_value(f.bytes));
        take_type(model->outputs.back(), model);
        break;
      case 13: take_type(read_value(f.bytes), model); break;  // value_info, which is not kept: it goes stale
      default: break;
    }
  });
}

// ------------------------------------------------------------------------------------------------------ writing --

void put_varint(std::string* out, std::uint64_t value) {
  for (; value >= 128; value >>= 7) out->push_back(static_cast<char>(value | 128u));
  out->push_back(static_cast<char>(value));
}

void put_key(std::string* out, std::uint32_t number, std::uint32_t type) { put_varint(out, std::uint64_t{number} << 3 | type); }

void put_int(std::string* out, std::uint32_t number, std::int64_t value) {
  put_key(out, number, 0);
  put_varint(out, static_cast<std::uint64_t>(value));
}

void put_bytes(std::string* out, std::uint32_t number, std::string_view bytes) {
  put_key(out, number, 2);
  put_varint(out, bytes.size());
  out->append(bytes);
}

void put_float(std::string* out, std::uint32_t number, float value) {
  put_key(out, number, 5);
  char bytes[4];
  std::memcpy(bytes, &value, 4);
  out->append(bytes, 4);
}

std::string node_bytes(const OnnxNode& node) {
  std::string out;
  for (const std::string& name : node.inputs) put_bytes(&out, 1, name);
  for (const std::string& name : node.outputs) put_bytes(&out, 2, name);
  put_bytes(&out, 3, node.name);
  put_bytes(&out, 4, node.op_type);
  for (const std::string& attribute : node.attributes) put_bytes(&out, 5, attribute);
  if (!node.domain.empty()) put_bytes(&out, 7, node.domain);
  return out;
}

std::string tensor_bytes(const OnnxTensor& tensor) {
  if (!tensor.whole.empty()) return std::string(tensor.whole);
  std::string out;
  for (const std::int64_t dim : tensor.dims) put_int(&out, 1, dim);
  put_int(&out, 2, tensor.dtype);
  put_bytes(&out, 8, tensor.name);
  put_bytes(&out, 9, tensor.data);
  if (tensor.origin != evn::Origin::kUnknown) {
    std::string entry;
    put_bytes(&entry, 1, evn::kOriginKey);
    put_bytes(&entry, 2, evn::origin_kind(tensor.origin));
    put_bytes(&out, 16, entry);
  }
  return out;
}

std::string value_bytes(const OnnxValue& value) {
  if (value.dtype == 0) return value.whole;
  std::string shape, type, outer, out;
  for (std::size_t i = 0; i < value.dims.size(); ++i) {
    std::string dim;
    if (value.dims[i] >= 0) put_int(&dim, 1, value.dims[i]);
    if (value.dims[i] < 0 && i < value.symbols.size() && !value.symbols[i].empty()) put_bytes(&dim, 2, value.symbols[i]);
    put_bytes(&shape, 1, dim);
  }
  put_int(&type, 1, value.dtype);
  if (value.has_shape) put_bytes(&type, 2, shape);
  put_bytes(&outer, 1, type);
  put_bytes(&out, 1, value.name);
  put_bytes(&out, 2, outer);
  return out;
}

std::string attribute_bytes(const char* name, std::int64_t type, std::string_view value) {
  std::string out;
  put_bytes(&out, 1, name);
  out.append(value);
  put_int(&out, 20, type);
  return out;
}

}  // namespace

OnnxModel read_onnx(std::string_view bytes) {
  OnnxModel model;
  each(bytes, [&](const Field& f) {
    if (f.number == 1) {
      model.ir_version = static_cast<std::int64_t>(f.value);
    } else if (f.number == 7) {
      read_graph(f.bytes, &model);
    } else if (f.number == 8) {
      auto& opset = model.opsets.emplace_back();
      each(f.bytes, [&](const Field& o) {
        if (o.number == 1) opset.first = o.bytes;
        if (o.number == 2) opset.second = static_cast<std::int64_t>(o.value);
      });
    } else {
      model.others.append(f.whole);
    }
  });
  std::set<std::string_view> constants;
  for (const OnnxTensor& t : model.initializers) constants.insert(t.name);
  std::vector<OnnxValue> all;
  all.swap(model.inputs);
  for (OnnxValue& input : all) (constants.contains(input.name) ? model.defaults : model.inputs).push_back(std::move(input));
  return model;
}

std::string write_onnx(const OnnxModel& model) {
  std::string graph, out;
  std::size_t size = 0;
  for (const OnnxTensor& t : model.initializers) size += t.data.size() + t.whole.size() + 64;
  graph.reserve(size);
  for (const OnnxNode& node : model.nodes) {
    evn::cancellation_point(evn::kNodeWork);
    put_bytes(&graph, 1, node_bytes(node));
  }
  put_bytes(&graph, 2, model.graph_name);
  for (const OnnxTensor& tensor : model.initializers) {
    evn::cancellation_point(evn::kNodeWork);
    put_bytes(&graph, 5, tensor_bytes(tensor));
  }
  for (const OnnxValue& value : model.inputs) put_bytes(&graph, 11, value_bytes(value));
  for (const OnnxValue& value : model.outputs) put_bytes(&graph, 12, value_bytes(value));
  out.reserve(graph.size() + model.others.size() + 256);
  put_int(&out, 1, model.ir_version);
  out.append(model.others);
  for (const auto& [domain, version] : model.opsets) {
    std::string opset;
    if (!domain.empty()) put_bytes(&opset, 1, domain);
    put_int(&opset, 2, version);
    put_bytes(&out, 8, opset);
  }
  put_bytes(&out, 7, graph);
  return out;
}

std::vector<OnnxBody> bodies_of(const OnnxNode& node) {
  std::vector<OnnxBody> bodies;
  for (const std::string& attribute : node.attributes) {
    each(attribute, [&](const Field& f) {
      if (f.number != 6 || f.type != 2) return;  // g
      OnnxModel graph;
      read_graph(f.bytes, &graph);
      OnnxBody& body = bodies.emplace_back();
      body.nodes = std::move(graph.nodes);
      body.types = std::move(graph.types);
      for (const OnnxValue& v : graph.inputs) body.inputs.push_back(v.name);
      for (const OnnxValue& v : graph.outputs) body.outputs.push_back(v.name);
    });
  }
  return bodies;
}

std::vector<OnnxNode> nodes_in_bodies(const OnnxNode& node) {
  std::vector<OnnxNode> nodes;
  find_nodes(node, &nodes);
  return nodes;
}

std::string int_attribute(const char* name, std::int64_t value) {
  std::string v;
  put_int(&v, 3, value);
  return attribute_bytes(name, 2, v);
}

std::string float_attribute(const char* name, float value) {
  std::string v;
  put_float(&v, 2, value);
  return attribute_bytes(name, 1, v);
}

std::string text_attribute(const char* name, const std::string& value) {
  std::string v;
  put_bytes(&v, 4, value);
  return attribute_bytes(name, 3, v);
}

std::string texts_attribute(const char* name, const std::vector<std::string>& values) {
  std::string v;
  for (const std::string& value : values) put_bytes(&v, 9, value);
  return attribute_bytes(name, 8, v);
}

std::string ints_attribute(const char* name, const std::vector<std::int64_t>& values) {
  std::string v;
  for (const std::int64_t value : values) put_int(&v, 8, value);
  return attribute_bytes(name, 7, v);
}

std::string attribute_name(std::string_view attribute) {
  std::string name;
  each(attribute, [&](const Field& f) {
    if (f.number == 1) name = f.bytes;
  });
  return name;
}

double attribute_number(const OnnxNode& node, std::string_view name, double otherwise) {
  for (const std::string& attribute : node.attributes) {
    if (attribute_name(attribute) != name) continue;
    double number = otherwise;
    each(attribute, [&](const Field& f) {
      if (f.number == 2) {
        float value = 0;
        const auto bits = static_cast<std::uint32_t>(f.value);
        std::memcpy(&value, &bits, 4);
        number = static_cast<double>(value);
      }
      if (f.number == 3) number = static_cast<double>(static_cast<std::int64_t>(f.value));
    });
    return number;
  }
  return otherwise;
}

std::vector<std::int64_t> attribute_ints(const OnnxNode& node, std::string_view name) {
  std::vector<std::int64_t> values;
  for (const std::string& attribute : node.attributes) {
    if (attribute_name(attribute) != name) continue;
    each(attribute, [&](const Field& f) {
      if (f.number == 8) read_dims(f, &values);
    });
  }
  return values;
}

std::string attribute_text(const OnnxNode& node, std::string_view name) {
  std::string text;
  for (const std::string& attribute : node.attributes) {
    if (attribute_name(attribute) != name) continue;
    each(attribute, [&](const Field& f) {
      if (f.number == 4) text = f.bytes;
    });
  }
  return text;
}

bool has_body(const OnnxNode& node) {
  bool has = false;
  for (const std::string& attribute : node.attributes)
    each(attribute, [&](const Field& f) { has |= f.number == 6 || f.number == 11; });
  return has;
}

}  // namespace evn_train
