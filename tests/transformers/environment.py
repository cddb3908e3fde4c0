"""A home for the tests against a real transformers: `python3.11 environment.py HOME [--version 5.24.0]`.

Makes in HOME, once, a virtual environment with transformers and torch on the CPU and a tiny random model, some 1.5 GB,
outside the checkout; a later run finds them there. This project is installed anew each time.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from engine_home import MODEL, asked, pip, pip_with_torch, prepare  # noqa: E402

VERSION = "5.24.0"
TORCH = "2.13.0"
UNAVAILABLE = "unavailable"
"""A file that stays in HOME where these packages cannot be had."""


def install_transformers(python: Path, home: Path, version: str) -> None:
    """Install transformers with its server, and torch for CPUs."""
    print(f"installing transformers {version} into {home}: 200 MB, a minute or two", file=sys.stderr, flush=True)
    (home / UNAVAILABLE).touch()
    pip_with_torch(python, "install", "--quiet", f"torch=={TORCH}+cpu")
    pip(python, "install", "--quiet", f"transformers[serving]=={version}", "psutil", "aiohttp", "pytest")
    (home / UNAVAILABLE).unlink()


def endless(home: Path) -> None:
    """The model once more, as one that never ends an answer by itself."""
    if not (home / "endless" / "config.json").exists():
        subprocess.run([home / "venv" / "bin" / "python", MODEL, home / "endless", "--endless"], check=True)


if __name__ == "__main__":
    HOME, WANTED = asked(__doc__.split("\n\n")[0], VERSION)
    prepare(HOME, WANTED, install_transformers)
    endless(HOME)
