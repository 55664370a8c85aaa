#include "train/model_hash.h"

#include "core/text.h"

namespace evn_train {
namespace {

using evn::Hasher;

void add_weight(Hasher* hash, const evn::Weight& weight, bool with_bytes) {
  hash->add(static_cast<std::uint64_t>(weight.desc.dtype));
  for (const std::int64_t dim : weight.desc.shape.dims()) hash->add(static_cast<std::uint64_t>(dim));
  if (!with_bytes || weight.size_bytes == 0) return;
  if (weight.desc.dtype != evn::DType::kString) return hash->add(evn::checksum_of(weight.bytes(), weight.size_bytes));
  for (std::int64_t i = 0; i < weight.desc.shape.elements(); ++i) hash->add(evn::text_of(weight.as<evn::TextElement>()[i]));
}

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
    hash->add(node.inputs.data(), node.inputs.size() * sizeof(evn::ValueId));
    for (const evn::Attribute& a : node.attributes) {
      hash->add(a.name);
      evn::add_value(hash, a.value);
      if (const auto* weight = std::get_if<evn::WeightPtr>(&a.value)) add_weight(hash, **weight, true);
      if (const auto* body = std::get_if<std::shared_ptr<evn::Graph>>(&a.value)) add_model(hash, **body, {});
    }
    if (node.body != nullptr) add_model(hash, *node.body, {});
  }
}

}  // namespace evn_train
