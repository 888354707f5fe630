"""odd_pictures.py FOLDER: writes 30 pictures of odd sizes, of all kinds that Pillow writes and we read.
odd_pictures.py compare OURS THEIRS: two lists of `FILE: CLASS PROBABILITY` agree."""
import os
import sys


def odd_pictures(folder):
    import numpy
    from PIL import Image

    sizes = [(1, 1), (7, 3), (24, 24), (23, 25), (33, 65), (64, 31), (101, 99), (300, 7), (5, 211), (75, 50)]
    random = numpy.random.default_rng(7)
    os.makedirs(folder, exist_ok=True)
    for i in range(30):
        w, h = sizes[i % 10]
        coarse = random.integers(0, 256, (h // 4 + 1, w // 4 + 1, 4), numpy.uint8)
        noise = Image.fromarray(coarse, "RGBA").resize((w, h), Image.BICUBIC)
        noise.putalpha(255)
        rgb, name = noise.convert("RGB"), f"{folder}/{i:02}"
        exif = Image.Exif()
        exif[0x112] = i % 8 + 1
        if i < 6:
            rgb.save(f"{name}.png")
        elif i < 12:
            rgb.save(f"{name}.jpg", quality=90, exif=exif, progressive=i % 2 == 0)
        elif i < 15:
            rgb.convert("L").save(f"{name}.png")
        elif i < 18:
            rgb.convert("L").save(f"{name}.jpg", quality=95)
        elif i < 21:
            Image.fromarray(coarse, "RGBA").resize((w, h), Image.BICUBIC).save(f"{name}.png")
        elif i < 23:
            noise.convert("LA").save(f"{name}.png")
        elif i < 25:
            rgb.quantize(17).save(f"{name}.png", transparency=3)
        elif i < 27:
            deep = numpy.asarray(rgb.convert("L")).astype(numpy.uint16) * 256 + 77
            Image.fromarray(deep).save(f"{name}.png")
        else:
            rgb.convert("CMYK").save(f"{name}.jpg", quality=95)


def compare(ours, theirs):
    def lines(path):
        with open(path) as file:
            return [line.rsplit(" ", 2) for line in file]

    left, right = lines(ours), lines(theirs)
    if len(left) != len(right) or not left:
        sys.exit(f"{len(left)} lines and {len(right)}")
    worst = 0
    for (name, label, p), (other, their_label, q) in zip(left, right):
        p, q = float(p), float(q)
        worst = max(worst, abs(p - q) if label == their_label else abs(p + q - 1))
        if name != other or worst > 0.015:
            sys.exit(f"{name} {label} {p}, but {other} {their_label} {q}")
    print(f"{len(left)} pictures, largest difference {worst:.4f}")


if sys.argv[1] == "compare":
    compare(*sys.argv[2:])
else:
    odd_pictures(sys.argv[1])
