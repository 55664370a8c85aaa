// FunctionProto. A model may carry many functions that it does not use: their names and their form are checked, the rest of a
// function is read once something calls it.
#include <algorithm>
#include <tuple>
#include <utility>

#include "core/name_map.h"
#include "model/loader.h"

namespace evn {
namespace {

using wire::Count;
using wire::Field;
using wire::Kind;

// ---------------------------------------------------------------------------------------------------------- names --

struct HeaderReader {
  Loader& loader;
  FunctionHeader header;
};

constexpr wire::Row<HeaderReader> kHeaderRows[] = {
    {{1, "name", Kind::kBytes, Count::kOnce},
     [](HeaderReader& r, const Field& f) { r.header.name = r.loader.text(f, "FunctionProto", "name"); }},
    {{4, "input", Kind::kBytes, Count::kMany}, nullptr},
    {{5, "output", Kind::kBytes, Count::kMany}, nullptr},
    {{6, "attribute", Kind::kBytes, Count::kMany}, nullptr},
    {{7, "node", Kind::kBytes, Count::kMany}, nullptr},
    {{8, "doc_string", Kind::kBytes, Count::kOnce}, nullptr},
    {{9, "opset_import", Kind::kBytes, Count::kMany}, nullptr},
    {{10, "domain", Kind::kBytes, Count::kOnce},
     [](HeaderReader& r, const Field& f) { r.header.domain = plain_domain(r.loader.text(f, "FunctionProto", "domain")); }},
    {{11, "attribute_proto", Kind::kBytes, Count::kMany}, nullptr},
    {{12, "value_info", Kind::kBytes, Count::kMany}, nullptr},
    {{13, "overload", Kind::kBytes, Count::kOnce},
     [](HeaderReader& r, const Field& f) { r.header.overload = r.loader.text(f, "FunctionProto", "overload"); }},
    {{14, "metadata_props", Kind::kBytes, Count::kMany}, nullptr},
};

// -------------------------------------------------------------------------------------------------------- the body --

struct BodyReader {
  Loader& loader;
  Function function;
  NameMap ids;
  std::vector<std::string_view> attributes;  // declared, with and without a default

  ValueId id(std::string_view name) {
    std::vector<Value>& values = function.body.values;
    const auto [it, is_new] = ids.try_emplace(name, static_cast<ValueId>(values.size()));
    if (is_new) values.emplace_back().name = name;
    return it->second;
  }

