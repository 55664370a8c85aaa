// See custom.h.
#include "ops/custom.h"

#include <algorithm>

#include "base/text.h"

namespace evn {

void OperatorRegistry::add(std::unique_ptr<CustomOp> op) {
  if (op_known(op->domain, op->name)) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "operator %.128s (domain %.128s) is one of the library's own", op->name.c_str(),
         op->domain.c_str());
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& other : ops_) {
    if (other->name == op->name && other->domain == op->domain && other->def.since == op->def.since) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "operator %.128s (domain %.128s), version %d, has been registered already", op->name.c_str(),
           op->domain.c_str(), op->def.since);
    }
  }
  ops_.push_back(std::move(op));
}

const OpDef* OperatorRegistry::find(const std::string& domain, const std::string& name, std::int64_t opset) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const OpDef* best = nullptr;
  for (const auto& op : ops_) {
    if (op->def.since <= opset && (best == nullptr || op->def.since > best->since) && op->name == name && op->domain == domain)
      best = &op->def;
  }
  return best;
}

bool OperatorRegistry::has(std::string_view text) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(ops_.begin(), ops_.end(), [&](const auto& op) { return names_operator(text, op->domain, op->name); });
}

const OpDef* find_op(const OperatorRegistry* registry, const std::string& domain, const std::string& name, std::int64_t opset) {
  const OpDef* op = find_op(domain, name, opset);
  return op == nullptr && registry != nullptr ? registry->find(domain, name, opset) : op;
}

bool op_known(const OperatorRegistry* registry, const std::string& domain, const std::string& name) {
  return find_op(registry, domain, name, INT64_MAX) != nullptr;
}

}  // namespace evn
