"""The networks of bench/zoo_torch.py for sound, images, text with images, and time series, of transformers, and those of
diffusers."""
from zoo_torch_language import built, configured, ids, mask
from zoo_torch_models import Network, image, tensors_of

VIT = dict(hidden_size=192, num_hidden_layers=4, num_attention_heads=3, intermediate_size=768)
TEXT = dict(VIT, vocab_size=4000, max_position_embeddings=77)
SPEECH = dict(hidden_size=256, num_hidden_layers=3, num_attention_heads=4, intermediate_size=512, conv_dim=(64,) * 7,
              num_conv_pos_embeddings=32,
              num_conv_pos_embedding_groups=4, vocab_size=32)
WHISPER = dict(d_model=256, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
               encoder_ffn_dim=1024,
               decoder_ffn_dim=1024, vocab_size=4000, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
DETR = dict(use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, num_queries=50, d_model=256, encoder_layers=2,
            decoder_layers=2)
LLAMA = dict(model_type="llama", hidden_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=512, vocab_size=4000)


def sound(samples):
    import torch
    return torch.randn(1, samples)


def floats(*dims):
    import torch
    return torch.randn(*dims)


def resnet(stages=("stage2", "stage3", "stage4"), **given):
    from transformers import ResNetConfig
    return ResNetConfig(embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic",
                        out_features=list(stages), **given)


def detr():
    return dict(DETR, backbone_config=resnet())


def hgnet():
    from transformers import RTDetrResNetConfig
    return RTDetrResNetConfig(hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic", out_features=["stage2",
                                                                                                                       "stage3",
    "stage4"])


def swin(**given):
    from transformers import SwinConfig
    return SwinConfig(embed_dim=48, depths=[2, 2, 2, 2], num_heads=[2, 4, 8, 16], window_size=7, out_features=["stage1", "stage2",
                                                                                                               "stage3", "stage4"],
                      **given)


