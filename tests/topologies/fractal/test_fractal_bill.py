"""The bill holds, and refuses nobody who keeps to the caps: models that fill each cap to its last token."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import Message, ModelReply, ModelRequest, Outcome, Source, Status, Task
from romanesco.models import Capabilities, EmbeddedModel, TokenCount, Usage, current_call, first_rung, prepare
from romanesco.testing import MemoryStore, NgramEmbedder
from romanesco.topologies.fractal import Fractal
from romanesco.topologies.fractal._bill import Texts
from romanesco.topologies.fractal._params import params_from_json
from romanesco.topologies.fractal._prompts import Group, MatrixRow, Shown
from romanesco.topologies.fractal._requests import Requests
from tests.support import config_in
from tests.topologies.node_fakes import FakeDesk

ALL_ROUNDS = {"tau_sat": 0, "eps": 0, "quorum": 1}
WIDE = 1_000_000
STYLES = ("compact", "full")


class Filler:
    """Answers every call with as many tokens as it may generate; its tokens have ``per`` bytes each."""

    endpoint = "filler"

    def __init__(self, per: int, *, exact: bool = True, window: int = WIDE, name: str = "filler:one") -> None:
        self.per, self.exact, self.size, self.name = per, exact, window, name
        self.asked: list[tuple[str, ModelRequest]] = []
        self.spoilt: Callable[[str], bool] = lambda key: False

    async def complete(self, request: ModelRequest, *, on_token: Callable[[str], None] | None = None) -> ModelReply:
        context = current_call.get()
        assert context is not None
        self.asked.append((context.key, request))
        room = request.max_output_tokens * self.per
        salt = len(self.asked)
        text = padding(room, salt) if self.spoilt(context.key) else reply(request, room, salt)
        tokens_in = -(-bytes_of(request) // self.per)
        assert tokens_in + request.max_output_tokens <= self.size, context.key
        return ModelReply(text, usage=Usage(tokens_in, -(-len(text) // self.per)), model=self.name)

    async def count(self, request: ModelRequest) -> TokenCount:
        size = bytes_of(request)
        return TokenCount(-(-size // self.per) if self.exact else size, exact=self.exact)

    async def capabilities(self) -> Capabilities:
        return Capabilities(self.size, json_schema=False, tools=False, tokenizer=self.exact, template_overhead=0)

    async def close(self) -> None:
        pass


def bytes_of(request: ModelRequest) -> int:
    return sum(len(message.content.encode()) for message in request.messages)


def padding(size: int, salt: int) -> str:
    """Words that no other text has, so that the ledger takes all of them for something new."""
    return "".join(f"plain{salt}n{number} " for number in range(size // 8 + 1))[:size]


FIELD = re.compile(r'(?:^|; )"(\w+)": ')
ID = re.compile(r'\[([A-E])\]|id="(P\d\.\d)"')
FIELDS: dict[str, Any] = {
    "backs": "*",
    "stance": "keep",
    "failure_scenario": "",
    "alternative_mechanism": "",
    "modification": "",
    "proposal": "",
    "evidence": [{"source": "none", "claim": "", "quote": ""}],
    "critiques": ["", "", ""],
    "chosen": "*",
    "absorbed": "",
    "absorbed_from": "none",
    "discarded": [],
    "ledger": [{"kind": "risk", "text": ""}],
    "why_not_others": "",
    "risk": "",
    "answer": "",
}


def reply(request: ModelRequest, size: int, salt: int) -> str:
    """A good reply of exactly so many bytes, to a prompt that tells its fields in words."""
    fields = FIELD.findall(request.messages[-1].content.partition("Its fields: ")[2])
    if not fields:
        return padding(size, salt)
    first = ID.search(request.messages[-1].content)  # its own, in Integration
    own = (first[1] or first[2]) if first else ""
    value = {name: own if FIELDS[name] == "*" else deepcopy(FIELDS[name]) for name in fields}
    if "discarded" in fields:
        value["absorbed"] = []
    places = list(holes(value))
    left = size - len(json.dumps(value))
    assert left >= 2 * len(places), f"{size} bytes are too few for {fields}"
    for number, (holder, at) in enumerate(places):
        holder[at] = padding(left // len(places) + (left % len(places) if number == 0 else 0), 1000 * number + salt)
    text = json.dumps(value)
    assert len(text) == size
    return text


def holes(value: Any) -> Iterator[tuple[Any, Any]]:
    """Where free text goes."""
    for at, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        if inner == "":
            yield value, at
        elif isinstance(inner, dict | list):
            yield from holes(inner)


PLAIN = (
    "The bakery should begin with a small group of regular customers who already order by telephone and let them order "
    "online for pick up before eight in the morning, because that keeps the smell of bread in the shop and costs "
    "little."
)


async def fill(models: Any, folder: Path, *, sources: tuple[Source, ...] = (), **params: Any) -> Outcome:
    return await romanesco.run(
        "Name three risks of a bakery",
        model=models,
        topology="fractal",
        params={**ALL_ROUNDS, **params},
        sources=sources,
        store=MemoryStore(),
        embedder=NgramEmbedder(),
        config=config_in(folder),
    )


def caps_for(style: str, per: int) -> dict[str, Any]:
    """Where a token is one byte, the compact caps don't hold the JSON itself."""
    return {"style": style, **({"proposal_tokens": 170, "critique_tokens": 40} if per == 1 else {})}


