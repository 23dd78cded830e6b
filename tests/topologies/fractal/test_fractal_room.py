"""Prompts fit the window whatever members wrote: what has more tokens than its room is cut, and marked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import ModelReply, ModelRequest, Status
from romanesco.errors import ContextOverflow
from romanesco.models import Capabilities, TokenCount, Usage, current_call
from romanesco.testing import MemoryStore, NgramEmbedder
from romanesco.topologies._billing import Piece
from romanesco.topologies.fractal._room import Text, Written, cost, cut, cut_entries, fitted, shares
from tests.support import config_in

ALL_ROUNDS = {"tau_sat": 0, "eps": 0, "quorum": 1}
DIGITS, CJK, EMOJI, MIXED = "0123456789", "面包店早市客人排队", "🥐🍞🥖🧁", "7面🥐 a"
ENGLISH = "Let regular customers order bread by telephone before eight in the morning and pick it up at the counter "


def tokens(text: str, digits: int = 1) -> int:
    """Four letters or signs a token, and so many digits; a Chinese character is one, an emoji four."""
    runs = re.findall(r"[A-Za-z ]+|[^A-Za-z0-9 \u4e00-\U0010ffff]+", text)
    numbers = sum(-(-len(run) // digits) for run in re.findall("[0-9]+", text))
    rest = re.findall(r"[\u4e00-\U0010ffff]", text)
    return sum(-(-len(run) // 4) for run in runs) + numbers + sum(4 if ord(char) > 0xFFFF else 1 for char in rest)


class Dense:
    """Fills every cap to its last token with text of an alphabet, and refuses what its window can't hold."""

    endpoint = "dense"

    def __init__(
        self, alphabet: str, *, exact: bool, window: int = 2048, name: str = "dense:one", digits: int = 1
    ) -> None:
        self.alphabet, self.exact, self.window, self.name, self.digits = alphabet, exact, window, name, digits
        self.prompts: dict[str, str] = {}
        self.reports, self.most = True, 10**6

    async def complete(self, request: ModelRequest, *, on_token: Callable[[str], None] | None = None) -> ModelReply:
        context = current_call.get()
        assert context is not None
        read, cap = self.read(request), request.max_output_tokens
        self.prompts[context.key] = request.messages[-1].content
        if read + cap > self.window:
            raise ContextOverflow("too long", value=read + cap, limit=self.window)
        text = self.fill(request, min(cap, self.most))
        return ModelReply(text, usage=Usage(read, self.tokens(text)) if self.reports else None, model=self.name)

    def fill(self, request: ModelRequest, cap: int) -> str:
        value: dict[str, Any] = {}
        for name, shape in (request.output.schema["properties"] if request.output else {}).items():
            kind = shape.get("type")
            value[name] = shape["enum"][0] if "enum" in shape else [] if kind == "array" else ""
        if "critiques" in value:
            value["critiques"] = ["", "", ""]
        holes = [name for name in value if value[name] == ""]
        size = 4 * cap
        while True:
            piece = (self.alphabet * size)[:size]
            filled = value | dict.fromkeys(holes, piece)
            if "critiques" in value:
                filled["critiques"] = [piece] * 3
            text = json.dumps(filled, ensure_ascii=False) if value else piece
            over = self.tokens(text) - cap
            if over <= 0:
                return text
            size -= max(1, over // 24)

    def tokens(self, text: str) -> int:
        return tokens(text, self.digits)

    def read(self, request: ModelRequest) -> int:
        return sum(self.tokens(message.content) + 4 for message in request.messages)

    async def count(self, request: ModelRequest) -> TokenCount:
        size = sum(len(message.content.encode()) + 4 for message in request.messages)
        return TokenCount(self.read(request) if self.exact else size, exact=self.exact)

    async def capabilities(self) -> Capabilities:
        return Capabilities(self.window, tokenizer=self.exact, template_overhead=4)

    async def close(self) -> None:
        pass


async def run(models: Any, folder: Path, *, goal: str = "Sell bread", **params: Any) -> romanesco.Outcome:
    store = params.pop("store", None) or MemoryStore()
    return await romanesco.run(
        goal,
        model=models,
        params={"k": 5, "rounds": 3, **ALL_ROUNDS, **params},
        store=store,
        embedder=NgramEmbedder(),
        config=config_in(folder),
    )


async def longest_goal(model: Dense, folder: Path, **params: Any) -> str:
    """A goal that leaves the window no room beside what the plan counts on."""
    plan = await romanesco.plan("x", model=model, params={"k": 5, **params}, config=config_in(folder))
    spare = min(plan.params["spare"].values())
    return ("sell bread " * 1000)[: spare * (4 if model.exact else 2)]


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("alphabet", [DIGITS, CJK, EMOJI, MIXED])
async def test_at_k_5_dense_texts_fit_a_window_of_2048_tokens(alphabet: str, exact: bool, tmp_path: Path) -> None:
    model = Dense(alphabet, exact=exact)
    goal = await longest_goal(model, tmp_path, reasoning_tokens=20)
    assert goal
    for reports in (True, False):
        model.reports = reports
        outcome = await run(model, tmp_path, goal=goal, reasoning_tokens=20)
        assert outcome.note == ""
        assert outcome.status is Status.COMPLETED
        assert outcome.deliberation is not None and len(outcome.deliberation.critiques) == 30


@pytest.mark.parametrize("exact", [True, False])
async def test_what_another_tokenizer_wrote_is_cut_to_what_the_reader_can_hold(exact: bool, tmp_path: Path) -> None:
    writer = Dense(DIGITS, exact=exact, digits=3, window=8192)
    reader = Dense(DIGITS, exact=exact, name="dense:two", window=2400)
    outcome = await run({"default": writer, "decision-maker": reader}, tmp_path, style="compact")
    assert outcome.note == ""
    assert outcome.status is Status.COMPLETED
    assert reader.prompts["decide"].count(" [cut]") >= 5


async def test_a_prompt_that_was_cut_is_made_again_from_the_journal_alone(tmp_path: Path) -> None:
    writer, store = Dense(DIGITS, exact=True, digits=3, window=8192), MemoryStore()
    reader = Dense(DIGITS, exact=True, name="dense:two", window=2400)
    models = {"default": writer, "decision-maker": reader}
    outcome = await run(models, tmp_path, style="compact", store=store)
    assert " [cut]" in reader.prompts["decide"]
    again = await romanesco.replay(
        outcome.run, model=models, store=store, embedder=NgramEmbedder(), config=config_in(tmp_path)
    )
    assert again.answer == outcome.answer and again.status is Status.COMPLETED


async def test_short_texts_stay_whole_in_a_full_window(tmp_path: Path) -> None:
    model = Dense(ENGLISH, exact=True)
    model.most = 60
    outcome = await run(model, tmp_path, goal=await longest_goal(model, tmp_path))
    assert outcome.note == ""
    assert not any(" [cut]" in prompt for prompt in model.prompts.values())


PIECE = Piece(300, 105, "m")


def text(*texts: str, tokens: int | None = None, rate: float = 1 / 3.5) -> Text:
    return Text(texts, PIECE, Written("m", tokens, rate))


def test_a_text_needs_what_its_server_counted_or_what_its_characters_may_be() -> None:
    assert text("1" * 100).need("m") == 100
    assert text("1" * 100, tokens=34).need("m") == 42  # 1.1 times as many, and 4 for its seams
    assert text("1" * 100, tokens=34).need("other") == 100
    assert text("plain words " * 10).need("m") == 34
    assert text("面" * 20).need("m") == 60
    assert text("1" * 400).need("m") == text("1" * 294 + " [cut]").need("m")  # what is beyond its size is not shown


def test_only_what_is_over_its_room_is_cut_and_only_if_all_of_them_are_too_much() -> None:
    dense, short = text("1" * 200), text("two words")
    assert fitted([dense, short], "m", 300) == [dense.texts, short.texts]
    (seen,), (other,) = fitted([dense, short], "m", 150)
    assert other == "two words" and seen.endswith(" [cut]")
    assert cost(seen, 1 / 3.5) + short.need("m") <= 150
    assert len(seen) > 130, "what the short one left went to the dense one"


def test_the_texts_of_one_reply_are_cut_alike() -> None:
    seen = text("1" * 100, "2" * 100, "3").cut(61)
    assert [one[-6:] for one in seen[:2]] == [" [cut]"] * 2 and seen[2] == "3"
    assert len(seen[0]) == len(seen[1])
    assert sum(cost(one, 1 / 3.5) for one in seen) <= 61


def test_a_cut_never_costs_more_than_it_may_and_says_that_something_is_missing() -> None:
    for whole in ("1" * 50, "面🥐" * 20, ENGLISH * 3, "a1 " * 40):
        for tokens in range(6, 120):
            seen = cut(whole, tokens, 1 / 3.5)
            assert cost(seen, 1 / 3.5) <= tokens
            assert seen == " ".join(whole.split()) or seen.endswith(" [cut]")


def test_a_share_is_what_is_needed_or_an_equal_part_of_what_the_others_leave() -> None:
    assert shares([10, 50, 60], 90) == [10, 40, 40]
    assert shares([1, 2], 90) == [1, 2]
    assert shares([5, 5], -1) == [0, 0]
    assert shares([], 5) == []


def test_ledger_entries_are_kept_whole_from_the_oldest_on() -> None:
    entries = ["claim: 1111", "risk: 2222", "claim: 3333"]
    assert cut_entries(entries, 100, 1 / 3.5) == entries
    first, second = cut_entries(entries, 19, 1 / 3.5)
    assert first == entries[0] and second.endswith("[cut]")
    for room in range(16, 30):
        kept = cut_entries(entries, room, 1 / 3.5)
        assert sum(cost(entry, 1 / 3.5) + 3 for entry in kept) <= room and kept[-1].endswith("[cut]")


@pytest.mark.parametrize(
    ("usage", "tokens", "rate"),
    [
        (None, None, 1 / 3.5),
        (Usage(9, 50, estimated=True), None, 1 / 3.5),
        (Usage(9, 50), 50, 0.5),
        (Usage(9, 10), 10, 1 / 3.5),
        (Usage(9, 90, reasoning=40), 90, 0.5),
        (Usage(9, 500), 500, 1 / 3.5),  # hidden thoughts say nothing of the text
    ],
)
def test_a_reply_is_measured_by_what_its_server_reported(usage: Usage | None, tokens: int | None, rate: float) -> None:
    assert Written.of(ModelReply("x" * 100, usage=usage), "m") == Written("m", tokens, rate)
