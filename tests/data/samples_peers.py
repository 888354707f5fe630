"""samples_peers.py SHOW_SAMPLES FOLDER: images of every kind, written by tifffile and Pillow, are decoded to the
samples that these two read back: bits, channels, layout, compression, byte order, bands. Prints how many."""
import itertools, subprocess, sys
import numpy as np, tifffile
from PIL import Image

show, folder = sys.argv[1:]
random = np.random.default_rng(11)
kinds = apart = 0


def decoded(path, channels, bands=()):
    out = subprocess.run([show, path, str(channels)] + [str(b) for b in bands], capture_output=True, check=True).stdout
    head, samples = out.split(b"\n", 1)
    h, w, c, depth = head.split()
    return np.frombuffer(samples, np.float32).reshape(int(h), int(w), int(c)), depth == b"deep"


def compare(path, wanted, channels=0, bands=(), most=0.0):
    global kinds, apart
    wanted = wanted if wanted.ndim == 3 else wanted[:, :, None]
    got, deep = decoded(path, channels, bands)
    kinds += 1
    good = got.shape == wanted.shape and np.abs(got.astype(np.float64) - wanted).max() <= most
    if not good or deep != (wanted.dtype.itemsize > 1):
        apart += 1
        print("not the same:", path, got.shape, wanted.shape, deep)


def values(dtype, h, w, c):
    if dtype == np.float32:
        return (random.normal(size=(h, w, c)) * 1000).astype(dtype)
    return random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, (h, w, c)).astype(dtype)


types, layouts = (np.uint8, np.uint16, np.int16, np.float32), ("strips", "tiles", "planes", "planes in tiles")
compressions = (None, "lzw", "zlib", "packbits", "zstd", "lzma")
for n, (dtype, layout, c) in enumerate(itertools.product(types, layouts, (1, 3, 4, 13))):
    h, w = 20 + n % 13, 17 + n % 7
    pixels, path = values(dtype, h, w, c), f"{folder}/{n}.tif"
    planes = layout.startswith("planes") and c > 1
    compression = compressions[n % 6]
    predictor = compression in ("lzw", "zlib") and n % 4 != 3
    tifffile.imwrite(path, pixels.transpose(2, 0, 1) if planes else pixels[:, :, 0] if c == 1 else pixels,
                     planarconfig="separate" if planes else None if c == 1 else "contig", compression=compression,
                     predictor=predictor, tile=(16, 16) if "tiles" in layout else None, bigtiff=n % 3 == 0,
                     photometric="rgb" if c == 3 else "minisblack", byteorder="<>"[n % 2], rowsperstrip=None
                     if "tiles" in layout else 7, metadata=None)
    read = tifffile.imread(path)
    compare(path, read.transpose(1, 2, 0) if planes else read)
    if c == 13:
        compare(path, pixels[:, :, [3, 2, 1]], 3, (4, 3, 2))
for n, (mode, c) in enumerate((("L", 1), ("RGB", 3), ("RGBA", 4), ("I;16", 1))):
    pixels = values(np.uint16 if mode == "I;16" else np.uint8, 9, 14, c)
    for ending, options in (("png", {}), ("tif", {"compression": "tiff_lzw"}), ("tif", {"compression": "tiff_deflate"})):
        path = f"{folder}/{mode[0]}{n}{options.get('compression', '')}.{ending}"
        Image.fromarray(pixels[:, :, 0] if c == 1 else pixels).save(path, **options)
        compare(path, np.asarray(Image.open(path)))
image = Image.fromarray(values(np.uint8, 16, 16, 3)).quantize(32)
image.save(f"{folder}/palette.tif")
compare(f"{folder}/palette.tif", np.asarray(Image.open(f"{folder}/palette.tif").convert("RGB")))
# Rounding of the JPEG library's colours, of which Pillow may have another version.
smooth = np.kron(values(np.uint8, 3, 3, 3), np.ones((16, 16, 1), np.uint8))
Image.fromarray(smooth).save(f"{folder}/jpeg.tif", compression="jpeg", quality=90)
compare(f"{folder}/jpeg.tif", np.asarray(Image.open(f"{folder}/jpeg.tif").convert("RGB")), most=2)
print(f"{kinds} kinds of images, {apart} not the same")
sys.exit(apart > 0)
