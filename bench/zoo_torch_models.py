"""The networks of bench/zoo_torch.py: architectures of torchvision and timm here, those of transformers and diffusers in
zoo_torch_language.py and zoo_torch_transformers.py, each with random weights and inputs of a size that runs in some 1 to 400
ms.

An entry makes a module and its inputs when it is asked to, so that the list can be read without PyTorch.
"""
import dataclasses
import fnmatch
import typing


@dataclasses.dataclass(frozen=True)
class Network:
    name: str
    task: str
    make: typing.Callable     # () -> (module, {input: tensor})
    dynamic: dict = dataclasses.field(default_factory=dict)  # of an input, its open axes: {axis: name}
    may_differ: float = 0     # the share of an output's elements that may be anything: rounding moves the borders of masks

    @property
    def has_eager(self):
        """Whether its attention can be written out in plain operations where the default cannot be exported."""
        return self.name.startswith("transformers/")


# timm: "name" or "name@size" or "name:argument=number", several arguments with commas.
TIMM = """
bat_resnext26ts botnet26t_256 halonet26t lambda_resnet26t repvgg_a0 mobileone_s0 regnetz_b16 gcresnet33ts
beit_base_patch16_224:depth=4 beit3_base_patch16_224:depth=3 cait_xxs24_224:depth=10 coat_tiny coat_lite_tiny convit_tiny
 convnext_atto convnextv2_atto cpubone_nano crossvit_tiny_240 crossvit_9_dagger_240 csatv2 cspdarknet53
cs3darknet_focus_s cspnext_tiny davit_tiny deit_tiny_patch16_224 deit_tiny_distilled_patch16_224 deit3_small_patch16_224
densenetblur121d dla34 dla60_res2net dpn48b edgenext_xx_small efficientformer_l1 efficientformerv2_s0 efficientnet_lite0
tf_efficientnet_b0 tf_efficientnetv2_b0 efficientnet_cc_b0_4e efficientnet_blur_b0 efficientnet_b0_g16_evos gc_efficientnetv2_rw_t
mixnet_s hardcorenas_a mobilenetv1_100 mobilenet_edgetpu_v2_xs mobilenetv3_small_100 mobilenetv4_conv_small
mobilenetv4_hybrid_medium lcnet_050 lcnetv2_small efficientvim_m1 efficientvit_b0 efficientvit_l1 efficientvit_m0
eva02_tiny_patch14_224 fasternet_t0 fastvit_t8 focalnet_tiny_srf gcvit_xxtiny ghostnet_100 ghostnetv2_100 ghostnetv3_100
hgnetv2_b0 hiera_tiny_224 hrnet_w18_small iformer_t inception_next_atto inception_v4 inception_resnet_v2 levit_128s
levit_conv_128s lowformer_b0 mambaout_femto maxvit_pico_rw_256 maxxvit_rmlp_nano_rw_256 coatnet_nano_rw_224 poolformer_s12
poolformerv2_s12 caformer_s18 convformer_s18 mixer_s32_224 gmixer_12_224 resmlp_12_224 gmlp_ti16_224 mobilevit_xxs mobilevitv2_050
mvitv2_tiny naflexvit_base_patch16_gap:depth=3 pnasnet5large@128 nasnetalarge@96 nest_tiny nextvit_small nfnet_l0 eca_nfnet_l0
pit_ti_224 pvt_v2_b0 pvt_v2_b2_li:depths=1 rdnet_tiny regnetx_002 regnety_002 repghostnet_050 repvit_m0_9 res2net50_14w_8s
resnest14d resnet50d resnetblur18 resnetaa34d resnetrs50 resnet50_gn resnet50_clip skresnet18 skresnext50_32x4d seresnext26d_32x4d
resnetv2_50x1_bit resnetv2_50d_frn rexnet_100 selecsls42b sequencer2d_s shvit_s1 starnet_s1 swiftformer_xs
swin_tiny_patch4_window7_224 swinv2_tiny_window8_256 swinv2_cr_tiny_ns_224 tiny_vit_5m_224 tnt_s_patch16_224 tresnet_m
twins_pcpvt_small twins_svt_small visformer_tiny vit_tiny_patch16_224 vit_tiny_r_s16_p8_224 vit_relpos_small_patch16_224
vit_small_patch16_dinov3 vit_small_patch16_rope_mixed_224:depth=6 vit_base_patch16_siglip_224:depth=3
samvit_base_patch16_224:depth=4 vit_small_patch14_reg4_dinov2@224 vit_base_patch32_clip_quickgelu_224:depth=4
vit_pe_core_tiny_patch16_384 vit_pwee_patch16_reg1_gap_256 vitamin_small_224 volo_d1_224 ese_vovnet19b_dw vovnet39a xception41
xcit_nano_12_p16_224 xcit_tiny_12_p8_224:depth=6
"""

