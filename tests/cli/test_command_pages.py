"""A docs page for each command, whose list of options is the command's own. STALLBOOK_UPDATE_GOLDEN=1 rewrites it."""

from __future__ import annotations

import inspect
import os
import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import typer
from typer.models import ArgumentInfo

from stallbook.cli import main
from stallbook.cli.application import COMMANDS, app
from stallbook.demo import Settings

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"<!-- options -->\n.*?<!-- end -->", re.DOTALL)
PAGES = (
    "demo", "report", "compare", "check", "gaps", "convert", "ladder", "accuracy", "advise", "attach", "predict",
    "study",
)  # fmt: skip


def signature(name: str) -> list[tuple[inspect.Parameter, Any, Any]]:
    """Each parameter of a command with its type and what it says of itself, as its source has them."""
    function = getattr(import_module(f"stallbook.cli.{name}"), name)
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    return [(p, *get_args(hints[p.name])[:2]) for p in parameters]


def takes(kind: Any, info: Any) -> str:
    """What a value looks like; nothing for a flag."""
    if info.metavar or kind is bool:
        return str(info.metavar or "")
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    return {int: "N", float: "X"}.get(kind, "TEXT")


def options(name: str) -> str:
    """The block between the markers: arguments, then options, as a table."""
    rows = ["| option | takes | does | default |", "|---|---|---|---|"]
    for parameter, kind, info in signature(name):
        if isinstance(info, ArgumentInfo):
            many = "..." if get_origin(kind) is list else ""
            rows.append(f"| `{info.metavar}{many}` | | {info.help} | |")
            continue
        # In an annotation, the first name is kept where a default would be.
        names = [info.default] if isinstance(info.default, str) else []
        flags = [*names, *(info.param_decls or ())] or [f"--{parameter.name.replace('_', '-')}"]
        told = [f"`{flag}`" for decl in flags for flag in decl.split("/")]
        default = parameter.default
        shown = "" if default is None or default is inspect.Parameter.empty or kind is bool else f"`{default}`"
        escaped = [cell.replace("|", "\\|") for cell in (takes(kind, info), info.help)]
        rows.append(f"| {', '.join(told)} | {escaped[0]} | {escaped[1]} | {shown} |")
    return "\n".join(["<!-- options -->", *rows, "<!-- end -->"])


@pytest.mark.parametrize("name", PAGES)
def test_the_page_lists_the_options(name: str) -> None:
    page = DOCS / f"{name}.md"
    text = page.read_text(encoding="utf-8")
    if os.environ.get("STALLBOOK_UPDATE_GOLDEN"):
        text = BLOCK.sub(lambda _: options(name), text)
        page.write_text(text, encoding="utf-8")
    assert options(name) in text


@pytest.mark.parametrize("name", PAGES)
def test_help_names_every_option_and_argument(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert "bool" not in out  # a flag takes no value
    told = set(re.findall(r"--[a-z][a-z-]+", out)) - {"--help"}
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert told == set(re.findall(r"`(--[a-z][a-z-]+)`", BLOCK.search(page)[0]))  # type: ignore[index]


@pytest.mark.parametrize("name", PAGES)
def test_every_option_says_what_it_does(name: str) -> None:
    assert all(info.help for _, _, info in signature(name))


def test_every_command_is_offered() -> None:
    group: Any = typer.main.get_command(app())
    assert set(PAGES) <= set(group.commands) <= set(COMMANDS)


def test_the_demo_has_a_flag_for_every_setting_with_the_same_default() -> None:
    defaults = {parameter.name: parameter.default for parameter, _, _ in signature("demo")}
    assert defaults.pop("rate") == "auto"
    assert defaults.pop("capture_sizes") == "1,2,4,8,16,24,32"
    settings = {field.name: field.default for field in fields(Settings)}
    assert settings.pop("rate") is None
    assert settings.pop("capture_sizes") == (1, 2, 4, 8, 16, 24, 32)
    assert {name: defaults[name] for name in settings} == settings
