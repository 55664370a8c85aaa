#include "runtime/rows/row_proofs.h"

#include <algorithm>

#include "base/error.h"
#include "runtime/lower/plan.h"

namespace evn {

RowInputs one_row_of(const CompiledGraph& graph, std::span<const int> axes, std::span<const RunValue> inputs) {
  RowInputs row;
  row.values.resize(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& t = *inputs[i].tensor;
    row.one.push_back(t.desc());
    if (axes[i] != kNoRows) row.one.back().shape[axes[i]] = 1;
    if (axes[i] != kNoRows || !is_key(graph, i, t.desc())) continue;
    const auto* bytes = static_cast<const unsigned char*>(t.buffer().address());
    row.values[i].assign(bytes, bytes + t.size_bytes());
  }
  return row;
}

void check_row_outputs(const Graph& graph) {
  for (const ValueId id : graph.outputs) {
    const Value& v = graph.values[id];
    if (!v.wraps && v.dtype != DType::kString && !is_sub_byte(v.dtype)) continue;
    fail(EVN_ERROR_UNSUPPORTED, "requests cannot be joined to batches: output \"%s\" has elements that are no whole bytes",
         v.name.c_str());
  }
}

RowProofs::RowProofs(const CompiledGraph& graph, std::span<const int> axes, std::size_t most, Log log)
    : graph_(graph), axes_(axes), most_(most), log_(log) {
  proofs_.reserve(most + 1);
}

std::shared_ptr<const RowOutputs> RowProofs::of(RowInputs inputs, std::int64_t rows) {
  Proof proof{std::move(inputs), rows, nullptr};
  {
    const std::lock_guard<Mutex> lock(mutex_);
    for (auto it = proofs_.begin(); it != proofs_.end(); ++it) {
      if (it->rows != rows || it->inputs.one != proof.inputs.one || it->inputs.values != proof.inputs.values) continue;
      std::rotate(proofs_.begin(), it, it + 1);
      return proofs_.front().outputs;
    }
  }
  try {
    proof.outputs = std::make_shared<RowOutputs>(prove_rows(graph_, axes_, proof.inputs, rows));
  } catch (const Error& e) {
    if (e.status == EVN_ERROR_OUT_OF_MEMORY || e.status == EVN_ERROR_TIMEOUT || e.status == EVN_ERROR_CANCELLED) throw;
    log_(graph_, e);
  }
  const std::lock_guard<Mutex> lock(mutex_);
  proofs_.insert(proofs_.begin(), proof);
  if (proofs_.size() > most_) proofs_.pop_back();
  return proof.outputs;
}

}  // namespace evn
