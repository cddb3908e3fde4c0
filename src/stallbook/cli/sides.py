"""What the commands share that name two sets of runs: `A... --against B...`, and what they may be unlike in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from typer.core import TyperCommand

from stallbook.cli.common import partition_of
from stallbook.errors import StallbookError

if TYPE_CHECKING:
    from stallbook.compare import Sample

__all__ = ["Allow", "TwoSides", "allowed", "samples"]

AGAINST: Final = "--against"

Allow = Annotated[
    str | None,
    typer.Option(
        "--allow",
        metavar="KEY,...",
        help="Compare although these differ: engine, workload, settings, rules, boundary, abilities, machine, drift.",
    ),
]


class TwoSides(TyperCommand):
    """A command whose `--against` takes every name up to the next option, as a shell's `*` gives them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat `--against` before each name that follows it."""
        return super().parse_args(ctx, list(_spread(args)))


def _spread(args: Iterable[str]) -> Iterable[str]:
    """`--against b c --force` as `--against b --against c --force`."""
    left = iter(args)
    against = first = False
    for arg in left:
        if arg == "--":
            yield arg
            yield from left
            return
        if arg == AGAINST or arg.startswith(f"{AGAINST}="):
            yield arg
            against, first = True, arg == AGAINST
        elif arg.startswith("-") and len(arg) > 1:
            against = False
            yield arg
        elif against and not first:
            yield from (AGAINST, arg)
        else:
            first = False
            yield arg


def allowed(text: str | None) -> tuple[str, ...]:
    """The keys of `--allow`; they are checked where they are used."""
    return tuple(key.strip() for key in (text or "").split(",") if key.strip())


def samples(
    paths: Iterable[Path], rules: Literal["full", "post"], boundary: Literal["engine", "frontend", "client"],
    baseline: str | None, tell: Callable[[str], None],
) -> list[Sample]:  # fmt: skip
    """The sample of each log, which `tell` is told of; one log at a time is in memory."""
    from stallbook.compare import sampled

    told, seen = [], set()
    for path in paths:
        if (place := path.resolve()) in seen:
            remedy = "name each run once: twice the same run is no evidence"
            raise StallbookError("twice", "is named twice", remedy, str(path))
        seen.add(place)
        tell(path.name)
        told.append(sampled(partition_of(path, rules, baseline), boundary=boundary))
    return told
