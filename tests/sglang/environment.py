"""A home for the tests against a real SGLang: `python3.11 environment.py HOME [--version 0.5.23]`.

Makes in HOME, once, a virtual environment with SGLang on the CPU and a tiny random model, some 3 GB, outside the
checkout; a later run finds them there. This project is installed anew each time. See docs/sglang.md.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from engine_home import asked, pip, pip_with_torch, prepare, wheel  # noqa: E402

VERSION = "0.5.23"
TORCH, TORCHVISION = "2.13.0", "0.28.0"
PACKAGES = (
    "IPython", "accelerate", "aiohttp", "blobfile==3.0.0", "build", "compressed-tensors==0.18.0", "datasets", "distro",
    "easydict", "einops", "fastapi", "gguf", "interegular", "llguidance<2", "mistral_common", "msgspec", "ninja",
    "numba==0.65.1", "nvidia-ml-py", "openai-harmony==0.0.4", "openai==2.8.0", "orjson", "outlines==0.1.11",
    "packaging", "partial_json_parser", "pillow", "prometheus-client", "psutil", "pybase64", "pytest",
    "python-dateutil", "python-multipart", "pyzmq", "regex", "requests", "scipy", "sentencepiece==0.2.1",
    "setproctitle", "soundfile", "tiktoken", "tqdm", "transformers==5.19.0", "triton", "uvicorn", "uvloop",
    "watchfiles", "xgrammar==0.2.7", "xxhash", "zstandard",
)  # fmt: skip
"""What SGLang imports on its way up; what it asks for beyond these is for GPUs."""
STUB = """def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def stub(*args, **more):
        raise RuntimeError(f"a stand-in was called: {name}")

    stub.__name__ = name
    return stub
"""
STUBS = {
    "sgl_kernel": {"sgl_kernel/__init__.py": STUB},
    "torchaudio": {f"torchaudio/{name}__init__.py": STUB for name in ("", "functional/", "transforms/")},
}
"""Packages without a build for CPUs: imported, and never called there."""
OPERATORS = """import torch as _torch

try:
    _library = _torch.library.Library("torchvision", "DEF")
    _library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _library.define(
        "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
        "int sampling_ratio, bool aligned) -> Tensor"
    )
except Exception:
    pass
"""
"""Before torchvision's own code: PyPI's build does not load its operators beside a torch for CPUs."""


def install_sglang(python: Path, home: Path, version: str) -> None:
    """Install SGLang without its packages for GPUs, and stand-ins for what it imports of these."""
    print(f"installing sglang {version} into {home}: some minutes", file=sys.stderr, flush=True)
    pip(python, "install", "--quiet", "--upgrade", "pip")
    pip_with_torch(python, "install", "--quiet", f"torch=={TORCH}+cpu")
    pip(python, "install", "--quiet", "--no-deps", f"sglang=={version}", f"torchvision=={TORCHVISION}")
    pip(python, "install", "--quiet", *PACKAGES)
    for name, files in STUBS.items():
        pip(python, "install", "--quiet", "--no-deps", str(wheel(home, name, "0", files)))
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True).stdout.strip()
    vision = Path(site) / "torchvision"
    if not (text := (vision / "__init__.py").read_text()).startswith(OPERATORS):
        (vision / "__init__.py").write_text(OPERATORS + text)
    (vision / "_meta_registrations.py").write_text("")


if __name__ == "__main__":
    prepare(*asked(__doc__.split("\n\n")[0], VERSION), install_sglang)
