"""Networks that amptrain trained, or whose weights it reads, applied to images.

    import amptrain
    network = amptrain.load("runs/pets")
    for prediction in network.predict(["cat.jpg", "dog.jpg"]):
        print(prediction.label, prediction.probability)

A thin layer above libamptrain, see amptrain(3). Training is the program's, which is installed beside it:
`amptrain -c FILE.ini`.
"""
import array
import contextlib
import ctypes
import glob
import os
import sys
import threading
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union, cast

from . import _library
from ._library import AmptrainError, BadData, BadWeights, NoDevice, UsageError

__all__ = ["load", "Network", "Prediction", "AmptrainError", "BadData", "BadWeights", "NoDevice", "UsageError",
           "__version__"]
__version__: str = _library.version()

Image = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, Any]
Images = Union[Image, Iterable[Image]]


class Prediction(NamedTuple):
    """A class, or a label, with its probability."""
    label: str
    index: int  # type: ignore[assignment]
    probability: float


def load(weights: Union[str, "os.PathLike[str]"], device: str = "auto", memory_limit: Optional[int] = None, *,
         batch: int = 0, threads: int = 0, workers: int = 0, settings: Optional[Mapping[str, Any]] = None,
         cache: Optional[str] = "auto") -> "Network":
    """Opens a run folder, a checkpoint, an exported file, or weights of another library.

    device: "auto", "cpu", "cuda", "cuda:1". memory_limit: bytes of device memory. batch: the most images that are
    computed at a time. settings: keys of amptrain.ini(5) that override those of the weights. cache: the folder in
    which a GPU's fastest algorithms are kept ("auto": the user's cache folder; None: nowhere).
    """
    return Network(weights, device, memory_limit, batch, threads, workers, settings or {}, cache)


