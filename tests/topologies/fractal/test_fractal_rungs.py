"""A server that counts tokens and refuses the rung that it was planned for: its bill holds on the next one too."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import romanesco
from romanesco import Status
from romanesco.testing import FakeReply, FakeServer, MemoryStore, NgramEmbedder, Scenario
from tests.support import config_in
from tests.topologies.fractal.test_fractal_bill import FIELD, FIELDS, padding


def fills_its_cap(body: dict[str, Any], number: int) -> FakeReply:
    """A good reply that uses the whole cap, on whichever rung it is asked for."""
    size, asked = 4 * body["max_tokens"], body["messages"][-1]["content"]
    told = FIELD.findall(asked.partition("Its fields: ")[2])
    if body.get("tools"):
        shape = body["tools"][0]["function"]["parameters"]
    elif "response_format" in body:
        shape = body["response_format"]["json_schema"]["schema"]
    elif not told:
        return FakeReply(text=padding(size, number))
    else:
        listed = re.findall(r'"(\w+)": one of "([^"]+)"', asked)
        shape = {"properties": {name: {} for name in told} | {name: {"enum": [first]} for name, first in listed}}
    value = {name: one["enum"][0] if "enum" in one else FIELDS[name] for name, one in shape["properties"].items()}
    longest = [name for name, text in value.items() if text == ""]
    left = size - len(json.dumps(value))
    for name in longest:
        value[name] = padding(left // len(longest), number)
    if "critiques" in value:
        value["critiques"] = [padding(left // 3, number)] * 3
    return FakeReply(text=json.dumps(value))


@pytest.mark.parametrize("flavour", ["llamacpp", "vllm"])
@pytest.mark.parametrize("reject", [set(), {"response_format"}, {"response_format", "tools"}])
async def test_the_bill_holds_on_whichever_rung_a_counting_server_takes(
    reject: set[str], flavour: Any, tmp_path: Path
) -> None:
    scenario = Scenario(flavour=flavour, context_limit=8192, reject=frozenset(reject))
    async with FakeServer(fills_its_cap, scenario=scenario) as server:
        outcome = await romanesco.run(
            "Name three risks of a bakery",
            model=f"{server.url}#fake",
            params={"k": 5, "rounds": 3, "tau_sat": 0, "eps": 0, "quorum": 1, "style": "compact"},
            store=MemoryStore(),
            embedder=NgramEmbedder(),
            config=config_in(tmp_path),
        )
    assert outcome.note == ""
    assert outcome.status is Status.COMPLETED
    assert outcome.bill is not None
    for line, spent in zip(outcome.bill.lines, outcome.lines, strict=True):
        assert line.tokens_in >= spent.tokens_in, line.purpose
