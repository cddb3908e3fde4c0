from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from study_made import Silent, fake_tools

from stallbook.demo import Settings
from stallbook.errors import StallbookError
from stallbook.study import run as study_run
from stallbook.study.folder import Folder, read_study
from stallbook.study.plan import Cell
from stallbook.study.run import Spec, execute
from stallbook.study.rungs import RUNGS
from stallbook.study.tables import build, write

SPEC = Spec(RUNGS[:3], (1, 2), seconds=5.0)


def run(
    folder: Path, spec: Spec = SPEC, *, force: bool = False, launched: list[tuple[str, Settings]] | None = None
) -> Silent:
    watcher = Silent()
    with Folder.claim(folder, force=force) as claimed:
        write(claimed, execute(spec, claimed, fake_tools(launched), watcher), "post")
    return watcher


def test_a_study_runs_every_cell_at_one_measured_rate(tmp_path: Path) -> None:
    launched: list[tuple[str, Settings]] = []
    done = run(tmp_path / "study", launched=launched).done
    assert done == [f"{slug}__s1" for slug in ("baseline", "gc-freeze", "compact-history")] + [
        f"{slug}__s2" for slug in ("gc-freeze", "baseline", "compact-history")
    ]
    calibration, cells = launched[:3], launched[3:]
    assert all(settings.rate is None for _, settings in calibration)
    assert {settings.rate for _, settings in cells} == {10.0}
    assert [settings.seed for _, settings in cells] == [1, 1, 1, 2, 2, 2]
    names = sorted(entry.name for entry in (tmp_path / "study").iterdir())
    logs = sorted(f"{name}.stall" for name in done)
    assert names == sorted([*logs, "results.jsonl", "study.json", "tables.json", "tables.md", "tables.txt"])


def test_a_finished_study_runs_nothing_again(tmp_path: Path) -> None:
    run(tmp_path)
    again = run(tmp_path)
    assert (again.done, again.kept) == ([], 6)


def test_an_interrupted_study_resumes_where_it_stopped(tmp_path: Path) -> None:
    def interrupt(cell: Cell) -> None:
        if cell.name == "compact-history__s1":
            raise KeyboardInterrupt

    with Folder.claim(tmp_path) as folder, pytest.raises(KeyboardInterrupt):
        execute(SPEC, folder, fake_tools(), Silent(interrupt))
    resumed = run(tmp_path)
    assert (resumed.kept, len(resumed.done)) == (3, 3)


