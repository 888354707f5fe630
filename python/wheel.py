"""wheel.py VERSION SOURCE BUILD OUT: makes OUT/amptrain-VERSION-py3-none-TAG.whl of a build folder, whose
wheel-library and wheel-program were linked for it. The libraries that they need are bundled, but for those of
auditwheel's list; the tag follows from the newest version of the C library's symbols among all files. Needs
Python's standard library, objdump and strip. Equal inputs give equal bytes."""
import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

# PEP 600 and auditwheel's policy: what every distribution has.
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libutil.so.1", "libz.so.1",
          "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
# The time of all members: SOURCE_DATE_EPOCH, or the first one that a zip file knows.
DATE = max((1980, 1, 1, 0, 0, 0), time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", 0)))[:6])


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def needed(path):
    return re.findall(r"NEEDED\s+(\S+)", run("objdump", "-p", path))


def found(path):
    """The files of all libraries that one needs, by name."""
    lines = re.findall(r"(\S+) => (\S+)", run("ldd", path))
    return {name: file for name, file in lines if file.startswith("/")}


def bundled(paths, own):
    libraries, queue = {}, list(paths)
    while queue:
        path = queue.pop()
        files = found(path)
        for name in needed(path):
            if name in SYSTEM or name in libraries or name == own:
                continue
            if name not in files:
                sys.exit(f"wheel.py: {path} needs {name}, which is not found")
            libraries[name] = files[name]
            queue.append(files[name])
    return libraries


def stripped(path, folder):
    copy = os.path.join(folder, os.path.basename(path))
    shutil.copyfile(os.path.realpath(path), copy)
    subprocess.run([os.environ.get("STRIP", "strip"), "--strip-unneeded", copy], check=True)
    with open(copy, "rb") as file:
        return file.read()


def tag(paths):
    versions = {}
    for path in paths:
        for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", run("objdump", "-T", path)):
            versions[(int(major), int(minor))] = path
    newest = max(versions)
    print("wheel.py: newest symbols of the C library: "
          f"GLIBC_{newest[0]}.{newest[1]}, in {os.path.basename(versions[newest])}")
    return f"manylinux_{newest[0]}_{newest[1]}_{platform.machine()}"


def read(path):
    with open(path, "rb") as file:
        return file.read()


def below(folder, to):
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(place, name)
            yield to + os.path.relpath(path, folder), path


METADATA = """Metadata-Version: 2.1
Name: amptrain
Version: {version}
Summary: Trains networks for images, and applies them: one program in C and CUDA, and its library
License-File: LICENSE
Requires-Python: >=3.8
Provides-Extra: numpy
Requires-Dist: numpy; extra == "numpy"
Provides-Extra: cu13
Requires-Dist: nvidia-cublas; extra == "cu13"
Requires-Dist: nvidia-cudnn-cu13; extra == "cu13"
Requires-Dist: nvidia-nccl-cu13; extra == "cu13"
Requires-Dist: nvidia-nvjpeg; extra == "cu13"
Classifier: Operating System :: POSIX :: Linux
Classifier: Typing :: Typed
Description-Content-Type: text/plain

{readme}"""


def main():
    version, source, build, out = sys.argv[1:5]
    binaries = {"amptrain/lib/libamptrain.so.0": os.path.join(build, "wheel-library"),
                "amptrain/bin/amptrain": os.path.join(build, "wheel-program")}
    libraries = bundled(binaries.values(), "libamptrain.so.0")
    kind = tag(list(binaries.values()) + list(libraries.values()))
    files = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, path in binaries.items():
            files[name] = stripped(path, folder)
        for name, path in sorted(libraries.items()):
            files["amptrain/lib/" + name] = stripped(path, folder)
    for name in ("__init__.py", "_library.py", "py.typed"):
        files["amptrain/" + name] = read(os.path.join(source, "python/amptrain", name))
    for name, path in below(os.path.join(source, "conf/models"), "amptrain/share/amptrain/models/"):
        files[name] = read(path)
    for name, path in below(os.path.join(source, "data/digits"), "amptrain/share/amptrain/data/digits/"):
        files[name] = read(path)
    for name in sorted(os.listdir(os.path.join(source, "conf"))):
        if name.endswith(".ini"):
            files["amptrain/share/amptrain/conf/" + name] = read(os.path.join(source, "conf", name))
    info = f"amptrain-{version}.dist-info/"
    files[f"amptrain-{version}.data/scripts/amptrain"] = read(os.path.join(source, "python/amptrain-script"))
    files[info + "LICENSE"] = read(os.path.join(source, "LICENSE"))
    readme = read(os.path.join(source, "README")).decode()
    files[info + "METADATA"] = METADATA.format(version=version, readme=readme).encode()
    files[info + "WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: amptrain ({version})\nRoot-Is-Purelib: false\n"
                             f"Tag: py3-none-{kind}\n").encode()
    path = os.path.join(out, f"amptrain-{version}-py3-none-{kind}.whl")
    record = ""
    with zipfile.ZipFile(path + ".part", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name, data in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(data)}\n"
            add(wheel, name, data)
        add(wheel, info + "RECORD", (record + info + "RECORD,,\n").encode())
        sizes = sorted(((entry.compress_size, entry.filename) for entry in wheel.infolist()), reverse=True)
    os.replace(path + ".part", path)
    print(f"{path}: {os.path.getsize(path) / 1e6:.1f} MB, of these "
          + ", ".join(f"{os.path.basename(name)} {size / 1e6:.1f}" for size, name in sizes[:5]))


def add(wheel, name, data):
    entry = zipfile.ZipInfo(name, DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = 3
    executable = "/bin/" in name or "/scripts/" in name or "/lib/" in name
    entry.external_attr = (0o100755 if executable else 0o100644) << 16
    wheel.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)


main()
