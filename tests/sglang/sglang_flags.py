"""Print every flag of the installed `python -m sglang.launch_server` with its default as JSON, as `--help` has them."""

from __future__ import annotations

import argparse
import json
from importlib.metadata import version


def main() -> None:
    """The last line of stdout is the document."""
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    flags = {
        flag: action.default if isinstance(action.default, (bool, int, float, str)) else None
        for action in parser._actions
        for flag in action.option_strings
        if flag.startswith("--")
    }
    print(json.dumps({"version": version("sglang"), "flags": dict(sorted(flags.items()))}))


if __name__ == "__main__":
    main()