def test_a_study_killed_in_the_middle_of_a_run_redoes_that_run(tmp_path: Path) -> None:
    script = f"""
    import os, signal, sys
    sys.path.insert(0, {str(Path(__file__).parent)!r})
    from dataclasses import replace
    from pathlib import Path
    from study_made import Silent, fake_tools
    from stallbook.study.folder import Folder
    from stallbook.study.rungs import RUNGS
    from stallbook.study.run import Spec, execute

    tools = fake_tools()

    def launch(settings, out, tick):
        tools.launch(settings, out, None)
        if out.name == "baseline__s2.stall":
            os.kill(os.getpid(), signal.SIGKILL)

    with Folder.claim(Path({str(tmp_path)!r})) as folder:
        execute(Spec(RUNGS[:3], (1, 2), seconds=5.0), folder, replace(tools, launch=launch), Silent())
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert (tmp_path / "unfinished" / "baseline__s2.stall").exists()
    header, lines = read_study(tmp_path)
    assert len(lines) == 4
    assert build(header, lines).facts["runs"] == 4, "the tables of a partial study can be drawn"
    resumed = run(tmp_path)
    assert resumed.done == ["baseline__s2", "compact-history__s2"]
    assert not (tmp_path / "unfinished").exists()


def test_a_torn_results_line_is_cut_off_and_its_run_redone(tmp_path: Path) -> None:
    run(tmp_path)
    results = tmp_path / "results.jsonl"
    whole = results.read_bytes()
    results.write_bytes(whole[:-40])
    assert run(tmp_path).done == ["compact-history__s2"]
    assert results.read_bytes().count(b"\n") == 6


def test_a_run_whose_log_no_longer_opens_is_redone_and_its_new_line_counts(tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / "baseline__s1.stall" / "settings").unlink()
    again = run(tmp_path)
    assert (again.done, again.lost) == (["baseline__s1"], 1)
    assert len(read_study(tmp_path)[1]) == 6


@pytest.mark.parametrize(
    "other",
    [replace(SPEC, seconds=6.0), replace(SPEC, seeds=(1, 3)), replace(SPEC, rate=7.0), replace(SPEC, rungs=RUNGS)],
)
def test_other_settings_do_not_resume_a_study(tmp_path: Path, other: Spec) -> None:
    run(tmp_path)
    with pytest.raises(StallbookError) as caught:
        run(tmp_path, other)
    assert caught.value.slug == "other-study"
    assert "\n" not in str(caught.value)
    assert len(run(tmp_path, other, force=True).done) == len(other.rungs) * len(other.seeds)


def test_another_machine_or_version_does_not_resume_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path)
    monkeypatch.setattr(study_run, "machine", lambda: {"cpu": "another", "cores": 64, "system": "Linux"})
    with pytest.raises(StallbookError, match="machine"):
        run(tmp_path)


def test_what_is_no_study_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for force in (False, True):
        with pytest.raises(StallbookError, match="thesis"):
            run(tmp_path, force=force)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_logs_without_a_study_are_refused_even_by_force(tmp_path: Path) -> None:
    (tmp_path / "baseline__s1.stall").mkdir()
    with pytest.raises(StallbookError, match="no part of a study"):
        run(tmp_path, force=True)
    assert (tmp_path / "baseline__s1.stall").exists()


def test_a_file_in_place_of_the_folder_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StallbookError, match="cannot use the folder"):
            run(place)


def test_a_strange_header_or_result_is_refused_with_its_place(tmp_path: Path) -> None:
    run(tmp_path)
    good = (tmp_path / "results.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "results.jsonl").write_text("".join([good[0], '{"rung": 7}\n', *good[1:]]))
    with pytest.raises(StallbookError, match=r"results\.jsonl:2"):
        run(tmp_path)
    (tmp_path / "study.json").write_text("[]")
    with pytest.raises(StallbookError, match=r"study\.json"):
        run(tmp_path)


def test_two_studies_do_not_share_a_folder(tmp_path: Path) -> None:
    with Folder.claim(tmp_path), pytest.raises(StallbookError, match="another ladder is running"):
        run(tmp_path)


def test_tables_of_a_folder_without_a_study(tmp_path: Path) -> None:
    with pytest.raises(StallbookError, match="not the folder of a study"):
        read_study(tmp_path / "nowhere")


def test_a_full_disk_ends_a_study_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with Folder.claim(tmp_path) as folder:
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(StallbookError, match="no space left"):
            folder.append({"rung": "baseline", "seed": 1})


@pytest.mark.parametrize(
    ("spec", "rate", "past"),
    [
        (replace(SPEC, overload=1.5), 15.0, True),
        (replace(SPEC, rate=9.0), 9.0, False),
        (replace(SPEC, rate=12.0), 12.0, True),
    ],
)
def test_a_rate_past_capacity_marks_the_study(tmp_path: Path, spec: Spec, rate: float, past: bool) -> None:
    run(tmp_path, spec)
    header, _ = read_study(tmp_path)
    assert (header["rate"], header["past_capacity"], header["auto_rate"]) == (rate, past, 10.0)


def test_a_run_that_fails_is_named_and_the_study_can_go_on(tmp_path: Path) -> None:
    def fail(settings: Settings, out: Path, tick: object) -> None:
        raise StallbookError("exploded", "it exploded", "do not", "")

    tools = fake_tools()
    spec = replace(SPEC, rate=9.0)
    with Folder.claim(tmp_path) as folder:
        folder.write_header(execute(replace(spec, rungs=()), folder, tools, Silent()) | {"settings": spec.as_json()})
        with pytest.raises(StallbookError, match=r"^baseline__s1: it exploded; do not; the same command resumes"):
            execute(spec, folder, replace(tools, launch=fail), Silent())
    assert len(run(tmp_path, spec).done) == 6
