"""What hinders a recorder: a disk that fills up, a folder that cannot be written, code that raises.

Faults are planted in the engine's own processes, with a `sitecustomize` that they find by `PYTHONPATH`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from stallbook.record.base import OFF_VARIABLE

__all__ = ["CASES", "Case", "hindered"]

CASES: Final = (
    "a hook that raises", "a folder that cannot be written", "a disk that fills up", "the kill switch", "no adapter"
)  # fmt: skip
_PLANTED: Final = '''"""Planted by stallbook.conformance."""
import sys
from importlib.machinery import PathFinder

class _Plant:
    """Lets a module be loaded as ever, and changes it then."""

    def find_spec(self, name, path=None, target=None):
        if name != {module!r}:
            return None
        spec = PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            plant(module)
        spec.loader.exec_module = exec_module
        return spec

{plant}
if {module!r} in sys.modules:  # an adapter that loads it as Python starts
    plant(sys.modules[{module!r}])
else:
    sys.meta_path.insert(0, _Plant())
here = __file__.rpartition("/")[0]
behind = sys.path.index(here) + 1 if here in sys.path else 0  # one before it may have given way to this one
for other in sys.path[behind:]:
    spec = PathFinder.find_spec("sitecustomize", [other])
    if spec is not None:
        module = type(sys)("sitecustomize")
        module.__file__ = spec.origin
        spec.loader.exec_module(module)
        break
'''
_RAISES: Final = """
def plant(module):
    def raises(*args, **more):
        raise RuntimeError("planted")
    for name in ("WholeRecorder", "Recorder"):
        for kind in getattr(module, name).__mro__:
            for method in ("admit", "emit", "end", "finish", "join", "note", "step", "tail"):
                if method in vars(kind):
                    setattr(kind, method, raises)
"""
_SMALL: Final = """
def plant(module):
    module.CHUNK, module.BLOCK = 1 << 13, 1 << 12
"""
_DISK: Final = "16k"
"""One chunk so small, and the manifest."""


class Case:
    """One thing that goes wrong: where the log should go, what the processes' environment gets, what must be seen."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.log: Path | None = folder / "out" / "out.stall"
        self.environment: Mapping[str, str] = {}
        self.speaks = True
        """Whether the engine's output must tell of it."""


@contextmanager
def hindered(name: str, folder: Path) -> Iterator[Case | None]:
    """The case of that name, as long as it lasts; None where this machine does not allow it."""
    case = Case(name, folder)
    if name == "a hook that raises":
        case.environment = _planted(folder, "stallbook.record", _RAISES)
    elif name == "a folder that cannot be written":
        (folder / "out").touch()
    elif name == "the kill switch":
        case.environment, case.speaks = {OFF_VARIABLE: "0"}, False
    elif name == "no adapter":
        case.log, case.speaks = None, False
    if name != "a disk that fills up":
        yield case
        return
    case.environment = _planted(folder, "stallbook.record.spool", _SMALL)
    (folder / "out").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(folder / "out")]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield case
    finally:
        subprocess.run(["umount", "-l", folder / "out"], capture_output=True, check=False)


def _planted(folder: Path, module: str, plant: str) -> dict[str, str]:
    """An environment in which Python plants a fault where it loads `module`."""
    home = folder / "planted"
    home.mkdir()
    (home / "sitecustomize.py").write_text(_PLANTED.format(module=module, plant=plant))
    rest = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{home}{os.pathsep}{rest}" if rest else str(home)}
