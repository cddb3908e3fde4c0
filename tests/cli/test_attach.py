"""`stallbook attach`: the program is as ever, and each of its Pythons finds stallbook as it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stallbook.adapters.attach import ENGINES, GROUP, attach, launched
from stallbook.cli import main

WAITING = "from stallbook.adapters import imports; print(len(imports._finder.waiting))"


def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    given = {key: value for key, value in os.environ.items() if not key.startswith("STALLBOOK")} | more
    command = [sys.executable, "-m", "stallbook", "attach", *words]
    return subprocess.run(command, env=given, capture_output=True, text=True, check=False)


def test_every_python_of_the_program_waits_for_engines(tmp_path: Path) -> None:
    log = tmp_path / "a.stall"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WAITING!r}], check=True)"
    for program in (WAITING, code):
        done = run("--out", str(log), "--", sys.executable, "-c", program)
        assert (done.returncode, done.stderr) == (0, "")
        assert int(done.stdout) >= len(ENGINES)
    assert not log.exists()  # no engine, no log


def test_output_and_exit_code_are_the_programs(tmp_path: Path) -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"
    done = run("-o", str(tmp_path / "a.stall"), sys.executable, "-c", code)  # its options are its own, `--` or not
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")


def test_the_variable_names_the_log_too(tmp_path: Path) -> None:
    code = "import os; print(os.environ['STALLBOOK'])"
    for words, told in (((), "a.stall"), (("--out", "b.stall"), "b.stall")):
        assert run(*words, "--", sys.executable, "-c", code, STALLBOOK="a.stall").stdout.strip() == told


def test_another_sitecustomize_is_run_as_well(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('the other one')\n")
    done = run("--out", "a.stall", "--", sys.executable, "-c", WAITING, PYTHONPATH=str(tmp_path))
    assert done.stdout.splitlines()[-2:][0] == "the other one"


def test_an_adapter_of_another_package_is_found(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text("def register():\n    print('registered')\n")
    info = tmp_path / "theirs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\ntheirs = theirs:register\nbroken = theirs:nothing\n")
    done = run("--out", "a.stall", "--", sys.executable, "-c", "pass", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0
    assert "registered" in done.stdout
    assert "the adapter broken does not load" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["attach", "--", "true"], "nothing says where to record; give --out, or set STALLBOOK"),
        (["attach", "--out", "a.stall", "--", "no-such-program"], "no-such-program: no such command"),
        (["attach", "--out", "a.stall"], "COMMAND"),
    ],
)
def test_what_a_user_gets_wrong(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STALLBOOK", raising=False)
    assert main(words) == 2
    said = capsys.readouterr().err
    assert told in said
    assert len(said.splitlines()) == 1


def test_a_program_that_may_not_be_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fno program\n")
    for mode, why in ((0o600, "permission denied"), (0o700, "exec format error")):
        program.chmod(mode)
        assert main(["attach", "--out", str(tmp_path / "a.stall"), "--", str(program)]) == 2
        assert capsys.readouterr().err.endswith(f"cannot be run: {why}; is it a program, and may you run it?\n")


def test_without_a_log_nothing_is_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STALLBOOK", raising=False)
    before = list(sys.meta_path)
    attach()
    assert sys.meta_path == before


def test_a_path_is_put_in_front(tmp_path: Path) -> None:
    found = launched({"PYTHONPATH": "/theirs"}, tmp_path / "a.stall")
    ours, theirs = found["PYTHONPATH"].split(os.pathsep)
    assert (Path(ours) / "sitecustomize.py").is_file()
    assert theirs == "/theirs"
