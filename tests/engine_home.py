"""A home for the tests against a real engine: a virtual environment and a tiny random model, outside the checkout.

Both are made once; this project is installed anew each time. Needs the standard library alone, and the network the
first time.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import venv
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from pathlib import Path

__all__ = ["MODEL", "asked", "pip", "pip_with_torch", "prepare", "wheel"]

PROJECT = Path(__file__).parent.parent
MODEL = Path(__file__).parent / "tiny_model.py"
TORCH = "https://download.pytorch.org/whl/cpu"
"""Engines for CPUs want a build of torch (`+cpu`) that PyPI does not hold; a machine's own pip may know another."""

Install = Callable[[Path, Path, str], None]


def asked(told: str, version: str) -> tuple[Path, str]:
    """What the command line says: HOME and the engine's version."""
    parser = argparse.ArgumentParser(description=told)
    parser.add_argument("home", type=Path)
    parser.add_argument("--version", default=version, help="of the engine")
    given = parser.parse_args()
    return given.home.expanduser().resolve(), given.version


def prepare(home: Path, version: str, install: Install, *plugins: Path) -> None:
    """Make the environment and the model where they are missing; `install(python, home, version)` adds the engine.

    This project, with the tests' own `plugins`, is installed anew.
    """
    if sys.version_info[:2] != (3, 11) and not (home / "venv").exists():
        print(f"note: run here with Python 3.11; this is {sys.version.split()[0]}", file=sys.stderr)
    python = home / "venv" / "bin" / "python"
    if not (home / "ready").exists():
        if not python.exists():
            venv.create(home / "venv", with_pip=True)
        install(python, home, version)
    pip(python, "install", "--quiet", str(PROJECT))
    pip(python, "install", "--quiet", "--no-deps", "--force-reinstall", str(PROJECT), *map(str, plugins))
    if not (home / "tiny" / "config.json").exists():
        subprocess.run([python, MODEL, home / "tiny"], check=True)
    (home / "ready").touch()


def pip(python: Path, *words: str) -> None:
    """Run pip in the environment."""
    subprocess.run([python, "-m", "pip", "--disable-pip-version-check", *words], check=True)


def pip_with_torch(python: Path, *words: str) -> None:
    """Run pip; and where it does not find torch for CPUs, once more with PyTorch's own index."""
    try:
        pip(python, *words)
    except subprocess.CalledProcessError:
        print(f"again, with torch for CPUs from {TORCH}", file=sys.stderr, flush=True)
        pip(python, *words, "--extra-index-url", TORCH)


def wheel(folder: Path, name: str, version: str, files: Mapping[str, str]) -> Path:
    """A wheel of these modules, and of metadata: a stand-in for a package that is asked for and never used."""
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    held = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{one},sha256={_digest(text)},{len(text.encode())}\n" for one, text in held.items()]
    held[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\n"])
    with zipfile.ZipFile(path, "w") as packed:
        for one, text in held.items():
            packed.writestr(one, text)
    return path


def _digest(text: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
