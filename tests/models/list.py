"""Writes the lists in this folder: one layer with parameters a line, in torchvision's or timm's order, or that
of a library for segmentation (dense_peers.py in tests/graph).

NAME SHAPE, where a shape of rank 4 is a convolution, of rank 2 a linear layer (a final + says that
it has a bias), of rank 1 a batch norm or, with a final +, a layer norm, and of rank 3 or with a final =
one parameter of that name. Second names of a tensor are left out. Needs these libraries; resnet20 comes from a
weights file.

    python3 list.py [resnet20.safetensors]
"""
import json
import os
import struct
import sys

import timm
import torchvision

NORM = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
NAMES = """alexnet vgg11_bn vgg16 vgg16_bn googlenet resnet18 resnet34 resnet50 resnet101 resnet152
           mobilenet_v2 densenet121 resnext50_32x4d wide_resnet50_2 squeezenet1_1
           mobilenet_v3_small mobilenet_v3_large efficientnet_b0 regnet_y_400mf shufflenet_v2_x1_0
           convnext_tiny convnext_small convnext_base efficientnet_v2_s efficientnet_v2_m
           regnet_y_8gf regnet_y_16gf regnet_y_32gf vit_b_16 vit_b_32 vit_l_16 vit_h_14 swin_t swin_s
           swin_b""".split()
TIMM = """mobilenetv4_conv_small mobilenetv4_conv_medium resnet50d convnextv2_tiny vit_tiny_patch16_224
          vit_small_patch16_224 deit3_small_patch16_224 deit3_base_patch16_224 vit_small_patch14_dinov2
          vit_base_patch14_dinov2 vit_small_patch14_reg4_dinov2
          deit_tiny_distilled_patch16_224 deit_small_distilled_patch16_224
          deit_base_distilled_patch16_224""".split()


def layers(shapes):
    """Groups (name, shape) by layer, and checks that what is left out follows from what is written."""
    groups, own = {}, []
    for name, shape in shapes:
        layer, last = name.rsplit(".", 1) if "." in name else ("", name)
        if last.endswith("relative_position_index"):
            continue
        if last not in NORM and (len(shape) != 3 or last != "layer_scale"):
            yield "%s %s=" % (name, "x".join(map(str, shape)))
            continue
        if own and not layer.startswith(own[-1][1]):
            groups.update([own.pop()[0]])
        if len(shape) == 3:
            own.append(((name, [("", shape)]), layer + "."))
            continue
        groups.setdefault(layer, []).append((last, shape))
    for layer, params in groups.items():
        names, first = [last for last, _ in params], list(params[0][1])
        if names == [""]:
            pass
        elif len(first) == 1 and len(names) == 2:
            assert names == NORM[:2] and list(params[1][1]) == first, layer
        elif len(first) == 1:
            assert names == NORM and all(list(s) == first for _, s in params[:4]), layer
        elif names == ["weight", "bias"] and params[1][1][0] != first[0]:     # of a transposed convolution
            for name, shape in params:
                yield "%s.%s %s=" % (layer, name, "x".join(map(str, shape)))
            continue
        else:
            assert names in (["weight"], ["weight", "bias"]), layer
            assert all(list(s) == first[:1] for _, s in params[1:]), layer
        yield "%s %s%s" % (layer, "x".join(map(str, first)), "+" if names == ["weight", "bias"] else "")


def write(arch, shapes):
    with open(arch + ".txt", "w") as out:
        out.writelines(line + "\n" for line in layers(shapes))


def file_shapes(path):
    """Names and shapes of a safetensors file; these weights lack the batch counters."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    for name, row in header.items():
        yield name, row["shape"]
        if name.endswith("running_var"):
            yield name.replace("running_var", "num_batches_tracked"), []


for arch in NAMES:
    options = {"aux_logits": False, "init_weights": False} if arch == "googlenet" else {}
    model = torchvision.models.get_model(arch, weights=None, **options)
    write(arch, [(name, tensor.shape) for name, tensor in model.state_dict().items()])
for arch in TIMM:
    write(arch, [(name, tensor.shape) for name, tensor in timm.create_model(arch, num_classes=1000).state_dict().items()])
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../graph"))
import dense_peers

for arch, build in dense_peers.NETWORKS.items():
    names = {}
    for name, tensor in build(21).state_dict().items():
        if tensor.data_ptr() not in names.values() or tensor.dim() == 0:
            names[name] = tensor.data_ptr()
    shapes = build(21).state_dict()
    write(arch, [(name, shapes[name].shape) for name in names])
if len(sys.argv) > 1:
    write("resnet20", file_shapes(sys.argv[1]))
