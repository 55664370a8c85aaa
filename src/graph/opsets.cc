// See opsets.h.
#include "graph/opsets.h"

#include <algorithm>

#include "base/error.h"
#include "ops/merge.h"

namespace evn {
namespace {

// The newest ai.onnx opset whose operators were compared with the tables in ops/. A later one may have changed any of them.
constexpr std::int64_t kNewestOpset = 28;

}  // namespace

Domains import_domains(const std::vector<OpsetImport>& opsets) {
  Domains domains;
  for (const OpsetImport& opset : opsets) {
    if (opset.version < 1)
      fail(EVN_ERROR_INVALID_MODEL, "opset import of domain '%.64s' has version below 1", opset.domain.c_str());
    const auto version = static_cast<int>(std::min<std::int64_t>(opset.version, INT32_MAX));
    if (!domains.emplace(opset.domain, version).second) {
      fail(EVN_ERROR_INVALID_MODEL, "domain '%.64s' is imported twice", opset.domain.c_str());
    }
    if (opset.domain == kInternalDomain) fail(EVN_ERROR_INVALID_MODEL, "domain '%s' is the library's own", kInternalDomain);
    if (opset.domain.empty() && opset.version > kNewestOpset) {
      fail(EVN_ERROR_UNSUPPORTED, "opset %lld is newer than this library knows (%lld)", static_cast<long long>(opset.version),
           static_cast<long long>(kNewestOpset));
    }
  }
  return domains;
}

const char* shown_domain(const Node& node) { return node.domain.empty() ? "ai.onnx" : node.domain.c_str(); }

const OpDef* stand_in(const Node& node, const char* domain, const char* op_type, int since) {
  const OpDef* const op = find_op(domain, op_type, since);
  if (op != nullptr) return op;
  throw make_error(EVN_ERROR_UNSUPPORTED, "operator %.128s (domain %.64s) is not in this build of the library (EVN_OPERATORS)",
                   node.op_type.c_str(), shown_domain(node))
      .with_node(node.name.c_str());
}

int imported_version(const Node& node, const Domains& domains) {
  if (node.since_version != 0) return node.since_version;
  const auto domain = domains.find(node.domain);
  if (domain != domains.end()) return domain->second;
  throw make_error(EVN_ERROR_INVALID_MODEL, "operator %.128s is of domain %.64s, which the model does not import",
                   node.op_type.c_str(), shown_domain(node))
      .with_node(node.name.c_str());
}

}  // namespace evn
