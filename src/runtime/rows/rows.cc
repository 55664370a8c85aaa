#include "runtime/rows/rows.h"

#include <algorithm>

#include "base/error.h"

namespace evn {
namespace {

const AttributeValue* find_attribute(const Node& node, std::string_view name) {
  for (std::size_t i = 0; i < node.op->attributes.size() && i < node.resolved.size(); ++i) {
    if (node.op->attributes[i].name == name) return &node.resolved[i];
  }
  return nullptr;
}

RowRule find_rule(std::span<const RowRuleOf> rules, const Node& node) {
  for (const RowRuleOf& r : rules) {
    if (node.op_type == r.op && (r.domain == nullptr || node.domain == r.domain)) return r.rule;
  }
  return nullptr;
}

}  // namespace

void NodeRows::refuse(const char* why) const {
  throw make_error(EVN_ERROR_UNSUPPORTED, "requests cannot be joined to batches: %.128s \"%.256s\" %s", node.op_type.c_str(),
                   node.name.c_str(), why)
      .with_node(node.name.c_str());
}

void NodeRows::require_alike(std::uint32_t but) const {
  for (std::size_t k = 0; k < one.size(); ++k) {
    if (k < 32 && (but >> k & 1u) != 0) continue;
    if (!is_alike(k)) refuse("takes rows of the batch for a parameter");
  }
}

void NodeRows::require_rows(std::size_t k, int at) const {
  if (!is_rows(k)) refuse("has an input without the batch's rows beside one that has them");
  if (axis(k) != at) refuse("has the batch's rows at an axis that it works along");
}

bool NodeRows::fits_rows(std::size_t k, int at) const {
  const Shape& a = one_out[k].shape;
  const Shape& b = many_out[k].shape;
  bool fits = a.rank() == b.rank() && at >= 0 && at < a.rank();
  for (int i = 0; fits && i < a.rank(); ++i) fits = b[i] == (i == at ? rows * a[i] : a[i]);
  return fits;
}

void NodeRows::set_rows(std::size_t k, int at, RowPlace::Kind kind) const {
  if (k >= out.size() || node.outputs[k] == kNoValue) return;
  if (!fits_rows(k, at)) refuse("has an output that does not grow with the rows alone");
  out[k] = {kind, at};
}

void NodeRows::set_all_rows(int at) const {
  for (std::size_t k = 0; k < out.size(); ++k) set_rows(k, at);
}

std::int64_t NodeRows::int_attribute(std::string_view name, std::int64_t fallback) const {
  const AttributeValue* const v = find_attribute(node, name);
  return v != nullptr && attribute_type(*v) == AttributeType::kInt ? std::get<std::int64_t>(*v) : fallback;
}

std::span<const std::int64_t> NodeRows::ints_attribute(std::string_view name) const {
  const AttributeValue* const v = find_attribute(node, name);
  if (v == nullptr || attribute_type(*v) != AttributeType::kInts) return {};
  return std::get<std::vector<std::int64_t>>(*v);
}

std::string_view NodeRows::text_attribute(std::string_view name) const {
  const AttributeValue* const v = find_attribute(node, name);
  if (v == nullptr || attribute_type(*v) != AttributeType::kString) return {};
  return std::get<std::string>(*v);
}

bool NodeRows::gives(std::string_view name) const {
  const AttributeValue* const v = find_attribute(node, name);
  return v != nullptr && attribute_type(*v) != AttributeType::kNone;
}

void broadcast_rows(NodeRows& c, std::uint32_t operands) {
  const int rank = c.one_out[0].shape.rank();
  int at = -1;
  for (std::size_t k = 0; k < c.one.size(); ++k) {
    if (!c.has(k) || (k < 32 && (operands >> k & 1u) == 0)) continue;
    if (!c.is_rows(k)) continue;
    const int here = c.axis(k) + rank - c.rank(k);
    if (at >= 0 && here != at) c.refuse("brings together values that have the batch's rows at different axes");
    at = here;
  }
  if (at < 0) c.refuse("takes rows of the batch for a parameter");
  for (std::size_t k = 0; k < c.one.size(); ++k) {
    if (!c.has(k) || c.is_rows(k) || (k < 32 && (operands >> k & 1u) == 0)) continue;
    if (!c.is_alike(k)) c.refuse("computes with the size of the batch");
    const int own = at - (rank - c.rank(k));
    if (own >= 0 && c.shape(k)[own] != 1) c.refuse("has an operand with numbers of its own for each row of a batch");
  }
  for (std::size_t k = 0; k < c.out.size(); ++k) {
    if (k < c.node.outputs.size() && c.node.outputs[k] != kNoValue) c.set_rows(k, at);
  }
}

void follow_rows(NodeRows& c) {
  const OpDef& op = *c.node.op;
  const bool all_alike = std::all_of(c.in.begin(), c.in.end(), [](const RowPlace& p) { return p.kind == RowPlace::Kind::kAlike; });
  const bool is_dropout = c.node.op_type == "Dropout";  // which has a rule
  if ((op.flags & kOpRandom) != 0 && !is_dropout) c.refuse("draws numbers, of which a request has others alone");
  if (all_alike && !is_dropout) {
    for (RowPlace& p : c.out) p = {};
    return;
  }
  const bool any_rows = std::any_of(c.in.begin(), c.in.end(), [](const RowPlace& p) { return p.kind == RowPlace::Kind::kRows; });
  if (!any_rows && !is_dropout) return follow_sizes(c);
  RowRule rule = find_rule(row_rules_of_moves(), c.node);
  if (rule == nullptr) rule = find_rule(row_rules_of_products(), c.node);
  if (rule != nullptr) return rule(c);
  if ((op.flags & kOpElementwise) != 0 && c.out.size() == 1) return broadcast_rows(c, UINT32_MAX);
  c.refuse("is an operator of which it is not known that it keeps rows apart");
}

}  // namespace evn
