"""The documents say what the code does: commands, causes, links, and every example that can be run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import stallbook as sb
from stallbook.causes import ORDER
from stallbook.cli.application import COMMANDS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_every_command_has_a_page_and_stands_in_the_readme() -> None:
    for name in COMMANDS:
        assert (ROOT / "docs" / f"{name}.md").is_file()
        assert f"[`stallbook {name}`](docs/{name}.md)" in README
    assert set(re.findall(r"`stallbook (\w+)`\]", README)) == set(COMMANDS)


def test_the_readme_names_every_cause_of_a_gap() -> None:
    table = README[README.index("| cause |") : README.index("[How it works]")]
    assert set(ORDER) - {"frontend", "network", "queue"} <= set(re.findall(r"`([a-z]+)`", table))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_readme_example_runs(tmp_path: Path) -> None:
    recorder, analysis = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", recorder + analysis], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "of the tail's time" in done.stdout
    p = sb.partition(sb.open(tmp_path / "my.stall"))
    assert len(p.gaps) == 19
    assert (p.reconcile.max_error_ns, p.reconcile.negative_parts) == (0, 0)


def test_the_interchange_example_is_a_log(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "interchange.md").read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines() if line.startswith("    {")]
    (tmp_path / "example.jsonl").write_text("\n".join(lines) + "\n")
    run = sb.open(tmp_path / "example.jsonl")
    assert not {k for k in run.notes if k.startswith("unknown")}, run.notes
    assert len(run.evictions.t0) == len(run.holds.t0) == len(run.pauses.t0) == len(run.probes.t) == 1


def test_the_makefile_and_the_readme_agree() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"demo", "test"} <= set(targets)
    assert re.findall(r"^    make (\w+)", README, re.MULTILINE) == ["demo", "test"]
    assert "make test" in (ROOT / ".ci" / "run").read_text()
