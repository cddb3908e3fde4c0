"""What may know what: the stages of the design, enforced on the imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "stallbook"

DATA = ("errors", "run", "causes")
CORE = (*DATA, "intervals", "fast", "gaps", "timeline", "baseline", "charges", "ledger", "away", "spans", "abilities")
READ = (*CORE, "partition", "waits", "prompts", "tally", "counters", "stalls", "beyond", "pieces")
ANSWERS = ("compare", "check", "advise")
RECORDING = ("record", "notes", "adapters")
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "errors": (),
    "digits": (),
    "causes": (),
    "run": ("errors", "tables", "faces"),  # inside the methods that show it alone
    "tables": ("errors", "run"),
    "faces": (*CORE, "partition", "palette"),
    "record": (),
    "notes": ("record",),
    "log": ("errors", "run", "record", "notes"),
    "client": ("errors", "run"),
    "intervals": ("run",),
    "fast": ("run",),
    "gaps": ("run", "fast"),
    "timeline": ("run", "intervals", "fast"),
    "baseline": ("run",),
    "charges": ("run", "causes", "intervals", "timeline", "baseline"),
    "ledger": ("run", "intervals", "fast", "timeline", "charges"),
    "away": ("run", "causes", "intervals", "gaps"),
    "spans": ("run", "intervals", "gaps", "ledger", "away"),
    "abilities": ("run", "causes", "charges"),
    "partition": (*CORE, "frames", "tables", "faces"),  # inside the methods that show it alone
    "waits": (*CORE, "partition"),
    "prompts": (*CORE, "partition"),
    "tally": (*CORE, "partition"),
    "counters": ("run", "tally"),
    "stalls": (*CORE, "partition", "waits", "tally", "counters"),
    "beyond": (*CORE, "partition", "waits", "tally"),
    "compare": READ,
    "check": (*READ, "compare", "digits"),
    "pieces": (*CORE, "partition"),
    "frames": READ,
    "palette": ("causes",),
    "overtime": READ,
    "scene": (*READ, "overtime"),
    "incidents": READ,
    "advise": (*READ, "incidents"),
    "report": (*READ, *ANSWERS, "predict", "digits", "frames", "faces", "palette", "overtime", "scene", "incidents"),
    "adapters": ("record", "notes"),
    "conformance": (*READ, "digits", "log", "record"),
    "demo": ("errors", "record"),
    "study": (*CORE, "digits", "demo", "log", "tally", "counters", "partition", "compare"),
    "predict": (*READ, *ANSWERS, "demo"),  # its scheduler, settings and workload; never its executor
    "inject": ("errors", "run", "causes", "demo", "record", "partition"),
    "cli": (*READ, *ANSWERS, "predict", "frames", "report", "demo", "study", "inject", "log", "client", *RECORDING),
}
"""For each place what it may import of this package, itself apart. `report` derives nothing; only `cli` knows all."""

ENGINE_SAFE = {"rich", "typer", "numpy", "pyarrow", "pandas", "polars", "numba", "tokenizers", "threadpoolctl"}
"""What must not be loaded into an engine that only records."""


def place(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Places of this package that a file imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [node.module] if node.module != "stallbook" else [f"stallbook.{a.name}" for a in node.names]
        else:
            assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}: imports are absolute"
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("stallbook.")}
    return found - {"__version__"}


FILES = [p for p in sorted(SOURCE.rglob("*.py")) if p.parent != SOURCE or p.stem not in ("__init__", "__main__")]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_knows_only_what_stands_before_it(path: Path) -> None:
    allowed = {place(path), *MAY_IMPORT[place(path)]}
    assert imported(path) <= allowed, f"{path.name} may import {sorted(allowed)}"


@pytest.mark.parametrize("name", ["run", "partition"])
def test_views_are_loaded_when_asked_for(name: str) -> None:
    """What a run or a partition shows of itself is no part of it."""
    top = [node for node in ast.parse((SOURCE / f"{name}.py").read_text()).body if isinstance(node, ast.ImportFrom)]
    assert not {node.module for node in top} & {f"stallbook.{view}" for view in ("frames", "tables", "faces")}


def test_every_place_has_a_rule() -> None:
    assert {place(p) for p in FILES} == set(MAY_IMPORT)


def test_the_recorder_needs_the_standard_library_alone() -> None:
    for path in (SOURCE / "record").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                top = name.split(".")[0]
                assert top == "stallbook" or top in sys.stdlib_module_names, f"{path.name} imports {name}"


@pytest.mark.parametrize(
    "module",
    [
        "stallbook.record",
        "stallbook.adapters.vllm.engine",
        "stallbook.adapters.sglang.scheduler",
        "stallbook.adapters.transformers.manager",
    ],
)
def test_recording_loads_nothing_else(module: str) -> None:
    code = f"import sys, {module}; print(*{{m.split('.')[0] for m in sys.modules}})"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not loaded & ENGINE_SAFE


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 320, f"{path.name} is long"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            length = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
            assert length <= 50, f"{path.name}: {node.name} has {length} lines"
