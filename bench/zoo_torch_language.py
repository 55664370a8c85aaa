"""The language models of bench/zoo_torch.py, of transformers: encoders, decoders, mixtures of experts, state-space models.

Each has the sizes of SIZES as far as its configuration knows them, and what its entry gives beside.
"""
from zoo_torch_models import Network, tensors_of

SIZES = dict(hidden_size=384, num_hidden_layers=4, num_attention_heads=6, intermediate_size=1024, vocab_size=4000,
             max_position_embeddings=512)
WIDE = dict(d_model=256, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=1024,
            decoder_ffn_dim=1024, vocab_size=4000, max_position_embeddings=512)
T5 = dict(d_model=256, d_kv=64, d_ff=512, num_layers=3, num_decoder_layers=2, num_heads=4, vocab_size=4000)
EXPERTS = dict(num_hidden_layers=2, num_key_value_heads=2)

# name: (class of the model, class of its configuration, what it has beside SIZES)
ENCODERS = {
    "bert": ("BertForSequenceClassification", "BertConfig", {}),
    "bert-mlm": ("BertForMaskedLM", "BertConfig", {}),
    "roberta": ("RobertaForTokenClassification", "RobertaConfig", {}),
    "distilbert": ("DistilBertForQuestionAnswering", "DistilBertConfig", {}),
    "albert": ("AlbertForSequenceClassification", "AlbertConfig", dict(embedding_size=128)),
    "electra": ("ElectraForTokenClassification", "ElectraConfig", dict(embedding_size=128)),
    "deberta": ("DebertaForSequenceClassification", "DebertaConfig",
                dict(relative_attention=True, pos_att_type=["c2p", "p2c"], position_biased_input=False)),
    "deberta-v2": ("DebertaV2ForSequenceClassification", "DebertaV2Config",
                   dict(relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=64, share_att_key=True,
                        norm_rel_ebd="layer_norm")),
    "mpnet": ("MPNetModel", "MPNetConfig", {}),
    "xlnet": ("XLNetForSequenceClassification", "XLNetConfig", dict(d_model=384, n_layer=4, n_head=6, d_inner=1024)),
    "fnet": ("FNetForSequenceClassification", "FNetConfig", {}),
    "longformer": ("LongformerForTokenClassification", "LongformerConfig", dict(attention_window=[64] * 4, num_hidden_layers=4)),
    "big-bird": ("BigBirdForSequenceClassification", "BigBirdConfig", dict(attention_type="original_full")),
    "big-bird-sparse": ("BigBirdModel", "BigBirdConfig", dict(attention_type="block_sparse", block_size=16, num_random_blocks=2)),
    "funnel": ("FunnelForSequenceClassification", "FunnelConfig",
               dict(block_sizes=[2, 2], d_model=384, n_head=6, d_head=64, d_inner=1024)),
    "mobilebert": ("MobileBertForSequenceClassification", "MobileBertConfig",
                   dict(hidden_size=512, num_hidden_layers=6, num_attention_heads=4, intermediate_size=512)),
    "squeezebert": ("SqueezeBertForSequenceClassification", "SqueezeBertConfig", dict(embedding_size=384)),
    "convbert": ("ConvBertForSequenceClassification", "ConvBertConfig", dict(embedding_size=384)),
    "nystromformer": ("NystromformerForSequenceClassification", "NystromformerConfig",
                      dict(segment_means_seq_len=128, num_landmarks=128)),
    "roformer": ("RoFormerForSequenceClassification", "RoFormerConfig", dict(embedding_size=384)),
    "rembert": ("RemBertForSequenceClassification", "RemBertConfig", {}),
    "canine": ("CanineForSequenceClassification", "CanineConfig", dict(num_hash_buckets=1024)),
    "luke": ("LukeModel", "LukeConfig", {}),
    "megatron-bert": ("MegatronBertForSequenceClassification", "MegatronBertConfig", {}),
    "data2vec-text": ("Data2VecTextForSequenceClassification", "Data2VecTextConfig", {}),
    "ibert": ("IBertForSequenceClassification", "IBertConfig", {}),
    "xlm": ("XLMForSequenceClassification", "XLMConfig", dict(emb_dim=384, n_layers=4, n_heads=6)),
    "flaubert": ("FlaubertForSequenceClassification", "FlaubertConfig", dict(emb_dim=384, n_layers=4, n_heads=6)),
    "esm": ("EsmForMaskedLM", "EsmConfig", dict(position_embedding_type="rotary", pad_token_id=1, mask_token_id=2)),
    "modernbert": ("ModernBertForSequenceClassification", "ModernBertConfig", dict(pad_token_id=0)),
    "eurobert": ("EuroBertForMaskedLM", "EuroBertConfig", dict(pad_token_id=0)),
    "nomic-bert": ("NomicBertModel", "NomicBertConfig", {}),
    "roberta-prelayernorm": ("RobertaPreLayerNormModel", "RobertaPreLayerNormConfig", {}),
    "roc-bert": ("RoCBertModel", "RoCBertConfig", {}),
    "layoutlm": ("LayoutLMForTokenClassification", "LayoutLMConfig", {}),
    "tapas": ("TapasModel", "TapasConfig", {}),
    "markuplm": ("MarkupLMModel", "MarkupLMConfig", {}),
    "perceiver": ("PerceiverForSequenceClassification", "PerceiverConfig",
                  dict(num_latents=64, d_latents=384, d_model=256, num_blocks=1, num_self_attends_per_block=4,
                       num_cross_attention_heads=8)),
    "reformer": ("ReformerModel", "ReformerConfig", dict(attn_layers=["local", "local"], axial_pos_shape=[8, 16],
                                                         axial_pos_embds_dim=[128, 256], is_decoder=False)),
    "yoso": ("YosoForSequenceClassification", "YosoConfig", dict(use_expectation=True)),
    "xmod": ("XmodModel", "XmodConfig", dict(default_language="en_XX")),
}

