// The list of rewrites, in the order in which they run, and the loop that runs them.
#include "graph/passes/passes.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "graph/edit.h"
#include "graph/infer.h"
#include "graph/passes/rewrites.h"

namespace evn {
namespace {

// Constants come first and whole, so that patterns see the numbers in them. Patterns with a meaning of their own come before fold_batch_norm, which would take their first constant into a weight. Those of quantized graphs come before all
// that: what stands between a DequantizeLinear and a QuantizeLinear is one operator of the model's, and must not be a step of another yet.
constexpr Pass kPasses[] = {
    {"eliminate_identity", eliminate_identity},
    {"fold_constants", fold_constants, true},
    {"resolve_branches", resolve_branches},
    {"plain_operators", plain_operators},
    {"sink_constants", sink_constants},
    {"fuse_byte_tables", fuse_byte_tables},
    {"move_bytes", move_bytes},
    {"fuse_qdq", fuse_qdq},
    {"fuse_dynamic_quantize", fuse_dynamic_quantize},
    {"fuse_block_weights", fuse_block_weights},
    {"fold_dequantize", fold_dequantize},
    {"fuse_hard_swish", fuse_hard_swish},
    {"fuse_layer_norm", fuse_layer_norm},
    {"fuse_rms_norm", fuse_rms_norm},
    {"fuse_gelu", fuse_gelu},
    {"fuse_channel_shuffle", fuse_channel_shuffle},
    {"fuse_attention", fuse_attention},
    {"fold_batch_norm", fold_batch_norm},
    {"fold_gate", fold_gate},
    {"fuse_epilogue", fuse_epilogue},
    {"dead_code", dead_code},
};

constexpr int kMaxRounds = 4;
constexpr int kMaxRepeats = 8;  // of a pass that settles

bool is_disabled(const Pass& pass, std::span<const char* const> disabled) {
  return std::any_of(disabled.begin(), disabled.end(), [&](const char* name) { return std::strcmp(name, pass.name) == 0; });
}

// A tensor whose size is known now and above the limit could never be run.
void check_sizes(const Graph& graph, const PassContext& context) {
  for (const Value& value : graph.values) {
    if (!value.has_shape || !value.shape.is_known() || !is_stored(value.dtype)) continue;
    const std::size_t size = TensorDesc{value.dtype, value.shape}.size_bytes();
    if (size > context.limits.tensor_bytes) {
      throw make_error(EVN_ERROR_LIMIT, "tensor \"%s\" would need %zu bytes, above the limit of %llu", value.name.c_str(), size,
                       static_cast<unsigned long long>(context.limits.tensor_bytes))
          .with_bytes(size, context.limits.tensor_bytes);
    }
  }
}

void infer(Graph& graph, bool is_body) {
  if (is_body) {
    infer_body_graph(graph);
  } else {
    infer_graph(graph);
  }
}

void optimize(Graph& graph, const PassContext& context, std::span<const char* const> disabled, bool is_body) {
  infer(graph, is_body);
  check_sizes(graph, context);
  bool changed = true;
  for (int round = 0; changed && round < kMaxRounds; ++round) {
    changed = false;
    for (const Pass& pass : kPasses) {
      if (is_disabled(pass, disabled)) continue;
      for (int repeat = pass.settles ? kMaxRepeats : 1; repeat > 0; --repeat) {
        check_deadline(context);
        if (!pass.run(graph, context)) break;
        changed = true;
        infer(graph, is_body);
      }
    }
  }
  check_sizes(graph, context);
  for (const Node& node : graph.nodes) {
    if (node.body != nullptr) optimize(*node.body, context, disabled, true);
  }
}

}  // namespace

std::span<const Pass> passes() { return kPasses; }

void optimize_graph(Graph& graph, const PassContext& context, std::span<const char* const> disabled) {
  optimize(graph, context, disabled, false);
}

}  // namespace evn