def finished(outcome: Outcome) -> None:
    assert outcome.note == "", outcome.note
    assert outcome.status is Status.COMPLETED
    assert outcome.bill is not None
    for line, spent in zip(outcome.bill.lines, outcome.lines, strict=True):
        assert (line.calls >= spent.calls) and (line.tokens_in >= spent.tokens_in), line.purpose


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("per", [1, 2, 3, 4, 5, 6])
async def test_a_model_that_fills_each_cap_is_never_refused(per: int, style: str, exact: bool, tmp_path: Path) -> None:
    for k in (3, 4, 5):
        for rounds in (1, 2, 3, 4):
            model = Filler(per, exact=exact)
            outcome = await fill(model, tmp_path, k=k, rounds=rounds, **caps_for(style, per))
            finished(outcome)
            assert len(model.asked) == k * rounds + 2 * k + 1


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("wide", "narrow"), [(6, 1), (6, 2), (4, 3), (1, 6)])
@pytest.mark.parametrize("roles", [["decision-maker"], ["friction-engine"], ["frame-challenger", "structural-purist"]])
async def test_a_model_that_reads_what_another_wrote_is_never_refused(
    roles: list[str], wide: int, narrow: int, style: str, tmp_path: Path
) -> None:
    for k in (3, 4, 5):
        models = {"default": Filler(wide), **dict.fromkeys(roles, Filler(narrow, name="filler:two"))}
        finished(await fill(models, tmp_path, k=k, rounds=2, **caps_for(style, min(wide, narrow))))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("reasoning", [0, 100])
async def test_a_text_is_bounded_by_the_cap_of_the_call_that_writes_it(style: str, reasoning: int) -> None:
    desk = FakeDesk(models={"friction-engine": "fake:other"})
    plan = await Fractal().plan(Task("Sell", params={"style": style, "reasoning_tokens": reasoning}), desk)
    requests = Requests("Sell", params_from_json(plan.params))
    texts, team, judges = Texts.of(requests, desk), requests.params.team, requests.params.judges
    shown = Shown("P1.1", "x")
    for persona, text in zip(team, texts.proposals, strict=True):
        for request in (
            requests.generation(desk.model(persona.id), persona, ""),
            requests.integration(desk.model(persona.id), persona, shown, None, [], 2),
        ):
            assert (text.tokens, text.writer) == (request.max_output_tokens, request.model)
    for judge, text in zip(judges, texts.critiques, strict=True):
        request = requests.critique(desk.model(judge.id), judge, shown)
        assert (text.tokens, text.writer) == (request.max_output_tokens, request.model)
    assert {text.writer for text in texts.critiques} == {"fake:model", "fake:other"}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("reasoning", [100, 1000])
async def test_room_for_reasoning_that_becomes_text_is_in_the_bill(style: str, reasoning: int, tmp_path: Path) -> None:
    for per in (2, 4):
        finished(await fill(Filler(per), tmp_path, rounds=3, style=style, reasoning_tokens=reasoning))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("spoilt", ["decide", "critique/P2.2/friction-engine", "integrate/2/frame-challenger"])
async def test_a_reask_with_schema_and_error_fits_the_repair_line(
    spoilt: str, style: str, exact: bool, tmp_path: Path
) -> None:
    model = Filler(4, exact=exact)
    model.spoilt = lambda key: key == spoilt
    finished(await fill(model, tmp_path, k=5, rounds=2, style=style))
    (again,) = [request for key, request in model.asked if key == f"{spoilt}/repair/1"]
    text = again.messages[-1].content
    assert "Your last reply can't be used" in text and "It was: plain" in text and "Its fields: " in text


async def test_at_k_5_the_fullest_prompts_fit_a_window_of_2048_tokens(tmp_path: Path) -> None:
    for per in (4, 5, 6):  # the model checks each prompt and its reply against its window
        model = Filler(per, window=2048)
        outcome = await fill(model, tmp_path, k=5, rounds=3)
        finished(outcome)
        assert outcome.deliberation is not None and len(outcome.deliberation.critiques) == 30


async def test_at_k_5_the_fullest_decision_of_the_embedded_model_fits_its_window(tmp_path: Path) -> None:
    goal = "word " * 110
    model = EmbeddedModel()
    try:
        window = (await model.capabilities()).window
        config = config_in(tmp_path)
        params = {"k": 5}
        plan = await romanesco.plan(goal, model=model, params=params, embedder=NgramEmbedder(), config=config)
        made = params_from_json(plan.params)
        requests = Requests(goal, made)

        async def text(tokens: int) -> str:
            """English that the model counts as so many tokens."""
            empty = (await model.count(ask(""))).tokens
            words = PLAIN.split() * 9
            while (await model.count(ask(" ".join(words)))).tokens > empty + tokens:
                words.pop()
            return " ".join(words)

        def ask(content: str) -> ModelRequest:
            return ModelRequest(model.name, (Message("user", content),), max_output_tokens=1)

        proposal, critique = await text(made.proposal_tokens), await text(made.critique_tokens + 10)
        groups = tuple(Group(judge.id, (critique,) * 3) for judge in made.judges)
        rows = [MatrixRow(letter, proposal, groups, 5) for letter in "ABCDE"]
        decision = requests.decision(model.name, rows, [])
        used = (await model.count(prepare(decision, first_rung(await model.capabilities())))).tokens
        assert window == 2048
        assert used > 1300  # it is full
        assert used + decision.max_output_tokens <= window
    finally:
        await model.close()


async def test_sources_that_are_read_again_are_in_the_bill(tmp_path: Path) -> None:
    book = Source("book.txt", "A sentence about bread and the people who buy it. " * 400)
    for style, window in (("compact", 2048), ("full", 8192), ("full", WIDE)):
        model = Filler(4, window=window)
        finished(await fill(model, tmp_path, sources=(book,), style=style, k=3))
