"""pretrained_peers.py list: the networks, LIBRARY:ARCH, that torchvision, timm and transformers share with
us.
pretrained_peers.py make FOLDER IMAGES.npy LIBRARY:ARCH...: in FOLDER, each library's network with random
weights and with statistics that fit IMAGES, as users find it: LIBRARY-ARCH.pth, or for transformers the
folder LIBRARY-ARCH; and its logits, LIBRARY-ARCH.npy.
pretrained_peers.py check FOLDER LIBRARY:ARCH...: LIBRARY-ARCH.ours.npy are those logits, and the library
loads LIBRARY-ARCH.safetensors strictly, with the same numbers.
pretrained_peers.py evil FOLDER: files that would run code if Python loaded them: it would make the file ran;
and files that are wrong otherwise."""
import sys

import numpy
import torch

TORCHVISION = """alexnet convnext_tiny convnext_small convnext_base densenet121 efficientnet_b0
efficientnet_v2_s efficientnet_v2_m googlenet mobilenet_v2 mobilenet_v3_large mobilenet_v3_small
regnet_y_400mf regnet_y_8gf regnet_y_16gf regnet_y_32gf resnet18 resnet34 resnet50 resnet101 resnet152
resnext50_32x4d shufflenet_v2_x1_0 squeezenet1_1 swin_t swin_s swin_b vgg11_bn vgg16 vgg16_bn vit_b_16
vit_b_32 vit_l_16 vit_h_14 wide_resnet50_2""".split()
TIMM = {"convnext_tiny": "convnext_tiny", "convnext_small": "convnext_small",
        "convnext_base": "convnext_base", "densenet121": "densenet121", "efficientnet_b0": "efficientnet_b0",
        "mobilenet_v2": "mobilenetv2_100", "mobilenet_v3_large": "mobilenetv3_large_100",
        "mobilenet_v3_small": "mobilenetv3_small_100", "mobilenetv4_conv_small": "mobilenetv4_conv_small",
        "mobilenetv4_conv_medium": "mobilenetv4_conv_medium", "regnet_y_400mf": "regnety_004",
        "regnet_y_8gf": "regnety_080_tv", "regnet_y_16gf": "regnety_160", "regnet_y_32gf": "regnety_320",
        "resnet18": "resnet18", "resnet34": "resnet34", "resnet50": "resnet50", "resnet101": "resnet101",
        "resnet152": "resnet152", "resnet50d": "resnet50d", "resnext50_32x4d": "resnext50_32x4d",
        "vgg11_bn": "vgg11_bn", "vgg16": "vgg16", "vgg16_bn": "vgg16_bn",
        "wide_resnet50_2": "wide_resnet50_2", "swin_t": "swin_tiny_patch4_window7_224",
        "swin_s": "swin_small_patch4_window7_224", "swin_b": "swin_base_patch4_window7_224",
        "vit_b_16": "vit_base_patch16_224", "vit_b_32": "vit_base_patch32_224",
        "vit_l_16": "vit_large_patch16_224", "vit_h_14": "vit_huge_patch14_224"}
TIMM.update({name: name for name in """convnextv2_tiny deit3_small_patch16_224 deit3_base_patch16_224
vit_tiny_patch16_224 vit_small_patch16_224 vit_small_patch14_dinov2 vit_base_patch14_dinov2
vit_small_patch14_reg4_dinov2 deit_tiny_distilled_patch16_224 deit_small_distilled_patch16_224
deit_base_distilled_patch16_224""".split()})
SMALL = dict(hidden_size=384, num_attention_heads=6)
HF = {"resnet18": ("ResNet", dict(depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512], layer_type="basic")),
      "resnet34": ("ResNet", dict(depths=[3, 4, 6, 3], hidden_sizes=[64, 128, 256, 512], layer_type="basic")),
      "resnet50": ("ResNet", {}), "resnet101": ("ResNet", dict(depths=[3, 4, 23, 3])),
      "resnet152": ("ResNet", dict(depths=[3, 8, 36, 3])),
      "convnext_tiny": ("ConvNext", {}), "convnext_small": ("ConvNext", dict(depths=[3, 3, 27, 3])),
      "convnext_base": ("ConvNext", dict(depths=[3, 3, 27, 3], hidden_sizes=[128, 256, 512, 1024])),
      "convnextv2_tiny": ("ConvNextV2", {}),
      "regnet_y_8gf": ("RegNet", dict(depths=[2, 4, 10, 1], hidden_sizes=[224, 448, 896, 2016],
                                      groups_width=56)),
      "regnet_y_16gf": ("RegNet", dict(depths=[2, 4, 11, 1], hidden_sizes=[224, 448, 1232, 3024],
                                       groups_width=112)),
      "regnet_y_400mf": ("RegNet", dict(depths=[1, 3, 6, 6], hidden_sizes=[48, 104, 208, 440],
                                        groups_width=8)),
      "vit_tiny_patch16_224": ("ViT", dict(hidden_size=192, num_attention_heads=3, intermediate_size=768)),
      "vit_small_patch16_224": ("ViT", dict(intermediate_size=1536, **SMALL)), "vit_b_16": ("ViT", {}),
      "vit_b_32": ("ViT", dict(patch_size=32)),
      "vit_l_16": ("ViT", dict(hidden_size=1024, num_attention_heads=16, num_hidden_layers=24,
                               intermediate_size=4096)),
      "deit_tiny_distilled_patch16_224": ("DeiT", dict(hidden_size=192, num_attention_heads=3,
                                                       intermediate_size=768)),
      "deit_small_distilled_patch16_224": ("DeiT", dict(intermediate_size=1536, **SMALL)),
      "deit_base_distilled_patch16_224": ("DeiT", {}),
      "vit_h_14": ("ViT", dict(patch_size=14, hidden_size=1280, num_attention_heads=16,
                               num_hidden_layers=32, intermediate_size=5120)),
      "vit_small_patch14_dinov2": ("Dinov2", SMALL), "vit_base_patch14_dinov2": ("Dinov2", {}),
      "vit_small_patch14_reg4_dinov2": ("Dinov2WithRegisters", dict(patch_size=14, **SMALL)),
      "swin_t": ("Swin", {}), "swin_s": ("Swin", dict(depths=[2, 2, 18, 2])),
      "swin_b": ("Swin", dict(embed_dim=128, depths=[2, 2, 18, 2], num_heads=[4, 8, 16, 32]))}