# name: (task, class of the model, class of its configuration, what the configuration has, its inputs by the module's names)
# What needs PyTorch or transformers is a function, called when the network is made.
ENTRIES = {
    "wav2vec2": ("audio", "Wav2Vec2ForCTC", "Wav2Vec2Config", SPEECH, lambda: {"input_values": sound(16000)}),
    "hubert": ("audio", "HubertForCTC", "HubertConfig", SPEECH, lambda: {"input_values": sound(16000)}),
    "sew": ("audio", "SEWForCTC", "SEWConfig", dict(SPEECH, conv_dim=(64,) * 13), lambda: {"input_values": sound(16000)}),
    "sew-d": ("audio", "SEWDForCTC", "SEWDConfig", dict(SPEECH, conv_dim=(64,) * 13), lambda: {"input_values": sound(16000)}),
    "unispeech": ("audio", "UniSpeechForCTC", "UniSpeechConfig", dict(SPEECH, num_ctc_classes=32),
                  lambda: {"input_values": sound(16000)}),
    "unispeech-sat": ("audio", "UniSpeechSatForCTC", "UniSpeechSatConfig", SPEECH, lambda: {"input_values": sound(16000)}),
    "wavlm": ("audio", "WavLMForCTC", "WavLMConfig", SPEECH, lambda: {"input_values": sound(16000)}),
    "data2vec-audio": ("audio", "Data2VecAudioForCTC", "Data2VecAudioConfig", dict(SPEECH, conv_pos_kernel_size=19),
                       lambda: {"input_values": sound(16000)}),
    "wav2vec2-conformer": ("audio", "Wav2Vec2ConformerForCTC", "Wav2Vec2ConformerConfig", SPEECH,
                           lambda: {"input_values": sound(16000)}),
    "wav2vec2-bert": ("audio", "Wav2Vec2BertForCTC", "Wav2Vec2BertConfig",
                      dict(VIT, hidden_size=256, num_attention_heads=4, vocab_size=32),
                      lambda: {"input_features": floats(1, 100, 160)}),
    "whisper": ("audio", "WhisperForConditionalGeneration", "WhisperConfig", WHISPER,
                lambda: {"input_features": floats(1, 80, 3000), "decoder_input_ids": ids(16)}),
    "whisper-encoder": ("audio", "WhisperEncoder", "WhisperConfig", WHISPER, lambda: {"input_features": floats(1, 80, 3000)}),
    "whisper-decoder": ("audio", "WhisperDecoder", "WhisperConfig", WHISPER,
                        lambda: {"input_ids": ids(16), "encoder_hidden_states": floats(1, 500, 256)}),
    "ast": ("audio", "ASTForAudioClassification", "ASTConfig", dict(VIT, max_length=512),
            lambda: {"input_values": floats(1, 512, 128)}),
    "encodec": ("audio", "EncodecModel", "EncodecConfig", dict(num_filters=16), lambda: {"input_values": floats(1, 1, 16000)}),
    "mimi": ("audio", "MimiModel", "MimiConfig", dict(hidden_size=256, num_hidden_layers=2, num_attention_heads=4,
                                                      num_key_value_heads=4, num_filters=32, upsample_groups=256,
                                                      intermediate_size=512), lambda: {"input_values": floats(1, 1, 24000)}),
    "dac": ("audio", "DacModel", "DacConfig", dict(encoder_hidden_size=16, decoder_hidden_size=256, n_codebooks=4),
            lambda: {"input_values": floats(1, 1, 16000)}),
    "moonshine": ("audio", "MoonshineForConditionalGeneration", "MoonshineConfig",
                  dict(encoder_num_hidden_layers=2, decoder_num_hidden_layers=2),
                  lambda: {"input_values": sound(16000), "decoder_input_ids": ids(8)}),
    "speech-to-text": ("audio", "Speech2TextForConditionalGeneration", "Speech2TextConfig",
                       dict(encoder_layers=3, decoder_layers=2, vocab_size=4000),
                       lambda: {"input_features": floats(1, 200, 80), "decoder_input_ids": ids(8)}),
    "clap-audio": ("audio", "ClapAudioModel", "ClapAudioConfig",
                   dict(depths=[1, 1, 2, 1], num_hidden_layers=4, patch_embeds_hidden_size=48, hidden_size=384),
                   lambda: {"input_features": floats(1, 1, 1001, 64)}),
    "vits": ("audio", "VitsModel", "VitsConfig", dict(hidden_size=96, num_hidden_layers=3, upsample_initial_channel=128),
             lambda: {"input_ids": ids(24, 38)}),
    "fastspeech2-conformer": ("audio", "FastSpeech2ConformerModel", "FastSpeech2ConformerConfig", {},
                              lambda: {"input_ids": ids(24, 78)}),
    "parakeet": ("audio", "ParakeetEncoder", "ParakeetEncoderConfig",
                 dict(hidden_size=256, num_hidden_layers=3, num_attention_heads=4, intermediate_size=512),
                 lambda: {"input_features": floats(1, 200, 80)}),
    "univnet": ("audio", "UnivNetModel", "UnivNetConfig", {},
                lambda: {"input_features": floats(1, 32, 100), "noise_sequence": floats(1, 32, 64)}),
    "bark-semantic": ("audio", "BarkSemanticModel", "BarkSemanticConfig",
                      dict(hidden_size=256, num_layers=3, num_heads=4, input_vocab_size=4000, output_vocab_size=4000),
                      lambda: {"input_ids": ids(64)}),
    "musicgen-decoder": ("audio", "MusicgenForCausalLM", "MusicgenDecoderConfig",
                         dict(hidden_size=256, num_hidden_layers=3, num_attention_heads=4, ffn_dim=512),
                         lambda: {"input_ids": ids(32, 2048).repeat(4, 1)}),

    "vit": ("classification", "ViTForImageClassification", "ViTConfig", VIT, lambda: {"pixel_values": image(224)}),
    "vit-mae": ("classification", "ViTMAEModel", "ViTMAEConfig", dict(VIT, mask_ratio=0.0), lambda: {"pixel_values": image(224)}),
    "dinov2": ("classification", "Dinov2ForImageClassification", "Dinov2Config", VIT, lambda: {"pixel_values": image(224)}),
    "ijepa": ("classification", "IJepaModel", "IJepaConfig", dict(VIT, image_size=224), lambda: {"pixel_values": image(224)}),
    "cvt": ("classification", "CvtForImageClassification", "CvtConfig", {}, lambda: {"pixel_values": image(224)}),
    "bit": ("classification", "BitForImageClassification", "BitConfig",
            dict(depths=[2, 2, 2, 2], hidden_sizes=[128, 256, 512, 512], num_groups=16), lambda: {"pixel_values": image(224)}),
    "pvt": ("classification", "PvtForImageClassification", "PvtConfig", {}, lambda: {"pixel_values": image(224)}),
    "hf-mobilevit": ("classification", "MobileViTForImageClassification", "MobileViTConfig", {},
                     lambda: {"pixel_values": image(256)}),
    "hf-poolformer": ("classification", "PoolFormerForImageClassification", "PoolFormerConfig", {},
                      lambda: {"pixel_values": image(224)}),
    "hf-swinv2": ("classification", "Swinv2ForImageClassification", "Swinv2Config", dict(embed_dim=48),
                  lambda: {"pixel_values": image(224)}),
    "videomae": ("video", "VideoMAEForVideoClassification", "VideoMAEConfig", dict(VIT, image_size=112),
                 lambda: {"pixel_values": floats(1, 16, 3, 112, 112)}),
    "vivit": ("video", "VivitForVideoClassification", "VivitConfig", dict(VIT, image_size=96, num_frames=16),
              lambda: {"pixel_values": floats(1, 16, 3, 96, 96)}),
    "timesformer": ("video", "TimesformerForVideoClassification", "TimesformerConfig", dict(VIT, image_size=112),
                    lambda: {"pixel_values": floats(1, 8, 3, 112, 112)}),
    "vjepa2": ("video", "VJEPA2ForVideoClassification", "VJEPA2Config",
               dict(VIT, crop_size=96, frames_per_clip=8, num_attention_heads=4, pred_hidden_size=96, pred_num_attention_heads=4,
                    pred_num_hidden_layers=2), lambda: {"pixel_values_videos": floats(1, 8, 3, 96, 96)}),

    "segformer": ("segmentation", "SegformerForSemanticSegmentation", "SegformerConfig", {}, lambda: {"pixel_values": image(256)}),
    "upernet": ("segmentation", "UperNetForSemanticSegmentation", "UperNetConfig",
                lambda: dict(backbone_config=swin(), hidden_size=128, auxiliary_in_channels=192),
                lambda: {"pixel_values": image(224)}),
    "upernet-convnext": ("segmentation", "UperNetForSemanticSegmentation", "UperNetConfig",
                         lambda: dict(backbone_config=convnext(), hidden_size=128, auxiliary_in_channels=160),
                         lambda: {"pixel_values": image(256)}),
    "mask2former": ("segmentation", "Mask2FormerForUniversalSegmentation", "Mask2FormerConfig",
                    lambda: dict(backbone_config=swin(), feature_size=128, mask_feature_size=128, hidden_dim=128, encoder_layers=2,
                                 decoder_layers=3, num_queries=50, encoder_feedforward_dim=256, dim_feedforward=512),
                                 lambda: {"pixel_values": image(224)}),
    "maskformer": ("segmentation", "MaskFormerForInstanceSegmentation", "MaskFormerConfig",
                   lambda: dict(backbone_config=swin(), fpn_feature_size=128, mask_feature_size=128),
                   lambda: {"pixel_values": image(224)}),
    "eomt": ("segmentation", "EomtForUniversalSegmentation", "EomtConfig", dict(VIT, image_size=224, num_blocks=2, num_queries=50),
             lambda: {"pixel_values": image(224)}),
    "hf-beit": ("segmentation", "BeitForSemanticSegmentation", "BeitConfig",
                dict(VIT, num_hidden_layers=12, out_indices=[3, 5, 7, 11]), lambda: {"pixel_values": image(224)}),
    "data2vec-vision": ("segmentation", "Data2VecVisionForSemanticSegmentation", "Data2VecVisionConfig",
                        dict(VIT, num_hidden_layers=12), lambda: {"pixel_values": image(224)}),
    "sam": ("segmentation", "SamModel", "SamConfig", dict(vision_config=dict(hidden_size=192, num_hidden_layers=3,
                                                                             num_attention_heads=3, image_size=512,
                                                                             global_attn_indexes=[2], output_channels=256),
                                                                             prompt_encoder_config=dict(image_size=512)),
                                                                             lambda: {"pixel_values": image(512),
                                                                                      "input_points": floats(1, 1, 2,
                                                                                                             2).abs() * 100}),
    "vitmatte": ("segmentation", "VitMatteForImageMatting", "VitMatteConfig",
                 lambda: dict(backbone_config=vitdet(), hidden_size=192, convstream_hidden_sizes=[48, 96, 192],
                              fusion_hidden_sizes=[256, 128, 64, 32]), lambda: {"pixel_values": floats(1, 4, 256, 256)}),
    "clipseg": ("segmentation", "CLIPSegForImageSegmentation", "CLIPSegConfig",
                dict(text_config=TEXT, vision_config=dict(VIT, num_hidden_layers=10, patch_size=16)),
                lambda: {"input_ids": ids(16), "pixel_values": image(224), "attention_mask": mask(16)}),
    "groupvit": ("segmentation", "GroupViTModel", "GroupViTConfig", dict(text_config=TEXT, vision_config={}),
                 lambda: {"input_ids": ids(16), "pixel_values": image(224), "attention_mask": mask(16)}),

    "detr": ("detection", "DetrForObjectDetection", "DetrConfig", lambda: dict(DETR, backbone_config=resnet(("stage4",))),
             lambda: {"pixel_values": image(320)}),
    "conditional-detr": ("detection", "ConditionalDetrForObjectDetection", "ConditionalDetrConfig",
                         lambda: dict(DETR, backbone_config=resnet(("stage4",))), lambda: {"pixel_values": image(320)}),
    "deformable-detr": ("detection", "DeformableDetrForObjectDetection", "DeformableDetrConfig", detr,
                        lambda: {"pixel_values": image(320)}),
    "dab-detr": ("detection", "DabDetrForObjectDetection", "DabDetrConfig",
                 lambda: dict(DETR, hidden_size=256, backbone_config=resnet(("stage4",))), lambda: {"pixel_values": image(320)}),
    "table-transformer": ("detection", "TableTransformerForObjectDetection", "TableTransformerConfig",
                          lambda: dict(DETR, backbone_config=resnet(("stage4",))), lambda: {"pixel_values": image(320)}),
    "rt-detr": ("detection", "RTDetrForObjectDetection", "RTDetrConfig",
                lambda: dict(backbone_config=hgnet(), encoder_in_channels=[128, 256, 512], d_model=128, encoder_hidden_dim=128,
                             decoder_in_channels=[128, 128, 128], decoder_layers=2, num_queries=100),
                             lambda: {"pixel_values": image(320)}),
    "rt-detr-v2": ("detection", "RTDetrV2ForObjectDetection", "RTDetrV2Config",
                   lambda: dict(backbone_config=hgnet(), encoder_in_channels=[128, 256, 512], d_model=128, encoder_hidden_dim=128,
                                decoder_in_channels=[128, 128, 128], decoder_layers=2, num_queries=100),
                                lambda: {"pixel_values": image(320)}),
    "d-fine": ("detection", "DFineForObjectDetection", "DFineConfig",
               lambda: dict(backbone_config=hgnet(), encoder_in_channels=[128, 256, 512], d_model=128, encoder_hidden_dim=128,
                            decoder_in_channels=[128, 128, 128], decoder_layers=2, num_queries=100),
                            lambda: {"pixel_values": image(320)}),
    "yolos": ("detection", "YolosForObjectDetection", "YolosConfig", dict(VIT, image_size=[320, 320], num_detection_tokens=50),
              lambda: {"pixel_values": image(320)}),
    "owlvit": ("detection", "OwlViTForObjectDetection", "OwlViTConfig",
               dict(text_config=dict(TEXT, max_position_embeddings=16), vision_config=dict(VIT, image_size=384),
                    projection_dim=192), lambda: {"input_ids": ids(16).repeat(2, 1), "pixel_values": image(384),
                                                  "attention_mask": mask(16).repeat(2, 1)}),
    "grounding-dino": ("detection", "GroundingDinoForObjectDetection", "GroundingDinoConfig",
                       lambda: dict(backbone_config=swin_backbone(), text_config=dict(model_type="bert", **TEXT), d_model=128,
                                    encoder_layers=2, decoder_layers=2, num_queries=50, encoder_attention_heads=4,
                                    decoder_attention_heads=4),
                                    lambda: {"pixel_values": image(224), "input_ids": ids(12), "attention_mask": mask(12)}),

    "dpt": ("depth", "DPTForDepthEstimation", "DPTConfig", dict(VIT, image_size=224, backbone_out_indices=[0, 1, 2, 3],
                                                                neck_hidden_sizes=[48, 96, 192, 192], fusion_hidden_size=64),
                                                                lambda: {"pixel_values": image(224)}),
    "glpn": ("depth", "GLPNForDepthEstimation", "GLPNConfig", {}, lambda: {"pixel_values": image(224)}),
    "depth-anything": ("depth", "DepthAnythingForDepthEstimation", "DepthAnythingConfig",
                       lambda: dict(backbone_config=dinov2(), reassemble_hidden_size=192, neck_hidden_sizes=[48, 96, 192, 192],
                                    fusion_hidden_size=64), lambda: {"pixel_values": image(224)}),
    "swin2sr": ("super-resolution", "Swin2SRForImageSuperResolution", "Swin2SRConfig",
                dict(embed_dim=60, depths=[2, 2], num_heads=[6, 6], upscale=2), lambda: {"pixel_values": image(48)}),
    "superpoint": ("keypoints", "SuperPointForKeypointDetection", "SuperPointConfig", {}, lambda: {"pixel_values": image(160)}),
    "vitpose": ("keypoints", "VitPoseForPoseEstimation", "VitPoseConfig", lambda: dict(backbone_config=vitpose()),
                lambda: {"pixel_values": floats(1, 3, 256, 192)}),

    "clip": ("vision-language", "CLIPModel", "CLIPConfig", dict(text_config=TEXT, vision_config=VIT),
             lambda: {"input_ids": ids(77), "pixel_values": image(224), "attention_mask": mask(77)}),
    "siglip": ("vision-language", "SiglipModel", "SiglipConfig",
               dict(text_config=dict(TEXT, max_position_embeddings=64), vision_config=VIT),
               lambda: {"input_ids": ids(64), "pixel_values": image(224)}),
    "blip": ("vision-language", "BlipForImageTextRetrieval", "BlipConfig",
             dict(text_config=dict(TEXT, encoder_hidden_size=192), vision_config=dict(VIT, image_size=224)),
             lambda: {"input_ids": ids(16), "pixel_values": image(224), "attention_mask": mask(16)}),
    "align": ("vision-language", "AlignModel", "AlignConfig", dict(text_config=TEXT, vision_config=dict(image_size=224)),
              lambda: {"input_ids": ids(32), "pixel_values": image(224), "attention_mask": mask(32)}),
    "chinese-clip": ("vision-language", "ChineseCLIPModel", "ChineseCLIPConfig", dict(text_config=TEXT, vision_config=VIT),
                     lambda: {"input_ids": ids(32), "pixel_values": image(224), "attention_mask": mask(32)}),
    "x-clip": ("vision-language", "XCLIPModel", "XCLIPConfig",
               dict(text_config=TEXT, vision_config=dict(VIT, num_frames=4, mit_hidden_size=512, mit_num_attention_heads=8,
                                                         mit_intermediate_size=256)),
                                                         lambda: {"input_ids": ids(16), "pixel_values": floats(1, 4, 3, 224, 224),
                                                                  "attention_mask": mask(16)}),
    "bridgetower": ("vision-language", "BridgeTowerModel", "BridgeTowerConfig",
                    dict(hidden_size=192, num_hidden_layers=2, num_attention_heads=3, text_config=dict(TEXT, num_hidden_layers=4),
                         vision_config=dict(hidden_size=192, num_hidden_layers=4, image_size=224)),
                         lambda: {"input_ids": ids(16), "attention_mask": mask(16), "pixel_values": image(224)}),
    "flava-image": ("vision-language", "FlavaImageModel", "FlavaImageConfig", VIT, lambda: {"pixel_values": image(224)}),
    "git": ("vision-language", "GitForCausalLM", "GitConfig", dict(TEXT, vision_config=VIT),
            lambda: {"input_ids": ids(16), "attention_mask": mask(16), "pixel_values": image(224)}),
    "mgp-str": ("vision-language", "MgpstrForSceneTextRecognition", "MgpstrConfig",
                dict(hidden_size=192, num_hidden_layers=4, num_attention_heads=3), lambda: {"pixel_values": floats(1, 3, 32, 128)}),
    "layoutlmv3": ("vision-language", "LayoutLMv3ForTokenClassification", "LayoutLMv3Config",
                   dict(TEXT, max_position_embeddings=514, coordinate_size=32, shape_size=32),
                   lambda: {"input_ids": ids(64), "pixel_values": image(224), "attention_mask": mask(64)}),
    "pix2struct-vision": ("vision-language", "Pix2StructVisionModel", "Pix2StructVisionConfig",
                          dict(VIT, d_ff=768, d_kv=64, seq_len=512), lambda: {"flattened_patches": floats(1, 256, 770).abs()}),
    "llava": ("vision-language", "LlavaForConditionalGeneration", "LlavaConfig",
              lambda: dict(vision_config=dict(model_type="clip_vision_model", **VIT, image_size=224, patch_size=32),
                           text_config=LLAMA, image_token_index=3999),
                           lambda: {"input_ids": with_images(49, 16), "pixel_values": image(224)}),
    "trocr-decoder": ("decoder", "TrOCRForCausalLM", "TrOCRConfig",
                      dict(d_model=256, decoder_layers=3, decoder_attention_heads=4, decoder_ffn_dim=512, vocab_size=4000),
                      lambda: {"input_ids": ids(32)}),

    "patchtst": ("time series", "PatchTSTForPrediction", "PatchTSTConfig",
                 dict(num_input_channels=7, context_length=336, patch_length=16, patch_stride=8, prediction_length=96),
                 lambda: {"past_values": floats(1, 336, 7)}),
    "patchtsmixer": ("time series", "PatchTSMixerForPrediction", "PatchTSMixerConfig",
                     dict(num_input_channels=7, context_length=336, prediction_length=96, d_model=64),
                     lambda: {"past_values": floats(1, 336, 7)}),
    "informer": ("time series", "InformerModel", "InformerConfig",
                 dict(prediction_length=24, context_length=96, num_time_features=2, lags_sequence=[1, 2, 3]),
                 lambda: series(99, 24)),
    "autoformer": ("time series", "AutoformerModel", "AutoformerConfig",
                   dict(prediction_length=24, context_length=96, num_time_features=2, lags_sequence=[1, 2, 3]),
                   lambda: series(99, 24)),
    "time-series-transformer": ("time series", "TimeSeriesTransformerModel", "TimeSeriesTransformerConfig",
                                dict(prediction_length=24, context_length=96, num_time_features=2, lags_sequence=[1, 2, 3]),
                                lambda: series(99, 24)),
    "decision-transformer": ("time series", "DecisionTransformerModel", "DecisionTransformerConfig", {}, lambda: decisions(20)),
}

