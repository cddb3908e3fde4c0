"""Print every flag of the installed `transformers serve` with its default as JSON, as `--help` has them."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any


def main() -> None:
    """The last line of stdout is the document."""
    import typer
    from transformers.cli.transformers import app

    command: Any = app if hasattr(app, "commands") else typer.main.get_command(app)
    flags = {
        flag: one.default if isinstance(one.default, (bool, int, float, str)) else None
        for one in command.commands["serve"].params
        for flag in (*one.opts, *one.secondary_opts)
        if flag.startswith("--")
    }
    print(json.dumps({"version": version("transformers"), "flags": dict(sorted(flags.items()))}))


if __name__ == "__main__":
    main()