DECODERS = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {}),
    "openai-gpt": ("OpenAIGPTLMHeadModel", "OpenAIGPTConfig", {}),
    "gpt-neo": ("GPTNeoForCausalLM", "GPTNeoConfig", dict(num_layers=4, num_heads=6, attention_types=[[["global", "local"], 2]],
                                                          window_size=32)),
    "gptj": ("GPTJForCausalLM", "GPTJConfig", dict(rotary_dim=32)),
    "gpt-neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", {}),
    "gpt-bigcode": ("GPTBigCodeForCausalLM", "GPTBigCodeConfig", {}),
    "opt": ("OPTForCausalLM", "OPTConfig", dict(ffn_dim=1024, word_embed_proj_dim=384)),
    "bloom": ("BloomForCausalLM", "BloomConfig", {}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", dict(num_key_value_heads=2)),
    "mistral": ("MistralForCausalLM", "MistralConfig", dict(num_key_value_heads=2, sliding_window=64)),
    "ministral": ("MinistralForCausalLM", "MinistralConfig", dict(num_key_value_heads=2, head_dim=64, sliding_window=64)),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", dict(num_key_value_heads=2)),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", dict(num_key_value_heads=2, head_dim=64)),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", dict(num_key_value_heads=1, head_dim=64)),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", dict(num_key_value_heads=2, head_dim=64, sliding_window=64)),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", dict(num_key_value_heads=1, head_dim=64, sliding_window=64)),
    "phi": ("PhiForCausalLM", "PhiConfig", {}),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", dict(pad_token_id=0, original_max_position_embeddings=512)),
    "falcon": ("FalconForCausalLM", "FalconConfig", {}),
    "falcon-alibi": ("FalconForCausalLM", "FalconConfig", dict(alibi=True, new_decoder_architecture=False)),
    "mpt": ("MptForCausalLM", "MptConfig", dict(d_model=384, n_heads=6, n_layers=4, max_seq_len=512)),
    "codegen": ("CodeGenForCausalLM", "CodeGenConfig", dict(n_head=8, rotary_dim=32, n_ctx=512, n_positions=512)),
    "ctrl": ("CTRLLMHeadModel", "CTRLConfig", dict(n_embd=384, n_head=6, n_layer=4, dff=1024)),
    "xglm": ("XGLMForCausalLM", "XGLMConfig", dict(d_model=384, attention_heads=6, num_layers=4, ffn_dim=1024)),
    "biogpt": ("BioGptForCausalLM", "BioGptConfig", {}),
    "starcoder2": ("Starcoder2ForCausalLM", "Starcoder2Config", dict(num_key_value_heads=2)),
    "stablelm": ("StableLmForCausalLM", "StableLmConfig", dict(num_key_value_heads=6)),
    "olmo": ("OlmoForCausalLM", "OlmoConfig", {}),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", {}),
    "cohere": ("CohereForCausalLM", "CohereConfig", dict(num_key_value_heads=6)),
    "granite": ("GraniteForCausalLM", "GraniteConfig", dict(num_key_value_heads=2)),
    "glm": ("GlmForCausalLM", "GlmConfig", dict(num_key_value_heads=2, head_dim=64, pad_token_id=0)),
    "helium": ("HeliumForCausalLM", "HeliumConfig", dict(num_key_value_heads=6, head_dim=64)),
    "persimmon": ("PersimmonForCausalLM", "PersimmonConfig", {}),
    "nemotron": ("NemotronForCausalLM", "NemotronConfig", dict(num_key_value_heads=2, head_dim=64)),
    "smollm3": ("SmolLM3ForCausalLM", "SmolLM3Config", dict(num_key_value_heads=2, pad_token_id=0)),
    "exaone4": ("Exaone4ForCausalLM", "Exaone4Config", dict(num_key_value_heads=2, sliding_window=64)),
    "ernie4-5": ("Ernie4_5ForCausalLM", "Ernie4_5Config", dict(num_key_value_heads=2, head_dim=64)),
    "bitnet": ("BitNetForCausalLM", "BitNetConfig", dict(num_key_value_heads=2, pad_token_id=0, eos_token_id=2)),
    "diffllama": ("DiffLlamaForCausalLM", "DiffLlamaConfig", dict(num_key_value_heads=6)),
    "minicpm3": ("MiniCPM3ForCausalLM", "MiniCPM3Config", {}),
    "imagegpt": ("ImageGPTModel", "ImageGPTConfig", dict(n_embd=384, n_head=6, n_layer=4, vocab_size=513)),
    # mixtures of experts
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", dict(EXPERTS, num_local_experts=4)),
    "qwen2-moe": ("Qwen2MoeForCausalLM", "Qwen2MoeConfig", dict(EXPERTS, num_experts=8, num_experts_per_tok=2,
                                                                moe_intermediate_size=256, shared_expert_intermediate_size=512)),
    "qwen3-moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", dict(EXPERTS, num_experts=8, num_experts_per_tok=2,
                                                                moe_intermediate_size=256, head_dim=64)),
    "olmoe": ("OlmoeForCausalLM", "OlmoeConfig", dict(EXPERTS, num_experts=8, num_experts_per_tok=2)),
    "granitemoe": ("GraniteMoeForCausalLM", "GraniteMoeConfig", dict(EXPERTS, num_local_experts=4)),
    "phimoe": ("PhimoeForCausalLM", "PhimoeConfig", dict(EXPERTS, num_local_experts=4)),
    "jetmoe": ("JetMoeForCausalLM", "JetMoeConfig", dict(num_hidden_layers=2, num_local_experts=4, kv_channels=64,
                                                         num_key_value_heads=2)),
    "gpt-oss": ("GptOssForCausalLM", "GptOssConfig", dict(EXPERTS, num_local_experts=4, num_experts_per_tok=2, head_dim=64,
                                                          sliding_window=64)),
    "deepseek-v2": ("DeepseekV2ForCausalLM", "DeepseekV2Config",
                    dict(num_hidden_layers=2, num_key_value_heads=6, n_routed_experts=4, num_experts_per_tok=2,
                         moe_intermediate_size=256, q_lora_rank=128, kv_lora_rank=64, qk_nope_head_dim=32, qk_rope_head_dim=32,
                         v_head_dim=64, n_group=1, topk_group=1)),
    "deepseek-v3": ("DeepseekV3ForCausalLM", "DeepseekV3Config",
                    dict(num_hidden_layers=2, num_key_value_heads=6, n_routed_experts=4, num_experts_per_tok=2,
                         moe_intermediate_size=256, q_lora_rank=128, kv_lora_rank=64, qk_nope_head_dim=32, qk_rope_head_dim=32,
                         v_head_dim=64, n_group=1, topk_group=1, first_k_dense_replace=1)),
    # state-space and recurrent models
    "mamba": ("MambaForCausalLM", "MambaConfig", dict(num_hidden_layers=2)),
    "mamba2": ("Mamba2ForCausalLM", "Mamba2Config", dict(num_hidden_layers=2, num_heads=12, head_dim=64, n_groups=1,
                                                         chunk_size=32)),
    "falcon-mamba": ("FalconMambaForCausalLM", "FalconMambaConfig", dict(num_hidden_layers=2)),
    "rwkv": ("RwkvForCausalLM", "RwkvConfig", dict(num_hidden_layers=2)),
    "recurrent-gemma": ("RecurrentGemmaForCausalLM", "RecurrentGemmaConfig",
                        dict(num_hidden_layers=3, num_key_value_heads=1, lru_width=384, attention_window_size=64)),
    "jamba": ("JambaForCausalLM", "JambaConfig", dict(EXPERTS, num_experts=4, use_mamba_kernels=False, attn_layer_period=2,
                                                      attn_layer_offset=1)),
    "bamba": ("BambaForCausalLM", "BambaConfig", dict(EXPERTS, attn_layer_indices=[1], mamba_n_heads=12, mamba_d_head=64,
                                                      mamba_chunk_size=32)),
    "lfm2": ("Lfm2ForCausalLM", "Lfm2Config", dict(num_key_value_heads=2, full_attn_idxs=[1, 3])),
}

