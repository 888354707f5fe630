"""libamptrain's functions and structs, as in amptrain.h."""
import ctypes
import os
from typing import Any, Dict, Type

FOLDER = os.path.dirname(os.path.abspath(__file__))


def _find() -> str:
    """Beside this package, or where the system has it."""
    path = os.path.join(FOLDER, "lib", "libamptrain.so.0")
    return os.environ.get("AMPTRAIN_LIBRARY") or (path if os.path.exists(path) else "libamptrain.so.0")


class AmptrainError(Exception):
    """A failure; `status` is the exit code that amptrain(1) has for it."""
    status = 1


class UsageError(AmptrainError, ValueError):
    """Wrong arguments or settings."""
    status = 2


class BadData(AmptrainError):
    """An image that cannot be used."""
    status = 3


class NoDevice(AmptrainError):
    """No such device, or too little memory on it."""
    status = 4


class BadWeights(AmptrainError):
    """Weights that cannot be used."""
    status = 5


_EXCEPTIONS: Dict[int, Type[AmptrainError]] = {
    kind.status: kind for kind in (AmptrainError, UsageError, BadData, NoDevice, BadWeights)}

TASKS = {1: "classify", 2: "labels", 3: "value", 4: "segment", 5: "features"}


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int32), ("text", ctypes.c_char * 508)]


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("device", ctypes.c_char_p), ("memory_limit", ctypes.c_uint64),
                ("batch", ctypes.c_int32), ("threads", ctypes.c_int32), ("workers", ctypes.c_int32),
                ("settings", ctypes.POINTER(ctypes.c_char_p)), ("setting_count", ctypes.c_int32),
                ("data_folder", ctypes.c_char_p), ("cache_folder", ctypes.c_char_p),
                ("log", ctypes.c_void_p), ("log_context", ctypes.c_void_p)]


class Info(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("task", ctypes.c_int32), ("classes", ctypes.c_int32),
                ("height", ctypes.c_int32), ("width", ctypes.c_int32), ("channels", ctypes.c_int32),
                ("batch", ctypes.c_int32), ("arch", ctypes.c_char_p), ("device", ctypes.c_char_p)]


class Image(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("file", ctypes.c_char_p), ("bytes", ctypes.c_void_p),
                ("byte_count", ctypes.c_size_t), ("pixels", ctypes.c_void_p), ("height", ctypes.c_int32),
                ("width", ctypes.c_int32), ("channels", ctypes.c_int32), ("row_stride", ctypes.c_ssize_t),
                ("pixel_stride", ctypes.c_ssize_t), ("channel_stride", ctypes.c_ssize_t)]


class Mask(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("height", ctypes.c_int32), ("width", ctypes.c_int32),
                ("classes", ctypes.c_void_p), ("probabilities", ctypes.c_void_p)]


class Class(ctypes.Structure):
    _fields_ = [("index", ctypes.c_int32), ("probability", ctypes.c_float)]


def _load() -> ctypes.CDLL:
    """OpenMP's threads wait for each other without keeping the processors from others, unless the user has chosen
    how: libgomp reads that once, when it is loaded."""
    name = "GOMP_SPINCOUNT"
    chosen = name in os.environ or "OMP_WAIT_POLICY" in os.environ
    if not chosen:
        os.environ[name] = "1000"
    try:
        return ctypes.CDLL(_find())
    finally:
        if not chosen:
            del os.environ[name]


library = _load()
_handle, _pointer, _size = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
for _name, _result, _arguments in [
        ("amptrain_version", ctypes.c_char_p, []),
        ("amptrain_open_with", ctypes.c_int, [ctypes.c_char_p, _pointer, _pointer, _pointer]),
        ("amptrain_close", None, [_handle]),
        ("amptrain_info", ctypes.c_int, [_handle, _pointer]),
        ("amptrain_class_name", ctypes.c_char_p, [_handle, ctypes.c_int32]),
        ("amptrain_threshold", ctypes.c_double, [_handle, ctypes.c_int32]),
        ("amptrain_classify", ctypes.c_int,
         [_handle, _pointer, _size, ctypes.c_int32, _pointer, _pointer, _pointer]),
        ("amptrain_labels", ctypes.c_int, [_handle, _pointer, _size, _pointer, _pointer, _pointer]),
        ("amptrain_values", ctypes.c_int, [_handle, _pointer, _size, _pointer, _pointer, _pointer]),
        ("amptrain_segment", ctypes.c_int,
         [_handle, _pointer, _size, ctypes.c_int32, _pointer, _pointer, _pointer]),
        ("amptrain_mask_free", None, [_pointer]),
        ("amptrain_features", ctypes.c_int, [_handle, ctypes.c_char_p, _pointer, _pointer]),
        ("amptrain_embed", ctypes.c_int,
         [_handle, _pointer, _size, ctypes.c_char_p, _pointer, _pointer, _pointer])]:
    _function = getattr(library, _name)
    _function.restype, _function.argtypes = _result, _arguments


def version() -> str:
    return str(library.amptrain_version().decode())


def exception(error: Error) -> AmptrainError:
    return _EXCEPTIONS.get(error.status, AmptrainError)(error.text.decode("utf-8", "replace"))


def call(name: str, *arguments: Any) -> None:
    """Calls a function that returns a status, with an error behind its arguments."""
    error = Error()
    if getattr(library, name)(*arguments, ctypes.byref(error)):
        raise exception(error)