# name: (class of diffusers, its arguments, its inputs)
DIFFUSERS = {
    "unet-2d": ("UNet2DModel", dict(sample_size=32, block_out_channels=(64, 128, 128), layers_per_block=1,
                                    down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
                                    up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D")),
                                    lambda: {"sample": image(32), "timestep": steps(1)}),
    "unet-2d-condition": (
        "UNet2DConditionModel",
        dict(sample_size=32, block_out_channels=(64, 128, 256), layers_per_block=1, cross_attention_dim=256, attention_head_dim=8,
             down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
             up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D")),
        lambda: {"sample": floats(1, 4, 32, 32), "timestep": steps(1), "encoder_hidden_states": floats(1, 77, 256)}),
    "controlnet": ("ControlNetModel", dict(block_out_channels=(64, 128), layers_per_block=1, cross_attention_dim=256,
                                           attention_head_dim=8, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                                           conditioning_embedding_out_channels=(16, 32)),
                                           lambda: {"sample": floats(1, 4, 32, 32), "timestep": steps(1),
                                                    "encoder_hidden_states": floats(1, 77, 256), "controlnet_cond": image(64)}),
    "autoencoder-kl": ("AutoencoderKL", dict(block_out_channels=(32, 64, 64), layers_per_block=1,
                                             down_block_types=("DownEncoderBlock2D",) * 3,
                                             up_block_types=("UpDecoderBlock2D",) * 3), lambda: {"sample": image(96)}),
    "autoencoder-tiny": ("AutoencoderTiny", {}, lambda: {"sample": image(64)}),
    "vq-model": ("VQModel", dict(block_out_channels=(32, 64), down_block_types=("DownEncoderBlock2D",) * 2,
                                 up_block_types=("UpDecoderBlock2D",) * 2), lambda: {"sample": image(64)}),
    "dit": ("DiTTransformer2DModel", dict(num_attention_heads=4, attention_head_dim=64, num_layers=4, sample_size=16),
            lambda: {"hidden_states": floats(1, 4, 16, 16), "timestep": steps(1), "class_labels": steps(1)}),
    "pixart": ("PixArtTransformer2DModel", dict(num_attention_heads=4, attention_head_dim=64, num_layers=3, sample_size=32,
                                                cross_attention_dim=256, caption_channels=256, out_channels=8,
                                                use_additional_conditions=False),
                                                lambda: {"hidden_states": floats(1, 4, 32, 32),
                                                         "encoder_hidden_states": floats(1, 32, 256), "timestep": steps(1)}),
    "sd3": ("SD3Transformer2DModel", dict(sample_size=32, num_layers=3, attention_head_dim=64, num_attention_heads=4,
                                          joint_attention_dim=256, caption_projection_dim=256, pooled_projection_dim=256,
                                          pos_embed_max_size=32),
                                          lambda: {"hidden_states": floats(1, 16, 32, 32),
                                                   "encoder_hidden_states": floats(1, 32, 256),
                                                   "pooled_projections": floats(1, 256), "timestep": steps(1)}),
    "flux": ("FluxTransformer2DModel", dict(in_channels=16, num_layers=1, num_single_layers=2, attention_head_dim=64,
                                            num_attention_heads=4, joint_attention_dim=256, pooled_projection_dim=256,
                                            axes_dims_rope=(16, 24, 24)),
                                            lambda: {"hidden_states": floats(1, 256, 16),
                                                     "encoder_hidden_states": floats(1, 32, 256),
                                                     "pooled_projections": floats(1, 256), "timestep": floats(1),
                                                     "img_ids": floats(256, 3).abs().round(),
                                                     "txt_ids": floats(32, 3).abs().round()}),
    "unet-1d": ("UNet1DModel", dict(sample_size=1024, in_channels=14, out_channels=14, time_embedding_type="positional",
                                    block_out_channels=(32, 64, 128), down_block_types=("DownResnetBlock1D",) * 3,
                                    up_block_types=("UpResnetBlock1D",) * 2, mid_block_type="MidResTemporalBlock1D",
                                    out_block_type="OutConv1DBlock", use_timestep_embedding=True, act_fn="mish"),
                                    lambda: {"sample": floats(1, 14, 64), "timestep": steps(1)}),
}


def convnext():
    from transformers import ConvNextConfig
    return ConvNextConfig(hidden_sizes=[40, 80, 160, 320], depths=[2, 2, 2, 2], out_features=["stage1", "stage2", "stage3",
                                                                                              "stage4"])


def swin_backbone():
    from transformers import SwinConfig
    return SwinConfig(embed_dim=48, depths=[2, 2, 2, 2], num_heads=[2, 4, 8, 16], window_size=7, out_indices=[2, 3, 4])


def vitdet():
    from transformers import VitDetConfig
    return VitDetConfig(hidden_size=192, num_hidden_layers=3, num_attention_heads=3, num_channels=4, image_size=256,
                        pretrain_image_size=224,
                        out_features=["stage3"], window_block_indices=[0, 1], use_relative_position_embeddings=True, window_size=14)


def dinov2():
    from transformers import Dinov2Config
    return Dinov2Config(**VIT, image_size=224, out_indices=[1, 2, 3, 4], reshape_hidden_states=False, apply_layernorm=True)


def vitpose():
    from transformers import VitPoseBackboneConfig
    return VitPoseBackboneConfig(**VIT, out_indices=[4])


def with_images(images, words):
    import torch
    return torch.cat([torch.full((1, images), 3999), ids(words)], 1)


def steps(count):
    import torch
    return torch.full((count,), 7)


def series(past, future):
    import torch
    return {"past_values": floats(1, past), "past_time_features": floats(1, past, 2), "past_observed_mask": torch.ones(1, past),
            "future_values": floats(1, future), "future_time_features": floats(1, future, 2)}


def decisions(count):
    import torch
    return {"states": floats(1, count, 17), "actions": floats(1, count, 4), "rewards": floats(1, count, 1),
            "returns_to_go": floats(1, count, 1),
            "timesteps": torch.arange(count)[None], "attention_mask": mask(count)}


def named(module, names):
    """Calls a module with its inputs by name, in the order of `names`."""
    return tensors_of(module, lambda module, *values: module(**dict(zip(names, values))))


def of_transformers(name, entry):
    task, model, config, given, inputs = entry

    def make(eager=False):
        import transformers
        from transformers.models.whisper import modeling_whisper
        settings = configured(config, given() if callable(given) else given, {})
        if hasattr(transformers, model):
            module = built(model, settings, eager)
        else:
            settings._attn_implementation = "eager" if eager else "sdpa"
            module = getattr(modeling_whisper, model)(settings)
        feeds = inputs()
        return named(module, list(feeds)), feeds

    return Network(f"transformers/{name}", task, make)


def of_diffusers(name, entry):
    model, given, inputs = entry

    def make():
        import diffusers
        feeds = inputs()
        return named(getattr(diffusers, model)(**given), list(feeds)), feeds

    return Network(f"diffusers/{name}", "diffusion", make)


def networks():
    return [of_transformers(name, entry) for name, entry in ENTRIES.items()] + [of_diffusers(name, entry) for name,
                                                                                entry in DIFFUSERS.items()]
