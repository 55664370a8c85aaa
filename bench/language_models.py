"""The language models of bench/language.py: random weights in the shapes of known families, as ONNX files of onnxruntime-genai's builder and as
GGUF files for llama.cpp.

Needs the packages torch, transformers, tokenizers, onnxruntime-genai and gguf.
"""
import os
import pathlib
import subprocess
import sys

import numpy

# Sizes of a decoder: layers, width, inner width, heads, heads of keys and values, words.
SHAPES = {
    "llama": ("LlamaConfig", dict(num_hidden_layers=12, hidden_size=1024, intermediate_size=2816, num_attention_heads=16, num_key_value_heads=4,
                                  vocab_size=32000)),
    "qwen2": ("Qwen2Config", dict(num_hidden_layers=24, hidden_size=896, intermediate_size=4864, num_attention_heads=14, num_key_value_heads=2,
                                  vocab_size=32000)),
    "phi3": ("Phi3Config", dict(num_hidden_layers=8, hidden_size=768, intermediate_size=2048, num_attention_heads=12, num_key_value_heads=12,
                                vocab_size=32000, pad_token_id=0, original_max_position_embeddings=8192)),
    "gemma": ("GemmaConfig", dict(num_hidden_layers=6, hidden_size=640, intermediate_size=2048, num_attention_heads=4, num_key_value_heads=1,
                                  head_dim=256, vocab_size=32000)),
}
POSITIONS = 8192


def checkpoint(shape, folder):
    """Writes a Hugging Face checkpoint of random weights into `folder`."""
    import tokenizers
    import torch
    import transformers
    name, sizes = SHAPES[shape]
    torch.manual_seed(7)
    config = getattr(transformers, name)(**sizes, max_position_embeddings=POSITIONS, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)
    # Weights are rounded to bfloat16, as those of published checkpoints are.
    transformers.AutoModelForCausalLM.from_config(config).bfloat16().float().save_pretrained(folder)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({**{f"t{i}": i for i in range(100)}, "<unk>": 100}, unk_token="<unk>"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, bos_token="t1", eos_token="t2", unk_token="<unk>").save_pretrained(folder)


def onnx_file(shape, precision, folder):
    """The path of an ONNX model with `precision` (int4, int4_fp16 or fp32), made in `folder` when it is not there yet."""
    folder = pathlib.Path(folder)
    to = folder / f"{shape}-{precision}"
    if not (to / "genai_config.json").exists():
        if not (folder / shape / "config.json").exists():
            checkpoint(shape, folder / shape)
        bits, _, half = precision.partition("_")
        options = ["int4_accuracy_level=4", "int4_block_size=32"] if bits == "int4" else []
        words = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", folder / shape, "-o", to, "-p", bits, "-e", "webgpu" if half else "cpu", "-c",
                 folder / "cache"]  # for GPUs the builder writes float16
        made = subprocess.run([*map(str, words), *(["--extra_options", *options] if options else [])], capture_output=True, text=True,
                              env={**os.environ, "HF_HUB_OFFLINE": "1"})
        if made.returncode != 0:
            raise SystemExit(made.stdout[-2000:] + made.stderr[-2000:])
    return to / "model.onnx"


def gguf_file(shape, precision, folder):
    """The path of a GGUF file of the Llama architecture in these sizes, with weights of Q4_0 or float32; made when it is not there yet."""
    import gguf
    to = pathlib.Path(folder) / f"{shape}-{precision}.gguf"
    if to.exists():
        return to
    sizes = SHAPES[shape][1]
    layers, width, inner, words = (sizes[key] for key in ("num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size"))
    heads, groups = sizes["num_attention_heads"], sizes["num_key_value_heads"]
    depth = sizes.get("head_dim", width // heads)
    writer = gguf.GGUFWriter(to, "llama")
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    writer.add_rope_dimension_count(depth)
    writer.add_key_length(depth)
    writer.add_value_length(depth)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(words)
    writer.add_tokenizer_model("no_vocab")
    kind = {"fp32": gguf.GGMLQuantizationType.F32, "int4": gguf.GGMLQuantizationType.Q4_0}[precision.partition("_")[0]]
    random = numpy.random.default_rng(7)

    def add(name, *dims):
        if len(dims) == 1:
            return writer.add_tensor(name, numpy.ones(dims, "float32"))
        data = random.standard_normal(dims, "float32") * 0.02
        writer.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)

    add("token_embd.weight", words, width)
    for i in range(layers):
        add(f"blk.{i}.attn_norm.weight", width)
        add(f"blk.{i}.attn_q.weight", heads * depth, width)
        add(f"blk.{i}.attn_k.weight", groups * depth, width)
        add(f"blk.{i}.attn_v.weight", groups * depth, width)
        add(f"blk.{i}.attn_output.weight", width, heads * depth)
        add(f"blk.{i}.ffn_norm.weight", width)
        add(f"blk.{i}.ffn_gate.weight", inner, width)
        add(f"blk.{i}.ffn_up.weight", inner, width)
        add(f"blk.{i}.ffn_down.weight", width, inner)
    add("output_norm.weight", width)
    add("output.weight", words, width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return to