NETWORKS = {"torchvision": TORCHVISION, "timm": list(TIMM), "hf": list(HF)}


def network(library, arch):
    if library == "torchvision":
        import torchvision

        apart = {"aux_logits": False} if arch == "googlenet" else {}
        return torchvision.models.get_model(arch, weights=None, **apart)
    if library == "timm":
        import timm

        apart = {"img_size": 224} if "dinov2" in arch else {}
        return timm.create_model(TIMM[arch], num_classes=1000, **apart)
    import transformers

    kind, settings = HF[arch]
    config = getattr(transformers, kind + "Config")(num_labels=1000, **settings)
    return classifier_of(kind)(config)


def classifier_of(kind):
    import transformers

    heads = "ForImageClassificationWithTeacher" if kind == "DeiT" else "ForImageClassification"
    return getattr(transformers, kind + heads)


def logits_of(net, pixels):
    found = net(pixels)
    return found if isinstance(found, torch.Tensor) else found.logits


def randomise(net, pixels):
    for key, value in net.state_dict().items():
        if "layer_scale" in key or key.endswith("gamma"):
            value.uniform_()
        elif key == "classifier.weight" and "dinov2" in type(net).__name__.lower():
            value[:, value.shape[1] // 2:] = 0      # of the mean of the patches, which ours does not read
        elif "mask_token" in key or not value.is_floating_point():
            pass
        elif "token" in key or "pos" in key or not value.any():
            value.add_(0.1 * torch.randn(value.shape))
        elif value.dim() == 1 and "running" not in key:
            value.add_(0.1 * torch.randn(value.shape))
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 0.9
    logits_of(net.train(), pixels)
    net.eval()


def write(library, net, path):
    """torchvision's as they are; timm's as its training script saves them; transformers' as it saves them."""
    if library == "hf":
        net.save_pretrained(path)
    elif library == "timm":
        state = {"module." + key: value for key, value in net.state_dict().items()}
        torch.save({"state_dict": state, "epoch": 3, "arch": "x"}, path + ".pth")
    else:
        torch.save(net.state_dict(), path + ".pth")


def make(folder, images, *names):
    pixels = torch.from_numpy(numpy.load(images).transpose(0, 3, 1, 2)) / 255
    mean, std = (torch.tensor(three).view(1, 3, 1, 1) for three in ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3)))
    pixels = (pixels - mean) / std
    for name in names:
        torch.manual_seed(1)
        library, arch = name.split(":")
        net = network(library, arch)
        with torch.no_grad():
            randomise(net, pixels)
            numpy.save(f"{folder}/{library}-{arch}.npy", logits_of(net, pixels).numpy())
        write(library, net, f"{folder}/{library}-{arch}")


def state_of(library, path):
    from safetensors.torch import load_file

    if library == "hf":
        return load_file(path + "/model.safetensors")
    state = torch.load(path + ".pth", weights_only=False)
    if library == "torchvision":
        return state
    return {key[len("module."):]: value for key, value in state["state_dict"].items()}


def load_strictly(library, arch, path, tensors):
    """transformers reads older names than its own, if the configuration is beside them."""
    if library != "hf":
        network(library, arch).load_state_dict(tensors, strict=True)
        return
    import os
    import shutil

    os.makedirs(path + ".back", exist_ok=True)
    shutil.copy(path + "/config.json", path + ".back")
    shutil.copy(path + ".safetensors", path + ".back/model.safetensors")
    _, found = classifier_of(HF[arch][0]).from_pretrained(path + ".back", output_loading_info=True)
    if any(found.values()):
        raise ValueError(f"{path}: {found}")


