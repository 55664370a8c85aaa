// The list of rewrites, in the order in which they run, and the loop that runs them.
#include "graph/passes/passes.h"

#include <algorithm>
#include <cstring>

#include "base/cancel.h"
#include "base/error.h"
#include "graph/edit.h"
#include "graph/infer.h"
#include "graph/passes/rewrites.h"
#include "kept_operators.h"

namespace evn {
namespace {

// In a build of some operators a pass that would find nothing has no function, so that the linker leaves it out (operators.txt).
#define EVN_KEPT(pass) (kKeeps_##pass ? pass : nullptr)

// Constants come first and whole, so that patterns see the numbers in them. Patterns with a meaning of their own come before
// fold_batch_norm, which would take their first constant into a weight. Those of quantized graphs come before all that: what stands
// between a DequantizeLinear and a QuantizeLinear is one operator of the model's, and must not be a step of another yet.
constexpr Pass kPasses[] = {
    {"eliminate_identity", "drops nodes that change nothing", EVN_KEPT(eliminate_identity)},
    {"fold_constants", "computes what depends on constants alone", EVN_KEPT(fold_constants), true},
    {"resolve_branches", "keeps the branch of an If whose condition is known", EVN_KEPT(resolve_branches)},
    {"plain_operators", "takes operators of com.microsoft apart into those of ONNX", EVN_KEPT(plain_operators)},
    {"expand_einsum", "computes Einsum by transpositions, sums and products of matrices", EVN_KEPT(expand_einsum)},
    {"expand_attention", "computes attention of com.microsoft by products and the Attention of ONNX", EVN_KEPT(expand_attention)},
    {"expand_variadic", "computes sums, means and extremes of several operands two by two", EVN_KEPT(expand_variadic)},
    {"sink_constants", "moves a constant factor or sum behind what it commutes with", EVN_KEPT(sink_constants)},
    {"fuse_byte_tables", "looks element-wise functions of bytes up in a table", EVN_KEPT(fuse_byte_tables)},
    {"move_bytes", "moves bytes in place of the floats that they stand for", EVN_KEPT(move_bytes)},
    {"fuse_qdq", "runs what stands between DequantizeLinear and QuantizeLinear in 8 bits", EVN_KEPT(fuse_qdq)},
    {"fuse_dynamic_quantize", "puts scales, bias and sum into dynamically quantized products", EVN_KEPT(fuse_dynamic_quantize)},
    {"fuse_block_weights", "multiplies by weights of 4 and 8 bits in blocks as they are", EVN_KEPT(fuse_block_weights)},
    {"fold_dequantize", "dequantizes constants", EVN_KEPT(fold_dequantize)},
    {"fuse_hard_swish", "HardSwish from its parts", EVN_KEPT(fuse_hard_swish)},
    {"fuse_layer_norm", "LayerNormalization from its parts", EVN_KEPT(fuse_layer_norm)},
    {"fuse_rms_norm", "RMSNormalization from its parts", EVN_KEPT(fuse_rms_norm)},
    {"fuse_gelu", "Gelu from its parts", EVN_KEPT(fuse_gelu)},
    {"fuse_channel_shuffle", "one transposition for Reshape, Transpose, Reshape", EVN_KEPT(fuse_channel_shuffle)},
    {"fuse_attention", "attention from its products and its Softmax", EVN_KEPT(fuse_attention)},
    {"crop_taps", "takes taps of convolutions that read padding alone", EVN_KEPT(crop_taps)},
    {"fold_batch_norm", "folds BatchNormalization into the weights before it", EVN_KEPT(fold_batch_norm)},
    {"merge_convolutions", "adds the weights of convolutions of one value whose results are added", EVN_KEPT(merge_convolutions)},
    {"fold_gate", "multiplies by a gate of channels within the convolution behind it", EVN_KEPT(fold_gate)},
    {"fuse_epilogue", "applies activations where the node before them writes", EVN_KEPT(fuse_epilogue)},
    {"flatten_conv", "convolves over two axes where the window has one tap along a third", EVN_KEPT(flatten_conv)},
    {"dead_code", "drops what nobody reads", EVN_KEPT(dead_code)},
};
#undef EVN_KEPT

static_assert(std::size(kPasses) <= 32, "Node::rewrites has 32 bits");

constexpr int kMaxRounds = 4;
constexpr int kMaxRepeats = 8;  // of a pass that settles

bool is_disabled(const Pass& pass, std::span<const char* const> disabled) {
  return std::any_of(disabled.begin(), disabled.end(), [&](const char* name) { return std::strcmp(name, pass.name) == 0; });
}

// A tensor whose size is known now and above the limit could never be run.
void check_sizes(const Graph& graph, const PassContext& context) {
  for (const Value& value : graph.values) {
    cancellation_point(4);
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

// Tells a node that was made or changed from one that was not.
std::uint32_t fingerprint_of(const Node& node) {
  std::uint32_t f = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(node.op) >> 4);
  for (const std::size_t part : {node.inputs.size(), node.fused.size(), static_cast<std::size_t>(node.epilogue.count)}) {
    f = f * 31 + static_cast<std::uint32_t>(part);
  }
  return f | 1;  // never that of a new node
}

void mark_rewritten(Graph& graph, std::uint32_t pass) {
  for (Node& node : graph.nodes) {
    cancellation_point(8);
    const std::uint32_t f = fingerprint_of(node);
    if (f != node.fingerprint) node.rewrites |= pass;
    node.fingerprint = f;
  }
}

void optimize(Graph& graph, const PassContext& context, std::span<const char* const> disabled, bool is_body) {
  infer(graph, is_body);
  check_sizes(graph, context);
  mark_rewritten(graph, 0);
  bool changed = true;
  for (int round = 0; changed && round < kMaxRounds; ++round) {
    changed = false;
    for (const Pass& pass : kPasses) {
      if (pass.run == nullptr || is_disabled(pass, disabled)) continue;
      for (int repeat = pass.settles ? kMaxRepeats : 1; repeat > 0; --repeat) {
        check_deadline(context);
        if (!pass.run(graph, context)) break;
        changed = true;
        mark_rewritten(graph, 1u << (&pass - kPasses));
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
