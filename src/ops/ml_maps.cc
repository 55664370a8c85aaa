// ai.onnx.ml, maps: ZipMap, DictVectorizer, CastMap. They run on the host (ops/host.h).
//   ZipMap: of each row of x a map from the class labels to its elements; a vector is one row. DictVectorizer: [1, count], of each
//   word of the vocabulary the map's value, where the map has none 0 or "". CastMap: [1, n], the values in the order of their keys;
//   SPARSE: the value of key k stands at k, of max_map places. A number becomes a text of six decimals, and absent texts "0.f", as
//   ONNX Runtime writes them.
// dtypes: x float32; maps as in the specification. Failures: class labels or a vocabulary that are not there, or there twice; a
// class label given twice; at run (INVALID_ARGUMENT): with SPARSE a key outside [0, max_map), a text that is no number. Exact.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <numeric>

#include "base/number_text.h"
#include "ops/infra/check.h"
#include "ops/infra/key_less.h"
#include "ops/infra/numeric.h"
#include "ops/infra/runtime_values.h"
#include "ops/infra/text_number.h"

namespace evn {
namespace {

// A string tensor whose texts a pool of the call's own keeps, as one whose texts are counted.
RuntimeValuePtr keep_texts(HostServices& services, const std::shared_ptr<RuntimeValue>& made) {
  made->borrowed = true;
  return services.keep(made);
}

bool is_map_of_ints(const RuntimeValuePtr& map) { return map->desc.wraps.outer() == Wrap::kMapOfInts; }

// Just one list of keys; attribute `ints` or `strings`.
bool are_strings(const Node& node, int ints, int strings) {
  if (attr_ints(node, ints).empty() == attr_strings(node, strings).empty()) {
    const auto attributes = node.op->attributes;
    fail(EVN_ERROR_INVALID_MODEL, "just one of %s and %s must be there", attributes[static_cast<std::size_t>(ints)].name,
         attributes[static_cast<std::size_t>(strings)].name);
  }
  return attr_ints(node, ints).empty();
}

// ------------------------------------------------------------------------------------------------------------- ZipMap --

enum : int { kLabelInts, kLabelStrings };

template <typename T>
void require_unlike(std::span<const T> labels, const char* what) {
  std::vector<std::size_t> order(labels.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const KeyLess less;
  std::ranges::sort(
      order, [&](std::size_t a, std::size_t b) { return less(labels[a], labels[b]) || (a < b && !less(labels[b], labels[a])); });
  for (std::size_t i = 1; i < order.size(); ++i) {
    cancellation_point();
    if (!less(labels[order[i - 1]], labels[order[i]])) {
      fail(EVN_ERROR_INVALID_MODEL, "%s[%zu] and [%zu] are equal", what, std::min(order[i - 1], order[i]),
           std::max(order[i - 1], order[i]));
    }
  }
}

std::size_t label_count(const Node& node) { return attr_ints(node, kLabelInts).size() + attr_strings(node, kLabelStrings).size(); }

void infer_zip(InferContext& c) {
  require_tensor(c, 0);
  require_dtype(c, 0, dtype_bit(DType::kFloat32));
  const bool strings = are_strings(c.node, kLabelInts, kLabelStrings);
  require_unlike(attr_ints(c.node, kLabelInts), "classlabels_int64s");
  require_unlike(attr_strings(c.node, kLabelStrings), "classlabels_strings");
  if (!rank_unknown(c.inputs[0])) {
    require_rank(c, 0, 1, 2);
    require_dim(c.shape(0)[c.shape(0).rank() - 1], static_cast<std::int64_t>(label_count(c.node)), 0);
  }
  c.outputs[0].wraps = Wraps().in(strings ? Wrap::kMapOfStrings : Wrap::kMapOfInts).in(Wrap::kSequence);
}

RuntimeValuePtr labels_runtime_value(HostServices& services, const Node& node, bool strings) {
  const auto count = static_cast<std::int64_t>(label_count(node));
  void* to = nullptr;
  std::shared_ptr<RuntimeValue> keys = services.make_tensor({strings ? DType::kString : DType::kInt64, {count}}, &to);
  if (!strings) {
    move_in_pieces(to, attr_ints(node, kLabelInts).data(), static_cast<std::size_t>(count) * sizeof(std::int64_t));
    return keys;
  }
  TextPool texts(nullptr);
  auto* label = static_cast<TextElement*>(to);
  for (const std::string& text : attr_strings(node, kLabelStrings)) {
    cancellation_point();
    *label++ = texts.add(text);
  }
  return keep_texts(services, keys);
}

void host_zip(HostContext& c) {
  const bool strings = are_strings(c.node, kLabelInts, kLabelStrings);
  const RuntimeValuePtr x = c.services.keep(c.inputs[0]);
  const auto count = static_cast<std::int64_t>(label_count(c.node));
  const Shape& shape = x->desc.shape;
  if (shape.rank() < 1 || shape.rank() > 2 || shape[shape.rank() - 1] != count) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "an input of shape %s for %lld class labels", shape.to_string().c_str(),
         static_cast<long long>(count));
  }
  const RuntimeValuePtr keys = labels_runtime_value(c.services, c.node, strings);
  const TensorDesc map_type{DType::kFloat32, {}, Wraps().in(strings ? Wrap::kMapOfStrings : Wrap::kMapOfInts)};
  std::vector<RuntimeValuePtr> maps;
  for (std::int64_t at = 0; at < shape.elements(); at += count) {
    cancellation_point();
    auto values = std::make_shared<RuntimeValue>();
    values->desc = {DType::kFloat32, {count}};
    values->data = std::shared_ptr<const void>(x, x->as<float>() + at);  // all maps share the bytes
    auto map = std::make_shared<RuntimeValue>();
    map->desc = map_type;
    map->parts = {keys, std::move(values)};
    maps.push_back(std::move(map));
  }
  c.outputs[0] = make_runtime_value(map_type, Wrap::kSequence, std::move(maps));
}

// ----------------------------------------------------------------------------------------------------- DictVectorizer --

enum : int { kVocabularyInts, kVocabularyStrings };

constexpr std::uint32_t kDictValues = dtype_bit(DType::kInt64) | dtype_bit(DType::kFloat32) | dtype_bit(DType::kFloat64) | kString;

void infer_dict(InferContext& c) {
  const bool strings = are_strings(c.node, kVocabularyInts, kVocabularyStrings);
  require_wrap(c, 0, strings ? Wrap::kMapOfStrings : Wrap::kMapOfInts);
  const DType value = c.inputs[0].dtype;
  const bool known = value == DType::kFloat32 || value == DType::kFloat64 || value == (strings ? DType::kInt64 : DType::kString);
  if (c.inputs[0].wraps.inside() || !known)
    fail(EVN_ERROR_INVALID_MODEL, "input 0 of DictVectorizer is of type %s", c.inputs[0].type_string().c_str());
  const std::size_t count = attr_ints(c.node, kVocabularyInts).size() + attr_strings(c.node, kVocabularyStrings).size();
  c.outputs[0] = {value, {1, static_cast<std::int64_t>(count)}};
}

// to[i] = the value of word i, where the map has one; of equal keys the last counts.
template <typename Key, typename Words>
void look_up(const RuntimeValuePtr& map, const Words& words, char* to) {
  const RuntimeValuePtr &keys = map->parts[0], &values = map->parts[1];
  std::map<Key, std::int64_t, KeyLess> place;
  for (std::int64_t i = 0; i < keys->desc.shape.elements(); ++i) {
    cancellation_point();
    if constexpr (std::is_same_v<Key, std::string_view>) {
      place[text_of(keys->as<TextElement>()[i])] = i;
    } else {
      place[keys->as<Key>()[i]] = i;
    }
  }
  const std::size_t width = dtype_size(values->desc.dtype);
  for (std::size_t i = 0; i < words.size(); ++i) {
    cancellation_point();
    const auto found = place.find(Key(words[i]));
    if (found != place.end())
      std::memcpy(to + i * width, values->as<char>() + static_cast<std::size_t>(found->second) * width, width);
  }
}

void host_dict(HostContext& c) {
  const RuntimeValuePtr map = c.services.keep(c.inputs[0]);
  const auto ints = attr_ints(c.node, kVocabularyInts);
  const auto strings = attr_strings(c.node, kVocabularyStrings);
  void* to = nullptr;
  const auto made = c.services.make_tensor({map->desc.dtype, {1, static_cast<std::int64_t>(ints.size() + strings.size())}}, &to);
  if (is_map_of_ints(map)) {
    look_up<std::int64_t>(map, ints, static_cast<char*>(to));
  } else {
    look_up<std::string_view>(map, strings, static_cast<char*>(to));
  }
  made->texts = map->parts[1]->texts;
  c.outputs[0] = made;
}

// ------------------------------------------------------------------------------------------------------------ CastMap --

enum : int { kCastTo, kMapForm, kMaxMap };

DType cast_dtype(const Node& node, std::span<const DType>, int) {
  const std::string& to = attr_string(node, kCastTo);
  if (to == "TO_FLOAT") return DType::kFloat32;
  if (to == "TO_STRING") return DType::kString;
  if (to == "TO_INT64") return DType::kInt64;
  fail(EVN_ERROR_INVALID_MODEL, "cast_to '%.40s' is not known", to.c_str());
}

bool is_sparse(const Node& node) {
  const std::string& form = attr_string(node, kMapForm);
  if (form != "DENSE" && form != "SPARSE") fail(EVN_ERROR_INVALID_MODEL, "map_form '%.40s' is not known", form.c_str());
  return form == "SPARSE";
}

void infer_cast_map(InferContext& c) {
  require_wrap(c, 0, Wrap::kMapOfInts);
  const TensorDesc& x = c.inputs[0];
  if (x.wraps.inside() || (x.dtype != DType::kFloat32 && x.dtype != DType::kString)) {
    fail(EVN_ERROR_INVALID_MODEL, "input 0 of CastMap is of type %s", x.type_string().c_str());
  }
  const std::int64_t places = attr_int(c.node, kMaxMap);
  if (is_sparse(c.node) && places < 1) fail(EVN_ERROR_INVALID_MODEL, "max_map is %lld", static_cast<long long>(places));
  c.outputs[0].shape = {1, is_sparse(c.node) ? places : -1};
}

std::int64_t integer_of_text(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  return saturate_to<std::int64_t>(number_of_text(text));
}

float float_of_text(std::string_view text) {
  const double value = number_of_text(text);
  constexpr double kEdge = 0x1.ffffffp127;  // beyond it the conversion itself is undefined
  if (std::fabs(value) >= kEdge) return static_cast<float>(std::copysign(std::numeric_limits<double>::infinity(), value));
  return static_cast<float>(value);
}

// to[at] = values[from], as the type of `to`.
void cast_value(const RuntimeValue& values, std::int64_t from, DType dtype, void* to, std::int64_t at, TextPool* texts) {
  const bool is_text = values.desc.dtype == DType::kString;
  const std::string_view text = is_text ? text_of(values.as<TextElement>()[from]) : std::string_view();
  const float number = is_text ? 0 : values.as<float>()[from];
  if (dtype == DType::kString) {
    static_cast<TextElement*>(to)[at] = texts->add(is_text ? std::string(text) : fixed_text(number, 6));
  } else if (dtype == DType::kFloat32) {
    static_cast<float*>(to)[at] = is_text ? float_of_text(text) : number;
  } else {
    static_cast<std::int64_t*>(to)[at] = is_text ? integer_of_text(text) : saturate_to<std::int64_t>(static_cast<double>(number));
  }
}

void host_cast_map(HostContext& c) {
  const RuntimeValue &keys = *c.inputs[0]->parts[0], &values = *c.inputs[0]->parts[1];
  const bool sparse = is_sparse(c.node);
  const DType dtype = cast_dtype(c.node, {}, 0);
  std::map<std::int64_t, std::int64_t> order;  // of equal keys the last counts
  for (std::int64_t i = 0; i < keys.desc.shape.elements(); ++i) {
    cancellation_point();
    order[keys.as<std::int64_t>()[i]] = i;
  }
  const std::int64_t count = sparse ? attr_int(c.node, kMaxMap) : static_cast<std::int64_t>(order.size());
  void* to = nullptr;
  TextPool texts(nullptr);
  const auto made = c.services.make_tensor({dtype, {1, count}}, &to);
  if (sparse && dtype == DType::kString) {
    const TextElement absent = texts.add("0.f");
    fill_in_pieces(static_cast<TextElement*>(to), count, absent);
  }
  std::int64_t next = 0;
  for (const auto& [key, from] : order) {
    cancellation_point();
    if (sparse && (key < 0 || key >= count)) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "key %lld, where max_map is %lld", static_cast<long long>(key),
           static_cast<long long>(count));
    }
    cast_value(values, from, dtype, to, sparse ? key : next++, &texts);
  }
  c.outputs[0] = dtype == DType::kString ? keep_texts(c.services, made) : made;
}

