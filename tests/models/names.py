"""Prints the rows of test_names_of_libraries in tests/checkpoint/test_weights.c: library, network, number of tensors, and
CRC-32 of the sorted lines "NAME SHAPE" of the library's own state_dict; for transformers, of its file, without
what only pretraining uses. Needs timm and transformers."""
import tempfile
import zlib

import timm
import transformers as hf
from safetensors import safe_open

TIMM = {"convnext_tiny": "convnext_tiny", "convnext_base": "convnext_base", "densenet121": "densenet121",
        "efficientnet_b0": "efficientnet_b0", "mobilenet_v2": "mobilenetv2_100",
        "mobilenet_v3_large": "mobilenetv3_large_100", "mobilenet_v3_small": "mobilenetv3_small_100",
        "mobilenetv4_conv_medium": "mobilenetv4_conv_medium", "regnet_y_400mf": "regnety_004",
        "resnet18": "resnet18", "resnet50d": "resnet50d", "resnext50_32x4d": "resnext50_32x4d",
        "vgg11_bn": "vgg11_bn", "vgg16": "vgg16", "wide_resnet50_2": "wide_resnet50_2"}
TIMM.update({"vit_b_16": "vit_base_patch16_224", "swin_t": "swin_tiny_patch4_window7_224"})
TIMM.update({name: name for name in ("convnextv2_tiny", "deit3_small_patch16_224", "vit_tiny_patch16_224",
                                     "vit_small_patch14_reg4_dinov2",
                                     "deit_tiny_distilled_patch16_224")})
HF = {"convnext_tiny": (hf.ConvNextForImageClassification, hf.ConvNextConfig()),
      "convnextv2_tiny": (hf.ConvNextV2ForImageClassification, hf.ConvNextV2Config()),
      "regnet_y_400mf": (hf.RegNetForImageClassification, hf.RegNetConfig(
          depths=[1, 3, 6, 6], hidden_sizes=[48, 104, 208, 440], groups_width=8)),
      "resnet18": (hf.ResNetForImageClassification, hf.ResNetConfig(
          depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512], layer_type="basic")),
      "resnet50": (hf.ResNetForImageClassification, hf.ResNetConfig()),
      "vit_tiny_patch16_224": (hf.ViTForImageClassification, hf.ViTConfig(
          hidden_size=192, num_attention_heads=3, intermediate_size=768)),
      "vit_b_32": (hf.ViTForImageClassification, hf.ViTConfig(patch_size=32)),
      "vit_base_patch14_dinov2": (hf.Dinov2ForImageClassification, hf.Dinov2Config(image_size=518)),
      "vit_small_patch14_reg4_dinov2": (hf.Dinov2WithRegistersForImageClassification,
                                        hf.Dinov2WithRegistersConfig(
                                            hidden_size=384, num_attention_heads=6, image_size=518,
                                            patch_size=14)),
      "deit_tiny_distilled_patch16_224": (hf.DeiTForImageClassificationWithTeacher, hf.DeiTConfig(
          hidden_size=192, num_attention_heads=3, intermediate_size=768)),
      "swin_s": (hf.SwinForImageClassification, hf.SwinConfig(depths=[2, 2, 18, 2]))}


def shapes_of(net):
    if not isinstance(net, hf.PreTrainedModel):
        return {name: tensor.shape for name, tensor in net.state_dict().items()}
    with tempfile.TemporaryDirectory() as folder:
        net.save_pretrained(folder)
        with safe_open(folder + "/model.safetensors", "pt") as file:
            names = [name for name in file.keys() if "mask_token" not in name]
            return {name: file.get_slice(name).get_shape() for name in names}


def row(library, arch, net):
    lines = sorted(("%s %s" % (name, "x".join(map(str, shape)))).encode()
                   for name, shape in shapes_of(net).items())
    crc = zlib.crc32(b"".join(line + b"\n" for line in lines))
    print('    {"%s", "%s", %d, 0x%08x},' % (library, arch, len(lines), crc))


for arch, config in HF.items():
    config[1].num_labels = 1000
    row("hf", arch, config[0](config[1]))
for arch, name in TIMM.items():
    row("timm", arch, timm.create_model(name, num_classes=1000))
