"""``make setup`` does each thing once: its script, with a Python that only notes what it is asked to do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON = """#!/bin/sh
echo "$*" >> calls
case "$*" in
*"install "*--require-hashes*)
    if [ -s fails ]; then
        tail -n +2 fails > rest
        mv rest fails
        exit 1
    fi
    ;;
*_fetch*)
    mkdir -p .venv/share/romanesco/models
    cd .venv/share/romanesco/models
    touch SmolLM2-135M-Instruct.Q4_1.gguf l2_supercat_256.safetensors l2_supercat_tokenizer_config.json
    ;;
esac
"""


class Folder:
    """A checkout in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        for name in ("scripts/setup.sh", "requirements/run.lock", "requirements/dev.lock", "pyproject.toml"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        python = folder / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(PYTHON, encoding="utf-8")
        python.chmod(0o755)

    def set_up(self, kind: str = "run", *, fails: int = 0) -> tuple[list[str], str]:
        """What it did, and what it said last; so many times the packages can't be fetched."""
        (self.path / "fails").write_text("once\n" * fails, encoding="utf-8")
        calls = self.path / "calls"
        calls.write_text("", encoding="utf-8")
        script = self.path / "scripts" / "setup.sh"
        done = subprocess.run(["sh", str(script), kind], cwd="/", capture_output=True, text=True, check=False)
        assert done.stdout == "" and done.returncode == (fails > 1)
        made = [line for line in calls.read_text(encoding="utf-8").splitlines() if not line.startswith("-c import ")]
        return made, done.stderr.splitlines()[-1]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_second_set_up_does_nothing_and_says_so(folder: Folder) -> None:
    made, said = folder.set_up()
    assert [("install" in call, "_fetch" in call) for call in made] == [(True, False), (True, False), (False, True)]
    assert "--require-hashes -r requirements/run.lock" in made[0] and said == "setup: done"
    assert folder.set_up() == ([], "setup: nothing to do")


def test_a_new_lock_is_installed(folder: Folder) -> None:
    folder.set_up()
    with (folder.path / "requirements" / "run.lock").open("a", encoding="utf-8") as lock:
        lock.write("# changed\n")
    made, said = folder.set_up()
    assert len(made) == 3 and said == "setup: done"
    assert folder.set_up() == ([], "setup: nothing to do")


def test_a_model_file_that_is_gone_is_fetched_and_nothing_else(folder: Folder) -> None:
    folder.set_up()
    next((folder.path / ".venv" / "share").rglob("*.gguf")).unlink()
    made, _ = folder.set_up()
    assert len(made) == 1 and "_fetch" in made[0]


def test_the_tests_packages_come_on_top_of_the_others(folder: Folder) -> None:
    folder.set_up()
    made, _ = folder.set_up("dev")
    assert "-r requirements/dev.lock" in made[0]
    assert folder.set_up("dev") == folder.set_up("run") == ([], "setup: nothing to do")


def test_a_download_that_fails_once_is_made_again(folder: Folder) -> None:
    made, said = folder.set_up(fails=1)
    assert made[0] == made[1] and "--require-hashes" in made[0] and len(made) == 4
    assert said == "setup: done"
    assert folder.set_up() == ([], "setup: nothing to do")


def test_a_download_that_fails_twice_ends_the_set_up_and_nothing_is_taken_for_done(folder: Folder) -> None:
    made, said = folder.set_up(fails=2)
    assert len(made) == 2 and said.startswith("setup: FAILED: a package of requirements/run.lock can't be fetched")
    made, said = folder.set_up()
    assert len(made) == 3 and said == "setup: done"
