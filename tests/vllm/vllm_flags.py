"""Print every flag of the installed `vllm serve` with its default as JSON, as `--help=all` prints them."""

from __future__ import annotations

import json
from importlib.metadata import version


def main() -> None:
    """The last line of stdout is the document."""
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = ServeSubcommand().subparser_init(FlexibleArgumentParser().add_subparsers())
    flags = {
        flag: action.default if isinstance(action.default, (bool, int, float, str)) else None
        for action in parser._actions
        for flag in action.option_strings
        if flag.startswith("--")
    }
    print(json.dumps({"version": version("vllm").split("+")[0], "flags": dict(sorted(flags.items()))}))


if __name__ == "__main__":
    main()
