"""Packs the program into a Python wheel, so that `pip install` puts it on the PATH.

    wheel.py PROGRAM VERSION DIRECTORY
"""

import base64
import hashlib
import pathlib
import platform
import sys
import zipfile

NAME = "lockkeeper"
SUMMARY = "Locks across processes and machines, for any command"


def main(program: str, version: str, directory: str) -> None:
    libc, libc_version = platform.libc_ver(program)
    # A program without a libc of the system runs everywhere; else it needs one that is at least as new as this one.
    system = f"manylinux_{libc_version.replace('.', '_')}" if libc == "glibc" else "manylinux_2_17"
    tag = f"py3-none-{system}_{platform.machine()}"
    info = f"{NAME}-{version}.dist-info"
    readme = pathlib.Path("crates/cli/README.md").read_text(encoding="utf-8")
    files = {
        f"{NAME}-{version}.data/scripts/{NAME}": pathlib.Path(program).read_bytes(),
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\nSummary: {SUMMARY}\n"
            f"License: MIT OR Apache-2.0\nDescription-Content-Type: text/markdown\n\n{readme}"
        ).encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: {NAME}\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
        f"{info}/licenses/LICENSE-MIT": pathlib.Path("LICENSE-MIT").read_bytes(),
        f"{info}/licenses/LICENSE-APACHE": pathlib.Path("LICENSE-APACHE").read_bytes(),
    }
    record = [f"{path},{digest(data)},{len(data)}" for path, data in files.items()] + [f"{info}/RECORD,,"]
    files[f"{info}/RECORD"] = ("\n".join(record) + "\n").encode()
    path = pathlib.Path(directory) / f"{NAME}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
            wheel.writestr(entry, data)
    print(path)


def digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