# torchvision: "name" or "name@size".
CLASSIFIERS = """
alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_v2_s googlenet@224 inception_v3@299 maxvit_t mnasnet0_5
mobilenet_v2 mobilenet_v3_large mobilenet_v3_small regnet_x_400mf regnet_y_400mf resnet18 resnet50 resnext50_32x4d wide_resnet50_2
shufflenet_v2_x1_0 squeezenet1_1 swin_t swin_v2_t vgg11 vgg16 vit_b_16 vit_b_32
"""
SEGMENTATION = "deeplabv3_mobilenet_v3_large@256 deeplabv3_resnet50@192 fcn_resnet50@192 lraspp_mobilenet_v3_large@320"
DETECTION = """
fasterrcnn_mobilenet_v3_large_320_fpn@320 fasterrcnn_mobilenet_v3_large_fpn@320 fasterrcnn_resnet50_fpn@256
fasterrcnn_resnet50_fpn_v2@224 fcos_resnet50_fpn@256 keypointrcnn_resnet50_fpn@224 maskrcnn_resnet50_fpn@224
maskrcnn_resnet50_fpn_v2@192 retinanet_resnet50_fpn@256 retinanet_resnet50_fpn_v2@192 ssd300_vgg16@300
ssdlite320_mobilenet_v3_large@320
"""
VIDEO = "r3d_18@64 mc3_18@64 r2plus1d_18@64 s3d@128 swin3d_t@96 mvit_v1_b@224 mvit_v2_s@224"
FRAMES = {"s3d": 16, "mvit_v1_b": 16, "mvit_v2_s": 16}


def sized(word, size):
    name, _, given = word.partition("@")
    return name, int(given or size)


def image(size, frames=None):
    """Noise over smooth colours: after some layers all places of noise alone are alike, and the order of their scores is chance."""
    import torch
    smooth = torch.nn.functional.interpolate(torch.randn(frames or 1, 3, 6, 6), (size, size), mode="bicubic", align_corners=False)
    made = 2 * smooth + 0.5 * torch.randn(frames or 1, 3, size, size)
    return made if frames is None else made.transpose(0, 1)[None].contiguous()


def timm_network(word):
    whole, size = sized(word, 0)
    name, _, arguments = whole.partition(":")
    given = {key: int(value) for key, value in (pair.split("=") for pair in arguments.split(",") if pair)}

    def make():
        import timm
        if "depths" in given:
            given["depths"] = [given["depths"]] * 4
        module = timm.create_model(name, **given)
        side = size or module.default_cfg["input_size"][-1]
        if size and name.startswith("vit"):
            module = timm.create_model(name, img_size=size, **given)
        return module, {"image": image(side)}

    return Network(f"timm/{name}", "classification", make)


def first_values(outputs):
    """The tensors of what a module gives back, which may be a tensor, a dict or a list of these."""
    import torch
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    if outputs is None or isinstance(outputs, (bool, int, float, str)):
        return []
    values = outputs.values() if hasattr(outputs, "values") else outputs
    return [tensor for value in values for tensor in first_values(value)]


def tensors_of(module, run=None):
    """A module whose outputs are a tuple of the tensors that `run(module, *inputs)` gives, by default those of a call."""
    import torch

    class Tensors(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.module = module

        def forward(self, *inputs):
            return tuple(first_values(run(self.module, *inputs) if run else self.module(*inputs)))

    return Tensors()


def spread_scores(module, factor):
    """Multiplies what scores are made with: which of many nearly equal ones of random weights are the largest is chance."""
    for name, part in module.named_modules():
        if name.endswith(("cls_logits", "cls_score")) or "classification_head.module_list" in name and hasattr(part, "weight"):
            part.weight.data.mul_(factor)


def torchvision_network(word, task):
    name, size = sized(word, 224)

    def make():
        import torchvision.models as models
        if task == "video":
            return models.get_model(name), {"video": image(size, FRAMES.get(name, 8))}
        if task == "segmentation":
            return tensors_of(models.get_model(name, weights=None, weights_backbone=None, num_classes=21)), {"image": image(size)}
        if task == "detection":
            sizes = {} if name.startswith("ssd") else {"min_size": size, "max_size": size}
            if "rcnn" in name:
                sizes.update(rpn_pre_nms_top_n_test=200, rpn_post_nms_top_n_test=100)
            if name.startswith("keypointrcnn"):
                sizes.update(box_detections_per_img=5)  # each is a turn of a Loop
            module = models.get_model(name, weights=None, weights_backbone=None, num_classes=5, **sizes)
            # ssd300_vgg16 has no batch normalization: its scores would all be 1.
            spread_scores(module, 0.02 if name == "ssd300_vgg16" else 10)
            return tensors_of(module, lambda module, x: module([x])), {"image": image(size)[0]}
        extra = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
        return models.get_model(name, weights=None, **extra), {"image": image(size)}

    return Network(f"torchvision/{name}", task, make, may_differ=0.01 if name.startswith("maskrcnn") else 0)


def raft(name):
    def make():
        import torchvision.models as models
        module = models.get_model(name, weights=None)
        inputs = {"first": image(128), "second": image(128)}
        return tensors_of(module, lambda module, a, b: module(a, b, num_flow_updates=4)[-1]), inputs

    return Network(f"torchvision/{name}", "optical flow", make)


def networks():
    """All, in the order of the table."""
    made = [torchvision_network(word, "classification") for word in CLASSIFIERS.split()]
    made += [timm_network(word) for word in TIMM.split()]
    for task, words in (("segmentation", SEGMENTATION), ("detection", DETECTION), ("video", VIDEO)):
        made += [torchvision_network(word, task) for word in words.split()]
    made += [raft("raft_small"), raft("raft_large")]
    import zoo_torch_language
    import zoo_torch_transformers
    return made + zoo_torch_language.networks() + zoo_torch_transformers.networks()


def chosen(names, all_networks):
    """Those that one of the patterns matches, with or without the part before the slash; all where there are none."""
    def matches(network):
        return any(fnmatch.fnmatchcase(part, name) for name in names for part in (network.name, network.name.partition("/")[2]))

    return [network for network in all_networks if not names or matches(network)]