// --------------------------------------------------------------------------------------------------------------- table --

constexpr const char* kDomain = "ai.onnx.ml";
constexpr AttributeSpec kZip[] = {optional_attribute("classlabels_int64s", AttributeType::kInts),
                                  optional_attribute("classlabels_strings", AttributeType::kStrings)};
constexpr AttributeSpec kDict[] = {optional_attribute("int64_vocabulary", AttributeType::kInts),
                                   optional_attribute("string_vocabulary", AttributeType::kStrings)};
constexpr AttributeSpec kCast[] = {string_attribute("cast_to", "TO_FLOAT"), string_attribute("map_form", "DENSE"),
                                   int_attribute("max_map", 1)};
constexpr OpDef kOps[] = {
    {.name = "ZipMap",
     .domain = kDomain,
     .since = 1,
     .attributes = kZip,
     .dtypes = dtype_bit(DType::kFloat32),
     .flags = kOpAnyRank,
     .infer = infer_zip,
     .host = host_zip},
    {.name = "DictVectorizer",
     .domain = kDomain,
     .since = 1,
     .attributes = kDict,
     .dtypes = kDictValues,
     .flags = kOpAnyRank,
     .infer = infer_dict,
     .host = host_dict},
    {.name = "CastMap",
     .domain = kDomain,
     .since = 1,
     .attributes = kCast,
     .dtypes = dtype_bit(DType::kFloat32) | kString,
     .flags = kOpAnyRank,
     .output_dtype = cast_dtype,
     .infer = infer_cast_map,
     .host = host_cast_map},
};

}  // namespace

extern const OpFamily ml_maps_family;
const OpFamily ml_maps_family = {kOps};

}  // namespace evn