ENCODER_DECODERS = {
    "t5": ("T5ForConditionalGeneration", "T5Config", T5),
    "t5-gated": ("T5ForConditionalGeneration", "T5Config", dict(T5, feed_forward_proj="gated-gelu")),
    "umt5": ("UMT5ForConditionalGeneration", "UMT5Config", T5),
    "longt5": ("LongT5ForConditionalGeneration", "LongT5Config", dict(T5, local_radius=31)),
    "switch": ("SwitchTransformersForConditionalGeneration", "SwitchTransformersConfig",
               dict(T5, num_experts=4, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, expert_capacity=32)),
    "bart": ("BartForConditionalGeneration", "BartConfig", WIDE),
    "mbart": ("MBartForConditionalGeneration", "MBartConfig", WIDE),
    "marian": ("MarianMTModel", "MarianConfig", dict(WIDE, pad_token_id=3999, decoder_start_token_id=3999)),
    "pegasus": ("PegasusForConditionalGeneration", "PegasusConfig", WIDE),
    "pegasus-x": ("PegasusXForConditionalGeneration", "PegasusXConfig", dict(WIDE, block_size=32, num_global_tokens=16)),
    "blenderbot": ("BlenderbotForConditionalGeneration", "BlenderbotConfig", WIDE),
    "m2m-100": ("M2M100ForConditionalGeneration", "M2M100Config", WIDE),
    "nllb-moe": ("NllbMoeForConditionalGeneration", "NllbMoeConfig",
                 dict(WIDE, num_experts=4, encoder_sparse_step=2, decoder_sparse_step=2)),
    "led": ("LEDForConditionalGeneration", "LEDConfig", dict(WIDE, attention_window=32, max_encoder_position_embeddings=512,
                                                             max_decoder_position_embeddings=512)),
    "prophetnet": ("ProphetNetForConditionalGeneration", "ProphetNetConfig",
                   dict(hidden_size=256, num_encoder_layers=2, num_decoder_layers=2, num_encoder_attention_heads=4,
                        num_decoder_attention_heads=4, encoder_ffn_dim=512, decoder_ffn_dim=512, vocab_size=4000)),
    "fsmt": ("FSMTForConditionalGeneration", "FSMTConfig", dict(WIDE, src_vocab_size=4000, tgt_vocab_size=4000,
                                                                langs=["en", "de"])),
    "bigbird-pegasus": ("BigBirdPegasusForConditionalGeneration", "BigBirdPegasusConfig",
                        dict(WIDE, attention_type="original_full")),
}