class Network:
    """A trained network. Any thread may call it; calls wait for each other, and close() for all of them. Only the
    process that loaded it may."""

    def __init__(self, weights: Union[str, "os.PathLike[str]"], device: str, memory_limit: Optional[int],
                 batch: int, threads: int, workers: int, settings: Mapping[str, Any],
                 cache: Optional[str]) -> None:
        self._handle = ctypes.c_void_p()
        self._process = os.getpid()
        self._calls = 0
        self._called = threading.Condition()
        if device != "cpu":
            _load_gpu_libraries()
        if cache == "auto":
            home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
            cache = os.path.join(home, "amptrain") if os.path.isabs(home) else None
        words = [_terminated(f"{key}={value}".encode()) for key, value in settings.items()]
        options = _library.Options(
            size=ctypes.sizeof(_library.Options), device=_terminated(device.encode()),
            memory_limit=_whole("memory_limit", memory_limit or 0, 64), batch=_whole("batch", batch, 31),
            threads=_whole("threads", threads, 31), workers=_whole("workers", workers, 31),
            settings=(ctypes.c_char_p * len(words))(*words), setting_count=len(words),
            cache_folder=_path(cache) if cache else None)
        _library.call("amptrain_open_with", _path(weights), ctypes.byref(options),
                      ctypes.byref(self._handle))
        info = _library.Info(size=ctypes.sizeof(_library.Info))
        _library.library.amptrain_info(self._handle, ctypes.byref(info))
        self.task: str = _library.TASKS.get(info.task, "unknown")
        self.classes: List[str] = [_library.library.amptrain_class_name(self._handle, i).decode("utf-8", "replace")
                                   for i in range(info.classes)]
        self.height, self.width, self.channels = info.height, info.width, info.channels
        self._thresholds = [_library.library.amptrain_threshold(self._handle, i)
                            for i in range(info.classes if self.task == "labels" else 0)]
        self.batch, self.arch, self.device = info.batch, info.arch.decode(), info.device.decode()

    def predict(self, images: Images, top: Optional[int] = None, errors: str = "raise") -> List[Any]:
        """What the network says of each image: a Prediction, or a list of the `top` most probable ones; of labels,
        a list of those that are predicted; of a regression, a float.

        Images are paths, bytes of files, or arrays of H x W x C or H x W unsigned bytes; one of them may stand
        alone, an array if C is at most 4. errors="return" puts an
        exception in the place of an image that cannot be used.
        """
        listed = _Images(images)
        if self.task == "value":
            values = self._run("amptrain_values", listed, errors, 1)
            return listed.with_problems(list(values))
        if self.task == "labels":
            values = self._run("amptrain_labels", listed, errors, len(self.classes))
            return listed.with_problems([self._labels(values, i, top) for i in range(listed.count)])
        if self.task != "classify":
            raise UsageError(f"this network gives {self.task}, not classes")
        most = max(1, min(top or 1, len(self.classes)))
        classes = (_library.Class * (listed.count * most))()
        self._call("amptrain_classify", listed.array, listed.count, most, classes, listed.problems(errors))
        rows = [[self._prediction(c.index, c.probability) for c in classes[i * most:(i + 1) * most]]
                for i in range(listed.count)]
        return listed.with_problems(rows if top else [row[0] for row in rows])

    def embed(self, images: Images, layer: Optional[str] = None) -> Any:
        """Features of each image, float32 [images, features]: a numpy array, or without numpy a memoryview."""
        name = _terminated(layer.encode()) if layer else None
        features = ctypes.c_int64()
        self._call("amptrain_features", name, ctypes.byref(features))
        listed = _Images(images)
        values = array.array("f", bytes(4 * listed.count * features.value))
        room = (ctypes.c_float * len(values)).from_buffer(values) if len(values) else None
        self._call("amptrain_embed", listed.array, listed.count, name, room, None)
        return _shaped(values, (listed.count, features.value), "f")

    def segment(self, images: Images, probabilities: bool = False, flip: bool = False,
                errors: str = "raise") -> List[Any]:
        """The class of every pixel of each image: uint8 [height, width]; with `probabilities` those of all classes,
        float32 [height, width, classes], instead. Numpy arrays, or memoryviews without numpy. flip: each image is
        averaged with its mirror image."""
        listed = _Images(images)
        masks = (_library.Mask * listed.count)()
        for mask in masks:
            mask.size = ctypes.sizeof(_library.Mask)
        self._call("amptrain_segment", listed.array, listed.count,
                   (1 if probabilities else 0) | (2 if flip else 0), masks, listed.problems(errors))
        results: List[Any] = []
        for mask in masks:
            shape = (mask.height, mask.width) + ((len(self.classes),) if probabilities else ())
            where = mask.probabilities if probabilities else mask.classes
            results.append(_array_of(where, shape, "f" if probabilities else "B") if where else None)
            _library.library.amptrain_mask_free(ctypes.byref(mask))
        return listed.with_problems(results)

    def close(self) -> None:
        """Frees what the network holds; it cannot be used afterwards."""
        if self._process != os.getpid():
            return                      # a fork: the threads that would do it are the other process's
        with self._called:
            handle, self._handle = self._handle, ctypes.c_void_p()
            while self._calls > 0:
                self._called.wait()
        _library.library.amptrain_close(handle)

    def __enter__(self) -> "Network":
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()

    def __repr__(self) -> str:
        return f"<amptrain.Network {self.arch}: {self.task}, {len(self.classes)} classes, on {self.device}>"

    def __reduce__(self) -> Any:
        raise TypeError("a network cannot be copied or pickled: load it again")

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[ctypes.c_void_p]:
        if self._process != os.getpid():
            raise UsageError("the network belongs to the process that loaded it: load it again after a fork")
        with self._called:
            handle = self._handle
            if not handle:
                raise UsageError("the network is closed")
            self._calls += 1
        try:
            yield handle
        finally:
            with self._called:
                self._calls -= 1
                self._called.notify_all()

    def _call(self, function: str, *arguments: Any) -> None:
        with self._in_use() as handle:
            _library.call(function, handle, *arguments)

    def _run(self, function: str, images: "_Images", errors: str, width: int) -> Any:
        values = (ctypes.c_float * (images.count * width))()
        self._call(function, images.array, images.count, values, images.problems(errors))
        return values

    def _prediction(self, index: int, probability: float) -> Prediction:
        return Prediction(self.classes[index] if index >= 0 else "", index, probability)

    def _labels(self, values: Any, image: int, top: Optional[int]) -> List[Prediction]:
        count = len(self.classes)
        row = sorted(((values[image * count + k], k) for k in range(count)), key=lambda pair: (-pair[0], pair[1]))
        chosen = row[:top] if top else [pair for pair in row if pair[0] >= self._thresholds[pair[1]]]
        return [self._prediction(k, probability) for probability, k in chosen]


def _whole(name: str, number: int, bits: int) -> int:
    if not 0 <= number < 1 << bits:
        raise UsageError(f"{name} is from 0 to {(1 << bits) - 1}, not {number}")
    return number


def _terminated(words: bytes) -> bytes:
    """Words that C reads up to a null character."""
    if b"\0" in words:
        raise UsageError(f"{os.fsdecode(words)!r} has a null character")
    return words


