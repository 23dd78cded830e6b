"""What the probe finds out, from servers that can and servers that can't."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from romanesco.errors import ConnectionFailed, KeyMissing, ModelError
from romanesco.models._openai import OpenAICompatible
from romanesco.models._probe import MAX_TOKENS, ProbeReport, Verdict, probe
from romanesco.models._types import Capabilities, ModelReply, ModelRequest, TokenCount, Usage
from romanesco.testing._fake_server import Answer, FakeServer
from romanesco.testing._fake_server_reply import FakeReply, Fault
from romanesco.testing._fake_server_scenario import Scenario
from tests.support import nobody_there

OK, REFUSED, UNKNOWN = Verdict.OK, Verdict.REFUSED, Verdict.UNKNOWN


async def look(server: FakeServer, **changes: Any) -> ProbeReport:
    model = OpenAICompatible(name="acme:fake", model="fake", base_url=server.url, **changes)
    try:
        return await probe(model)
    finally:
        await model.close()


async def test_a_server_that_can_do_everything() -> None:
    async with FakeServer(scenario=Scenario(flavour="vllm", context_limit=4096)) as server:
        report = await look(server)
        assert server.ledger.max_in_flight == 1
    assert (report.reachable, report.listed, report.models) == (True, True, ("fake",))
    verdicts = (report.text, report.tokenizer, report.json_schema, report.grammar, report.tools, report.usage_in_stream)
    assert set(verdicts) == {OK}
    assert report.error is None
    assert report.calls == len(server.ledger.requests) == 4
    assert all(entry.tokens_out <= MAX_TOKENS for entry in server.ledger.requests)
    assert report.spent == Usage(server.ledger.tokens_in, server.ledger.tokens_out)
    assert report.capabilities() == Capabilities(window=4096, grammar=True, tokenizer=True)


async def test_a_server_that_refuses_everything_but_text() -> None:
    fields = frozenset({"response_format", "grammar", "tools"})
    async with FakeServer(scenario=Scenario(reject=fields)) as server:
        report = await look(server)
    assert (report.text, report.usage_in_stream) == (OK, OK)
    assert (report.json_schema, report.grammar, report.tools, report.tokenizer) == (REFUSED,) * 4
    assert report.window is None
    assert report.capabilities() == Capabilities(json_schema=False, tools=False)


async def test_a_server_that_takes_everything_and_does_nothing_of_it() -> None:
    fault = Fault(usage="missing")
    async with FakeServer(lambda body, number: FakeReply("Hello!", fault=fault)) as server:
        report = await look(server)
    assert (report.json_schema, report.grammar, report.tools, report.usage_in_stream) == (REFUSED,) * 4
    assert report.text is OK


async def test_a_reply_cut_by_the_cap_says_nothing() -> None:
    async with FakeServer(lambda body, number: FakeReply("{" + " " * 400)) as server:
        report = await look(server)
    assert (report.json_schema, report.grammar) == (UNKNOWN, UNKNOWN)


async def test_another_model_is_served() -> None:
    async with FakeServer(scenario=Scenario(model="other")) as server:
        report = await look(server)
    assert (report.listed, report.models) == (False, ("other",))


async def test_a_server_that_is_down_is_a_report() -> None:
    with nobody_there() as url:
        model = OpenAICompatible(name="acme:fake", model="fake", base_url=url)
        report = await probe(model)
        await model.close()
    assert not report.reachable
    assert isinstance(report.error, ConnectionFailed)
    assert report.calls == 0


async def test_a_refused_key_is_a_report() -> None:
    async with FakeServer(scenario=Scenario(api_key="right")) as server:
        report = await look(server, api_key="wrong-key-here")
    assert report.reachable
    assert isinstance(report.error, KeyMissing)
    assert (report.text, report.calls) == (UNKNOWN, 1)


def third_call_fails() -> Answer:
    return lambda body, number: FakeReply(fault=Fault(status=500)) if number == 2 else FakeReply()


async def test_one_trial_that_fails_does_not_end_the_probe() -> None:
    async with FakeServer(third_call_fails()) as server:
        report = await look(server)
    assert (report.json_schema, report.grammar, report.tools) == (OK, UNKNOWN, OK)
    assert report.error is not None
    assert report.calls == 4


class Local:
    """A model that is not behind a server."""

    name = "local:tiny"
    endpoint = "local"

    def __init__(self, error: ModelError | None = None) -> None:
        self._error = error

    async def complete(self, request: ModelRequest, *, on_token: Callable[[str], None] | None = None) -> ModelReply:
        if self._error is not None:
            raise self._error
        return ModelReply("Hello.", usage=Usage(3, 2))

    async def count(self, request: ModelRequest) -> TokenCount:
        return TokenCount(3, True)

    async def capabilities(self) -> Capabilities:
        return Capabilities(window=2048, grammar=True, json_schema=False)

    async def close(self) -> None:
        pass


async def test_a_model_without_a_server() -> None:
    report = await probe(Local())
    assert report.capabilities() == Capabilities(window=2048, grammar=True, json_schema=False)
    assert (report.reachable, report.text, report.spent) == (True, OK, Usage(3, 2))


@pytest.mark.parametrize("error", [KeyMissing("no"), ConnectionFailed("nobody")])
async def test_a_model_without_a_server_that_fails(error: ModelError) -> None:
    report = await probe(Local(error))
    assert report.error is error
    assert report.reachable is error.sent
