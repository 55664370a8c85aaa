"""Attention, linear attention and rotary embeddings."""
import numpy

from .draw import FLOATS, operator


@operator("Attention")
def attention(draw):
    batch, kv_heads, queries, keys, width = draw.int(1, 2), draw.int(1, 2), draw.int(1, 4), draw.int(1, 4), draw.int(1, 4)
    heads, v_width, dtype, past = kv_heads * draw.int(1, 2), draw.int(1, 4), draw.dtype(*FLOATS), 0
    flat = draw.maybe(0.4)

    def tensor(count, length, size):
        return draw.values((batch, length, count * size) if flat else (batch, count, length, size), dtype, -2, 2)

    attributes = {"q_num_heads": heads, "kv_num_heads": kv_heads} if flat else {}
    attributes.update(draw.some(is_causal=draw.int(0, 1), scale=draw.real(0.1, 2)))
    if draw.maybe(0.2):
        attributes["softcap"] = draw.real(0.5, 3)
    if draw.maybe(0.2):
        attributes["softmax_precision"] = draw.one(1, 11)  # in half precision each judge rounds elsewhere
    inputs = [tensor(heads, queries, width), tensor(kv_heads, keys, width), tensor(kv_heads, keys, v_width), None, None, None]
    outputs = 1
    if draw.maybe(0.3):
        past = draw.int(1, 3)
        inputs[4:] = [draw.values((batch, kv_heads, past, size), dtype, -2, 2) for size in (width, v_width)]
        outputs = 3
    if draw.maybe():
        dims = draw.one((queries, keys + past), (1, 1, queries, keys + past), (batch, 1, queries, keys + past), (batch, heads, queries, keys + past))
        mask = draw.values(dims, draw.one(dtype, "bool"), -2, 2)
        if mask.dtype == bool:
            mask[..., 0] = True
        inputs[3] = mask
    while inputs[-1] is None:
        inputs.pop()
    # Scores are at most 34 (4 products of numbers up to 2, a scale up to 2, a mask up to 2). Where the softmax of float64 is in float32, each
    # score, and its distance to the largest, is rounded by 2^-24 of itself: a probability errs by (34 + 68 + 4) * 2^-24 of itself, the sum of
    # values up to 2 by 2 * 6.4e-6, and so in either engine.
    in_float32 = dtype == "float64" and attributes.get("softmax_precision") == 1
    return draw.case(inputs, attributes, outputs, tolerance=(0, 0, 2.6e-5) if in_float32 else None)


@operator("LinearAttention")
def linear_attention(draw):
    batch, kv_heads, steps, width, v_width = draw.int(1, 2), draw.int(1, 2), draw.int(1, 4), draw.int(1, 3), draw.int(1, 3)
    heads, rule, dtype = kv_heads * draw.int(1, 2), draw.one("linear", "gated", "delta", "gated_delta"), draw.dtype("float32", "float16", "bfloat16")
    inputs = [draw.values((batch, steps, count * size), dtype, -1, 1) for count, size in ((heads, width), (kv_heads, width), (kv_heads, v_width))]
    inputs.append(draw.values((batch, kv_heads, width, v_width), dtype, -1, 1) if draw.maybe() else None)
    inputs.append(draw.values((batch, steps, draw.one(kv_heads, kv_heads * width)), dtype, -2, 0) if "gated" in rule else None)
    inputs.append(draw.values((batch, steps, draw.one(kv_heads, 1)), dtype, 0, 1) if "delta" in rule else None)
    while inputs[-1] is None:
        inputs.pop()
    attributes = {"q_num_heads": heads, "kv_num_heads": kv_heads, "update_rule": rule, **draw.some(scale=draw.real(0.2, 2))}
    return draw.case(inputs, attributes, 2)


@operator("RotaryEmbedding")
def rotary_embedding(draw):
    batch, heads, steps, half = draw.int(1, 2), draw.int(1, 3), draw.int(1, 4), draw.int(1, 3)
    width, dtype = half * 2, draw.dtype("float32", "float16", "bfloat16")
    rotated = 2 * draw.int(1, half) if draw.maybe(0.3) else 0
    attributes = draw.some(interleaved=draw.int(0, 1))
    if rotated:
        attributes["rotary_embedding_dim"] = rotated
    flat = draw.maybe(0.4) or rotated
    if flat:
        attributes["num_heads"] = heads
    x = draw.values((batch, steps, heads * width) if flat else (batch, heads, steps, width), dtype)
    half = (rotated or width) // 2
    if draw.maybe():
        length = steps + draw.int(0, 3)
        caches = [draw.values((length, half), dtype, -1, 1) for _ in range(2)]
        return draw.case([x, *caches, draw.rng.integers(0, length, (batch, steps)).astype("int64")], attributes)
    return draw.case([x, *(draw.values((batch, steps, half), dtype, -1, 1) for _ in range(2))], attributes)
