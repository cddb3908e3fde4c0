"""The settings that a prediction can turn: how they are written, which cause each is about, what a search tries.

Their names are the fields of the demonstrator's `Settings`: `token_budget` is `--token-budget` of `stallbook demo`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from stallbook.demo.settings import Settings
from stallbook.errors import StallbookError
from stallbook.predict.costs import COMPACT_OUTPUT
from stallbook.predict.vllm import VllmSettings

__all__ = ["KNOBS", "Change", "Knob", "changed", "fixes", "knobs_of", "needed", "parse", "written"]

Change = Mapping[str, Any]
S = TypeVar("S", bound="Settings | VllmSettings")


@dataclass(frozen=True)
class Knob:
    """One setting. causes: what turning it the right way is meant to remove. assumes: what a prediction takes for
    granted when it is turned. fix: the value that advice would give it, None where it has it already. tries: what a
    search tries; empty where it is not the search's to change (memory is bought, load is not chosen). moot: whether it
    does nothing in settings, so that a search does not offer it.
    """

    name: str
    read: Callable[[str], Any]
    causes: tuple[str, ...] = ()
    assumes: str = ""
    fix: Callable[[Any], Any] = lambda s: None
    tries: Callable[[Any], Sequence[Any]] = lambda s: ()
    moot: Callable[[Any], bool] = lambda s: False


def _flag(text: str) -> bool:
    words = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}
    return words[text.lower()]


def _sizes(text: str) -> tuple[int, ...]:
    return () if text in ("", "none") else tuple(int(part) for part in text.split(","))


def _covering(s: Settings) -> tuple[int, ...] | None:
    """Captured sizes up to the sequence limit, in the steps in which the present ones end."""
    sizes = list(s.capture_sizes) or [1]
    step = max(sizes[-1] - sizes[-2] if len(sizes) > 1 else 8, 1)
    while sizes[-1] < s.max_num_seqs:
        sizes.append(min(sizes[-1] + step, s.max_num_seqs))
    return tuple(sizes) if tuple(sizes) != s.capture_sizes else None


def _fewer(s: Settings) -> int | None:
    """As many sequences as the largest captured batch holds."""
    largest = max(s.capture_sizes, default=0)
    return largest if 0 < largest < s.max_num_seqs else None


def _budgets(s: Settings) -> list[int]:
    return [n for n in (64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048) if n >= s.max_num_seqs]


_OBJECTS: Final = (
    f"the history of objects leaves 7 objects a token, flat arrays none; output costs {COMPACT_OUTPUT:.0%} with them"
)
_ELSEWHERE: Final = "the tokenizer's process has a core of its own and slows the engine down by nothing"

KNOBS: Final = {
    k.name: k
    for k in (
        Knob(
            "token_budget", int, ("prefill",), fix=lambda s: 256 if s.token_budget > 384 else None, tries=_budgets,
            assumes="the law of a chunk holds at sizes that this run seldom or never had",
        ),
        Knob(
            "admit_watermark", float, ("preempt",), fix=lambda s: 0.1 if s.admit_watermark < 0.1 else None,
            tries=lambda s: (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3),
        ),
        Knob(
            "capture_sizes", _sizes, ("graph",), fix=_covering,
            tries=lambda s: [s.capture_sizes, *([_covering(s)] if _covering(s) else [])],
            assumes="a captured size that this run never used costs what the line through the others gives",
        ),
        Knob("gc_freeze", _flag, ("gc",), fix=lambda s: None if s.gc_freeze else True, tries=lambda s: (False, True)),
        Knob(
            "compact_history", _flag, ("gc",), _OBJECTS, lambda s: None if s.compact_history else True,
            lambda s: (False, True),
        ),
        Knob(
            "tokenize", str, ("tok",), _ELSEWHERE, lambda s: "process" if s.tokenize == "loop" else None,
            lambda s: ("loop", "process"),
        ),
        Knob("max_num_seqs", int, ("graph", "preempt"), fix=_fewer, tries=lambda s: (16, 24, 32, 40, 48)),
        Knob("admit_by", str, ("preempt",), tries=lambda s: ("free", "forecast")),
        Knob("decode_weight", float, ("prefill",), tries=lambda s: (1.0, 4.0, 16.0)),
        Knob("context_weight", float, ("prefill",), tries=lambda s: (0.0, 0.001, 0.002)),
        Knob("preemption", str, ("preempt",), tries=lambda s: ("swap", "recompute")),
        Knob("kv_blocks", int, ("preempt",), fix=lambda s: 2 * s.kv_blocks, assumes="more KV memory costs nothing"),
        Knob("rate", float, assumes="the same requests come closer together or further apart"),
    )
}  # fmt: skip


def knobs_of(settings: object) -> Mapping[str, Knob]:
    """The settings that can be turned on the engine whose settings these are."""
    from stallbook.predict import vllm_knobs

    return KNOBS if isinstance(settings, Settings) else vllm_knobs.KNOBS


def parse(text: str, knobs: Mapping[str, Knob] = KNOBS) -> tuple[str, Any]:
    """`NAME=VALUE` as it is typed, or an error that names near ones."""
    name, equals, value = text.partition("=")
    name = name.strip().lstrip("-").replace("-", "_")
    if name not in knobs:
        near = difflib.get_close_matches(name, knobs, 2)
        remedy = f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join(knobs)}"
        raise StallbookError("unknown-knob", f"{name!r:.60} is no setting that predict can turn", remedy)
    try:
        if not equals:
            raise ValueError
        return name, knobs[name].read(value.strip())
    except (KeyError, ValueError):
        command = "stallbook demo" if knobs is KNOBS else "vllm serve"
        told = f"write {name}=VALUE as `{command} --{name.replace('_', '-')}` takes it"
        raise StallbookError("bad-knob", f"{text!r:.80} has no value for {name}", told) from None


def changed(settings: S, change: Change) -> S:
    """The settings with a change; StallbookError where they do not go together."""
    try:
        return replace(settings, **change)
    except ValueError as error:
        raise StallbookError("bad-knob", f"{written(change)}: {error}", "choose other values") from None


def needed(settings: S, change: Change) -> Change:
    """A change without what is as it was, and without what does nothing beside the rest."""
    kept = {name: value for name, value in change.items() if value != getattr(settings, name)}
    for name in tuple(kept):
        moot, less = knobs_of(settings)[name].moot, {other: kept[other] for other in kept if other != name}
        try:
            both = changed(settings, kept), changed(settings, less)
        except StallbookError:
            continue
        if all(map(moot, both)):
            kept = less
    return kept


def fixes(settings: Settings | VllmSettings) -> list[Change]:
    """Every single fix that is not made already."""
    found = [(knob.name, knob.fix(settings)) for knob in knobs_of(settings).values()]
    return [{name: value} for name, value in found if value is not None]


def written(change: Change) -> str:
    """A change as it is typed; "as recorded" where there is none."""
    return ", ".join(f"{name}={_value(value)}" for name, value in change.items()) or "as recorded"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