CACHED = ("gpt2", "llama", "qwen2", "qwen3", "mistral", "gemma", "phi3", "opt", "gpt-neox", "bloom", "falcon")


def knows(config, key):
    """Whether a configuration has a setting and lets it be changed; some derive it from others, and say so when it is set."""
    if not hasattr(config, key):
        return False
    try:
        setattr(config, key, getattr(config, key))
    except NotImplementedError:
        return False
    return True


def configured(name, given, sizes=None):
    """A configuration of transformers with those of `sizes` that it knows, and all that is given."""
    import transformers
    kind = getattr(transformers, name)
    plain = kind()
    known = {key: value for key, value in (SIZES if sizes is None else sizes).items() if knows(plain, key)}
    return kind(**{**known, **given})


def built(model, config, eager):
    import transformers
    config.use_cache = False
    config._experts_implementation = "eager"  # the default calls an operator of PyTorch alone
    if eager:
        config._attn_implementation = "eager"
    return getattr(transformers, model)(config)


def ids(count, words=4000):
    import torch
    return torch.randint(3, words - 10, (1, count))


def mask(count, hidden=0):
    import torch
    made = torch.ones((1, count), dtype=torch.int64)
    made[:, count - hidden:] = 0
    return made


def open_axes(names, axis="words"):
    return {name: {0: "batch", 1: axis} for name in names}


