#include "runtime/lower/row_sources.h"

namespace evn {

Buffer row_source(const CompiledNode& node, const OpDesc& desc, std::size_t k) {
  const Weight* const weight = node.constants[k].get();
  if (weight == nullptr || weight->data != nullptr || weight->source == nullptr || weight->size_bytes < kLeastRowsBytes) return {};
  const WeightSource& source = *weight->source;
  const bool reads = source.is_external && source.mapping == nullptr && node.slot == 0 && node.kernel->reads_rows != nullptr &&
                     node.kernel->reads_rows(desc, static_cast<int>(k));
  return reads ? Buffer{const_cast<WeightSource*>(&source), 0, sizeof source} : Buffer{};
}

}  // namespace evn
