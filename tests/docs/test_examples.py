"""Every example of the documentation is executed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from romanesco.testing import FakeServerProcess
from tests.docs.pages import LANGUAGES, ROOT, blocks, own_pages
from tests.docs.running import PageRunner, clean_environment

_RUNS = [page for page in own_pages() if any(block.language in ("python", "console") for block in blocks(page))]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that counts tokens exactly and answers what fits the schema."""
    scenario = {"model": "fake", "flavour": "llamacpp", "context_limit": 8192}
    with FakeServerProcess(tmp_path_factory.mktemp("server"), scenario) as process:
        yield process.url


@pytest.mark.parametrize("page", own_pages(), ids=lambda page: page.name)
def test_the_examples_of_a_page_do_what_it_says(
    page: Path, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = clean_environment(tmp_path, monkeypatch)
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    runner = PageRunner(folder, server, environment)
    for block in blocks(page):
        runner.run(block)


def test_there_are_examples_to_run() -> None:
    assert len(_RUNS) >= 10


@pytest.mark.parametrize("page", own_pages(), ids=lambda page: page.name)
def test_every_block_says_what_it_is(page: Path) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{block.place}: {block.language!r}"


def test_every_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = [
        word
        for page in own_pages()
        for block in blocks(page)
        if block.language == "sh"
        for line in block.text.splitlines()
        if line.startswith("make ")
        for word in line.partition("#")[0].split()[1:2]
    ]
    assert named
    for target in named:
        assert f"\n{target}:" in makefile, target