def text_model(name, task, entry, words, hidden=0, open_length=True):
    model, config, given = entry

    def make(eager=False):
        module = built(model, configured(config, given), eager)
        run = None
        if model.endswith("Model") or "LM" in model or "Causal" in model:
            run = lambda module, a, b: module(input_ids=a, attention_mask=b)[0]  # noqa: E731
        else:
            run = lambda module, a, b: module(input_ids=a, attention_mask=b)  # noqa: E731
        vocabulary = given.get("vocab_size", 4000)
        return tensors_of(module, run), {"input_ids": ids(words, vocabulary), "attention_mask": mask(words, hidden)}

    return Network(f"transformers/{name}", task, make, open_axes(["input_ids", "attention_mask"]) if open_length else {})


def encoder_decoder(name, entry):
    model, config, given = entry

    def make(eager=False):
        module = built(model, configured(config, given, {}), eager)
        return (tensors_of(module, lambda module, a, b, c: module(input_ids=a, attention_mask=b, decoder_input_ids=c)[0]),
                {"input_ids": ids(64), "attention_mask": mask(64), "decoder_input_ids": ids(32)})

    return Network(f"transformers/{name}", "encoder-decoder", make, {**open_axes(["input_ids", "attention_mask"]),
                                                                      **open_axes(["decoder_input_ids"], "outputs")})


def step(name, entry, past=128):
    """A step of a decoder, after `past` tokens whose keys and values are inputs."""
    model, config, given = entry

    def make(eager=False):
        import torch
        from transformers import DynamicCache
        settings = configured(config, given)
        module = built(model, settings, eager)
        heads = settings.num_attention_heads
        groups = getattr(settings, "num_key_value_heads", None) or heads
        if name == "falcon":
            groups = 1
        depth = getattr(settings, "head_dim", None) or settings.hidden_size // heads
        layers = settings.num_hidden_layers

        def run(module, tokens, seen, *caches):
            cache = DynamicCache()
            for layer in range(layers):
                cache.update(caches[2 * layer], caches[2 * layer + 1], layer)
            made = module(input_ids=tokens, attention_mask=seen, past_key_values=cache, use_cache=True)
            kept = made.past_key_values
            return [made.logits, *(tensor for layer in kept.layers for tensor in (layer.keys, layer.values))]

        caches = {f"past_{layer}_{kind}": torch.randn(1, groups, past, depth) for layer in range(layers) for kind in ("key",
                                                                                                                      "value")}
        return tensors_of(module, run), {"input_ids": ids(1), "attention_mask": mask(past + 1), **caches}

    names = [f"past_{layer}_{kind}" for layer in range(4) for kind in ("key", "value")]
    return Network(f"transformers/{name}-step", "decoder, a step", make,
                   {"attention_mask": {1: "seen"}, **{one: {2: "past"} for one in names}})


def networks():
    made = [text_model(name, "encoder", entry, 128, hidden=16, open_length=name not in ("big-bird-sparse", "reformer",
                                                                                        "nystromformer"))
            for name, entry in ENCODERS.items()]
    made += [text_model(name, "decoder", entry, 64) for name, entry in DECODERS.items()]
    made += [step(name, DECODERS[name]) for name in CACHED]
    made += [encoder_decoder(name, entry) for name, entry in ENCODER_DECODERS.items()]
    return made
