#include "train/model_hash.h"

#include "core/text.h"

namespace evn_train {
namespace {

using evn::Hasher;

template <typename T>
void add_list(Hasher* hash, const std::vector<T>& list) {
  hash->add(list.size());
  hash->add(list.data(), list.size() * sizeof(T));
}

void add_weight(Hasher* hash, const evn::Weight& weight, bool with_bytes) {
  hash->add(static_cast<std::uint64_t>(weight.desc.dtype));
  for (const std::int64_t dim : weight.desc.shape.dims()) hash->add(static_cast<std::uint64_t>(dim));
  if (!with_bytes || weight.size_bytes == 0) return;
  if (weight.desc.dtype != evn::DType::kString) return hash->add(evn::checksum_of(weight.bytes(), weight.size_bytes));
  for (std::int64_t i = 0; i < weight.desc.shape.elements(); ++i) hash->add(evn::text_of(weight.as<evn::TextElement>()[i]));
}

struct AddAttribute {
  Hasher* hash;
  void operator()(evn::NoAttribute) const {}
  void operator()(float value) const { hash->add(&value, sizeof value); }
  void operator()(std::int64_t value) const { hash->add(static_cast<std::uint64_t>(value)); }
  void operator()(const std::string& text) const { hash->add(text); }
  void operator()(const evn::WeightPtr& weight) const { add_weight(hash, *weight, true); }
  void operator()(const std::shared_ptr<evn::Graph>& graph) const { add_model(hash, *graph, {}); }
  void operator()(const std::vector<float>& list) const { add_list(hash, list); }
  void operator()(const std::vector<std::int64_t>& list) const { add_list(hash, list); }
  void operator()(const std::vector<std::string>& list) const {
    for (const std::string& text : list) hash->add(text);
  }
  void operator()(const evn::TensorDesc& desc) const { hash->add(static_cast<std::uint64_t>(desc.dtype)); }
};

}  // namespace

void add_model(Hasher* hash, const evn::Graph& graph, const std::vector<bool>& learned) {
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const evn::WeightPtr& constant = graph.values[v].constant;
    if (constant == nullptr) continue;
    hash->add(v);
    add_weight(hash, *constant, v >= learned.size() || !learned[v]);
  }
  for (const evn::Node& node : graph.nodes) {
    hash->add(node.domain);
    hash->add(node.op_type);
    add_list(hash, node.inputs);
    for (const evn::Attribute& a : node.attributes) {
      hash->add(a.name);
      std::visit(AddAttribute{hash}, a.value);
    }
    if (node.body != nullptr) add_model(hash, *node.body, {});
  }
}

}  // namespace evn_train