  void declare_attribute(std::string_view name, const char* field, const std::uint8_t* at) {
    if (name.empty()) loader.file.fail_field("FunctionProto", field, at, "has no name");
    attributes.push_back(name);
  }
};

void add_formal(BodyReader& r, const Field& f, const char* field, std::vector<ValueId>& to) {
  const std::string_view name = r.loader.text(f, "FunctionProto", field);
  if (name.empty()) r.loader.file.fail_field("FunctionProto", field, f.at, "has no name");
  to.push_back(r.id(name));
}

constexpr wire::Row<BodyReader> kBodyRows[] = {
    {{4, "input", Kind::kBytes, Count::kMany},
     [](BodyReader& r, const Field& f) { add_formal(r, f, "input", r.function.body.inputs); }},
    {{5, "output", Kind::kBytes, Count::kMany},
     [](BodyReader& r, const Field& f) { add_formal(r, f, "output", r.function.body.outputs); }},
    {{6, "attribute", Kind::kBytes, Count::kMany},
     [](BodyReader& r, const Field& f) { r.declare_attribute(r.loader.text(f, "FunctionProto", "attribute"), "attribute", f.at); }},
    {{7, "node", Kind::kBytes, Count::kMany},
     [](BodyReader& r, const Field& f) {
       r.loader.count_node(f.at);
       const NodeNames names{&r, [](void* context, std::string_view name) { return static_cast<BodyReader*>(context)->id(name); }};
       r.loader.in_function = true;
       r.function.body.nodes.push_back(read_node(r.loader, f.bytes, names));
       r.loader.in_function = false;
     }},
    {{9, "opset_import", Kind::kBytes, Count::kMany},
     [](BodyReader& r, const Field& f) { read_opset(r.loader, f, "FunctionProto", r.function.opsets); }},
    {{11, "attribute_proto", Kind::kBytes, Count::kMany},
     [](BodyReader& r, const Field& f) { r.function.defaults.push_back(read_attribute(r.loader, f.bytes)); }},
};

template <typename T>
bool has_twins(std::vector<T> names) {
  std::ranges::sort(names);
  return std::adjacent_find(names.begin(), names.end()) != names.end();
}

Function read_body(Loader& loader, const FunctionHeader& header) {
  BodyReader reader{.loader = loader, .function = {}, .ids = {}, .attributes = {}};
  reader.function.domain = header.domain;
  reader.function.name = header.name;
  reader.function.overload = header.overload;
  wire::read_message(loader.file, header.range, "FunctionProto", kBodyRows, reader);
  const auto refuse = [&](const char* field, const char* what) {
    loader.file.fail_field("FunctionProto", field, header.range.begin, what);
  };
  if (has_twins(reader.function.body.inputs)) refuse("input", "is there twice");
  if (has_twins(reader.function.body.outputs)) refuse("output", "is there twice");
  for (const Attribute& a : reader.function.defaults) reader.attributes.push_back(a.name);
  if (has_twins(std::move(reader.attributes))) refuse("attribute", "is declared twice");
  return std::move(reader.function);
}

// ------------------------------------------------------------------------------------------- those that are called --

using Key = std::tuple<std::string_view, std::string_view, std::string_view>;
Key key_of(const FunctionHeader& header) { return {header.domain, header.name, header.overload}; }

struct Called {
  const std::vector<FunctionHeader>& headers;  // sorted
  std::vector<bool> seen;
  std::vector<std::size_t> waiting;  // numbers of headers

  void find(const std::vector<Node>& nodes) {
    for (const Node& node : nodes) {
      const Key key{node.domain, node.op_type, node.overload};
      const auto it = std::lower_bound(headers.begin(), headers.end(), key,
                                       [](const FunctionHeader& header, const Key& k) { return key_of(header) < k; });
      const auto number = static_cast<std::size_t>(it - headers.begin());
      if (it != headers.end() && key_of(*it) == key && !seen[number]) {
        seen[number] = true;
        waiting.push_back(number);
      }
      find(node.attributes);
    }
  }
  void find(const std::vector<Attribute>& attributes) {
    for (const Attribute& attribute : attributes) {
      if (const auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute.value)) find((*body)->nodes);
    }
  }
};

}  // namespace

FunctionHeader read_function_header(Loader& loader, wire::Bytes range) {
  HeaderReader reader{loader, {}};
  wire::read_message(loader.file, range, "FunctionProto", kHeaderRows, reader);
  if (reader.header.name.empty()) loader.file.fail_field("FunctionProto", "name", range.begin, "is missing");
  reader.header.range = range;
  return reader.header;
}

std::vector<Function> read_called_functions(Loader& loader, std::vector<FunctionHeader> headers, const Graph& graph) {
  std::vector<Function> functions;
  if (headers.empty()) return functions;
  std::ranges::sort(headers, [](const FunctionHeader& a, const FunctionHeader& b) {
    return key_of(a) != key_of(b) ? key_of(a) < key_of(b) : a.range.begin < b.range.begin;
  });
  for (std::size_t i = 1; i < headers.size(); ++i) {
    if (key_of(headers[i - 1]) == key_of(headers[i])) {
      loader.file.fail_field("ModelProto", "functions", headers[i].range.begin, "has a function twice");
    }
  }
  Called called{headers, std::vector<bool>(headers.size()), {}};
  called.find(graph.nodes);
  while (!called.waiting.empty()) {
    const FunctionHeader& header = headers[called.waiting.back()];
    called.waiting.pop_back();
    functions.push_back(read_body(loader, header));
    called.find(functions.back().body.nodes);
    called.find(functions.back().defaults);
  }
  return functions;
}

}  // namespace evn