def _path(path: Union[str, "os.PathLike[str]"]) -> bytes:
    return _terminated(os.fsencode(path))


def _array_of(address: int, shape: Tuple[int, ...], kind: str) -> Any:
    count = 1
    for length in shape:
        count *= length
    values = array.array(kind)
    values.frombytes((ctypes.c_ubyte * (count * values.itemsize)).from_address(address))
    return _shaped(values, shape, kind)


def _shaped(values: Any, shape: Tuple[int, ...], kind: Any) -> Any:
    """As a numpy array, or without numpy as a memoryview."""
    try:
        import numpy  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return memoryview(values).cast("B").cast(kind, shape)
    return numpy.frombuffer(values, dtype=numpy.float32 if kind == "f" else numpy.uint8).reshape(shape)


def _is_picture(images: Any) -> bool:
    """True for an array that is one image, H x W x C or H x W, and not an array of images."""
    shape = (getattr(images, "__array_interface__", None) or {}).get("shape", ())
    return len(shape) == 2 or (len(shape) == 3 and shape[2] <= 4)


class _Images:
    """A call's images, as the library takes them, with what must not be freed before its end."""

    def __init__(self, images: Images) -> None:
        alone = isinstance(images, (str, bytes, bytearray, memoryview, os.PathLike)) or _is_picture(images)
        listed: List[Image] = [images] if alone else list(cast(Iterable[Image], images))
        self.count = len(listed)
        self.array = (_library.Image * self.count)()
        self._kept: List[Any] = []
        self._problems: Any = None
        for image, to in zip(listed, self.array):
            to.size = ctypes.sizeof(_library.Image)
            self._take(image, to)

    def _take(self, image: Image, to: Any) -> None:
        if isinstance(image, (str, os.PathLike)):
            to.file = _path(image)
        elif isinstance(image, (bytes, bytearray)) or (isinstance(image, memoryview) and image.ndim == 1):
            kept = bytes(image)
            self._kept.append(kept)
            to.bytes, to.byte_count = ctypes.cast(ctypes.c_char_p(kept), ctypes.c_void_p), len(kept)
        else:
            self._take_pixels(image, to)

    def _take_pixels(self, image: Any, to: Any) -> None:
        interface: Optional[Dict[str, Any]] = getattr(image, "__array_interface__", None)
        if interface is None:
            view = memoryview(image)
            interface = {"shape": view.shape, "typestr": "|u1" if view.format == "B" else view.format,
                         "data": view.tobytes()}
        shape, strides, data = interface["shape"], interface.get("strides"), interface.get("data")
        if interface["typestr"] != "|u1" or len(shape) not in (2, 3) or data is None:
            raise UsageError(f"an image is an array of H x W x C or H x W unsigned bytes, not of shape {shape}, "
                             f"type {interface['typestr']}")
        if isinstance(data, bytes):
            self._kept.append(data)
            to.pixels = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p)
        else:
            self._kept.append(image)
            to.pixels = data[0]
        to.height, to.width, to.channels = shape[0], shape[1], shape[2] if len(shape) == 3 else 1
        if strides:
            to.row_stride, to.pixel_stride = strides[0], strides[1]
            to.channel_stride = strides[2] if len(strides) == 3 else 1

    def problems(self, errors: str) -> Any:
        if errors not in ("raise", "return"):
            raise UsageError(f'errors is "raise" or "return", not {errors!r}')
        if errors == "return":
            self._problems = (_library.Error * self.count)()
        return self._problems

    def with_problems(self, results: List[Any]) -> List[Any]:
        for i, problem in enumerate(self._problems or ()):
            if problem.status:
                results[i] = _library.exception(problem)
        return results


def _load_gpu_libraries() -> None:
    """Loads the vendor's packages of cuBLAS, cuDNN, NCCL and nvJPEG that lie where pip puts them, so that the
    library finds these, and the same ones as other packages of the process."""
    for folder in gpu_folders():
        for name in ("libcublasLt.so.*", "libcublas.so.*", "libcudnn.so.*", "libnvjpeg.so.*", "libnccl.so.*"):
            for path in glob.glob(os.path.join(folder, name)):
                try:
                    ctypes.CDLL(path)
                except OSError:
                    pass


def gpu_folders() -> List[str]:
    """The folders of shared libraries of NVIDIA's packages."""
    return [folder for path in sys.path if path
            for folder in sorted(glob.glob(os.path.join(path, "nvidia", "*", "lib")))]
