// The rewrites by name; passes.cc puts them in order. Each returns whether it changed the graph.
#pragma once

#include "graph/passes/passes.h"

namespace evn {

bool eliminate_identity(Graph& graph, const PassContext& context);
bool fold_constants(Graph& graph, const PassContext& context);
bool resolve_branches(Graph& graph, const PassContext& context);
bool plain_operators(Graph& graph, const PassContext& context);
bool expand_einsum(Graph& graph, const PassContext& context);
bool expand_attention(Graph& graph, const PassContext& context);
bool expand_variadic(Graph& graph, const PassContext& context);
bool sink_constants(Graph& graph, const PassContext& context);
bool fuse_byte_tables(Graph& graph, const PassContext& context);
bool move_bytes(Graph& graph, const PassContext& context);
bool fuse_qdq(Graph& graph, const PassContext& context);
bool fuse_dynamic_quantize(Graph& graph, const PassContext& context);
bool fuse_block_weights(Graph& graph, const PassContext& context);
bool fold_dequantize(Graph& graph, const PassContext& context);
bool fuse_hard_swish(Graph& graph, const PassContext& context);
bool fuse_layer_norm(Graph& graph, const PassContext& context);
bool fuse_rms_norm(Graph& graph, const PassContext& context);
bool fuse_channel_shuffle(Graph& graph, const PassContext& context);
bool fuse_gelu(Graph& graph, const PassContext& context);
bool fuse_attention(Graph& graph, const PassContext& context);
bool fold_batch_norm(Graph& graph, const PassContext& context);
bool merge_convolutions(Graph& graph, const PassContext& context);
bool fold_gate(Graph& graph, const PassContext& context);
bool fuse_epilogue(Graph& graph, const PassContext& context);
bool crop_taps(Graph& graph, const PassContext& context);
bool flatten_conv(Graph& graph, const PassContext& context);
bool dead_code(Graph& graph, const PassContext& context);

}  // namespace evn