def fold(state):
    """The class token's position is added to it, as in networks without one."""
    for key in [key for key in state if key.endswith("register_tokens")]:
        token = key.replace("register_tokens", "cls_token")
        position = key.replace("register_tokens", "position_embeddings")
        state[token] = state[token] + state[position][:, :1]
        state[position] = torch.cat([0 * state[position][:, :1], state[position][:, 1:]], 1)
    return state


def check(folder, *names):
    from safetensors.torch import load_file

    worst = []
    for name in names:
        library, arch = name.split(":")
        path = f"{folder}/{library}-{arch}"
        theirs, ours = numpy.load(path + ".npy"), numpy.load(path + ".ours.npy")
        largest = numpy.abs(theirs).max()
        off = numpy.abs(ours - theirs).max() / largest
        tensors, original = load_file(path + ".safetensors"), fold(state_of(library, path))
        load_strictly(library, arch, path, tensors)
        unlike = [key for key, value in original.items() if not torch.equal(tensors[key], value)]
        print(f"{name}: off by {off:.2g} of the largest logit, {largest:.3g}; {len(tensors)} tensors"
              + (f", {len(unlike)} of which differ: {unlike[:3]}" if unlike else ""))
        if not off <= 1e-4 or unlike:
            worst.append(name)
    if worst:
        sys.exit("wrong: " + " ".join(worst))


class Call:
    """What a pickle calls when it is loaded."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def evil(folder):
    import builtins
    import functools
    import importlib
    import os
    import pathlib
    import pickle
    import runpy
    import shutil
    import subprocess
    import zipfile

    import torchvision

    touch = f"open({folder + '/ran'!r}, 'w')"
    calls = {"system": Call(os.system, f"touch {folder}/ran"), "popen": Call(os.popen, f"touch {folder}/ran"),
             "subprocess": Call(subprocess.Popen, ["touch", folder + "/ran"]),
             "eval": Call(builtins.eval, touch), "exec": Call(builtins.exec, touch),
             "open": Call(builtins.open, folder + "/ran", "w"),
             "import": Call(importlib.import_module, "antigravity"),
             "runpy": Call(runpy.run_path, folder + "/ran.py"), "rmtree": Call(shutil.rmtree, folder),
             "partial": Call(functools.partial, os.system, "true"),
             "nested": Call(pickle.loads, pickle.dumps(Call(os.system, f"touch {folder}/ran"))),
             "path": Call(pathlib.Path, folder), "attribute": Call(getattr, "x", "upper")}
    state = torchvision.models.squeezenet1_1(weights=None).state_dict()
    for name, call in calls.items():
        torch.save({"state_dict": state, "extra": call}, f"{folder}/{name}.pth")
    torch.save(torchvision.models.squeezenet1_1(weights=None), f"{folder}/module.pth")
    torch.save({"state_dict": state}, f"{folder}/old.pth", _use_new_zipfile_serialization=False)
    missing = {key: value for key, value in state.items() if "3.squeeze" not in key}
    torch.save(missing, f"{folder}/missing.pth")
    torch.save({**state, "features.3.squeeze.bias": torch.zeros(7)}, f"{folder}/shape.pth")
    torch.save({**state, "extra.weight": torch.zeros(7)}, f"{folder}/surplus.pth")
    torch.save({"optimizer": {"lr": 0.1}}, f"{folder}/none.pth")
    torch.save({key: value.to(torch.complex64) for key, value in state.items()}, f"{folder}/complex.pth")
    torch.save({"model": torch.nn.Linear(3, 4).state_dict()}, f"{folder}/linear.pth")
    torch.save({"a.weight": torch.eye(3).to_sparse()}, f"{folder}/sparse.pth")
    with zipfile.ZipFile(f"{folder}/zip.pth", "w") as archive:
        archive.writestr("notes.txt", "not weights")
    open(f"{folder}/index.safetensors.index.json", "w").write('{"weight_map": {"a": "../a.safetensors"}}')
    whole = open(f"{folder}/missing.pth", "rb").read()
    for part in 0, 1, 50, 99:
        open(f"{folder}/half{part}.pth", "wb").write(whole[:len(whole) * part // 100])
    open(f"{folder}/text.pth", "w").write("not weights\n")
    open(f"{folder}/page.pth", "w").write("<!DOCTYPE html>\n<title>404</title>\n")


def show():
    for library, names in NETWORKS.items():
        for arch in names:
            print(f"{library}:{arch}")


torch.set_num_threads(2)
{"list": show, "make": make, "check": check, "evil": evil}[sys.argv[1]](*sys.argv[2:])
