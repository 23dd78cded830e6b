"""Who sees what, and what is made of it: sources, proposals, ballots, dissent, the ledger."""

from __future__ import annotations

from romanesco.errors import ServerFault
from romanesco.models import ModelRequest
from romanesco.task import Source
from tests.topologies.node_fakes import (
    Answer,
    backing,
    deliberate,
    failing,
    kept,
    prompt,
    talk,
)


async def test_round_1_is_blind_and_no_one_sees_more_than_is_due() -> None:
    sources = tuple(Source(f"s{n}.txt", f"SOURCE-{n} " + f"text {n} " * 60) for n in range(4))

    def script(key: str, request: ModelRequest) -> Answer:
        answer = talk(key, request)
        mark = f"CANARY({key})"
        if isinstance(answer, str):
            return mark
        assert isinstance(answer, dict)
        return {
            k: [f"{mark} {n}" for n in (1, 2, 3)]
            if k == "critiques"
            else v
            if k in ("backs", "stance")
            else mark
            if isinstance(v, str) and k != "chosen"
            else v
            for k, v in answer.items()
        }

    _, scope = await deliberate(script=script, sources=sources, rounds=2)
    for key, request in scope.asked.items():
        text = prompt(request)
        kind, *rest = key.split("/")
        seen = {"generate" if "CANARY(generate" in text else "", "integrate" if "CANARY(integrate" in text else ""}
        if kind == "generate":
            assert "CANARY" not in text
            assert sum(f"SOURCE-{n}" in text for n in range(4)) == 1
        elif kind == "integrate":
            assert "CANARY(integrate" not in text and "CANARY(critique" not in text
            assert text.count("CANARY(generate") >= 4
            own = prompt(scope.asked[f"generate/1/{rest[1]}"])
            assert [f"SOURCE-{n}" in text for n in range(4)] == [f"SOURCE-{n}" in own for n in range(4)]
        elif kind == "critique":
            member = [one for one in scope.asked if one.startswith("integrate/")][int(rest[0][1]) - 1]
            assert f"CANARY({member})" in text and text.count("CANARY") in (1, 3)  # a challenge has three parts
            assert seen == {"", "integrate"} and "SOURCE" not in text
        else:
            assert "CANARY(generate" not in text.split("<ledger>")[0] and "CANARY(critique" in text


async def test_each_member_gets_another_payload() -> None:
    sources = tuple(Source(f"s{n}.txt", f"text {n} " * 60) for n in range(4))
    _, scope = await deliberate(sources=sources)
    texts = [prompt(request) for key, request in scope.asked.items() if key.startswith("generate/")]
    assert [sum(f"Source: s{n}.txt" in text for text in texts) for n in range(4)] == [1, 1, 1, 1]


async def test_the_proposals_of_later_rounds_replace_earlier_ones() -> None:
    _, scope = await deliberate(rounds=2)
    judged = {key.split("/")[1] for key in scope.asked if key.startswith("critique/")}
    assert judged == {"P1.2", "P2.2", "P3.2", "P4.2"}
    assert "P1.1" not in prompt(scope.asked["decide"])


async def test_a_ballot_counts_for_the_latest_version_and_the_others_dissent() -> None:
    first, _ = await deliberate()
    team = kept(first).personas[:4]
    votes = {team[0]: "P2", team[1]: "P2", team[2]: "P2", team[3]: "P4"}

    def script(key: str, request: ModelRequest) -> Answer:
        answer = backing(votes)(key, request)
        if key == "decide" and isinstance(answer, dict):
            answer["chosen"] = "P2.2"
        return answer

    outcome, scope = await deliberate(script=script, rounds=2)
    record = kept(outcome)
    assert record.backing == {"P2.2": 3, "P4.2": 1}
    (consensus,) = scope.record_of("fractal.consensus")
    assert (consensus["backers"], consensus["needed"], consensus["eligible"], consensus["reached"]) == (3, 4, 4, False)
    assert consensus["ballots"][team[0]] == {"named": "P2.1", "author": team[1]}
    (dissent,) = record.dissent
    assert (dissent.member, dissent.proposal) == (team[3], "P4.2")
    assert dissent.position.startswith("proposal of integrate/2") or dissent.position.startswith("This fails")
    assert len(dissent.grounds) == 6 and all("P2.2" in ground for ground in dissent.grounds)


async def test_a_fact_needs_a_quote_that_stands_in_a_source() -> None:
    source = Source("churn.txt", "In May the churn was 4.2 percent.")

    def script(key: str, request: ModelRequest) -> Answer:
        answer = talk(key, request)
        if isinstance(answer, dict) and "evidence" in answer:
            answer["evidence"] = [
                {"source": "churn.txt", "claim": f"Proven in {key}", "quote": "the churn was 4.2 percent"},
                {"source": "churn.txt", "claim": f"Invented for {key} alone", "quote": "the churn was 99 percent"},
            ]
        return answer

    outcome, _ = await deliberate(script=script, sources=(source,))
    facts = [entry for entry in kept(outcome).ledger if entry.kind == "fact"]
    assert facts and all(entry.evidence[1] == "churn.txt" and entry.text.startswith("Proven") for entry in facts)
    invented = [entry for entry in kept(outcome).ledger if entry.text.startswith("Invented")]
    assert invented and {entry.kind for entry in invented} == {"claim"}


async def test_the_frame_challenger_keeps_its_three_parts() -> None:
    outcome, _ = await deliberate(rounds=2)
    mine = [one for one in kept(outcome).proposals if one.member == "frame-challenger"]
    assert [sorted(one.challenge) for one in mine] == [
        ["alternative_mechanism", "failure_scenario", "modification"],
        ["alternative_mechanism", "failure_scenario", "modification", "stance"],
    ]


async def test_evaluators_that_propose_do_not_weigh_their_own_critique() -> None:
    outcome, scope = await deliberate(evaluators_propose=True, rounds=1)
    record = kept(outcome)
    assert set(record.personas) == {"radical-speculator", "structural-purist", "friction-engine", "frame-challenger"}
    assert len(record.critiques) == 24
    own = [one for one in record.critiques if one.own]
    assert len(own) == 6
    assert {one.evaluator for one in own} == {"structural-purist", "friction-engine"}
    decide = prompt(scope.asked["decide"])
    assert decide.count('by="structural-purist">') == decide.count('by="friction-engine">') == 3
    assert not any(one.text in decide for one in own)
    assert all(one.text in decide for one in record.critiques if not one.own)
    assert scope.record_of("fractal.ensemble")[0]["separation"] == "not applicable"


async def test_the_choice_is_not_held_against_its_critic_and_silence_backs_itself() -> None:
    """The grounds of a dissent leave out what an evaluator said of its own proposal."""
    votes = {"radical-speculator": "P1", "structural-purist": "P1"}

    def script(key: str, request: ModelRequest) -> Answer:
        if key.startswith(("integrate/2/friction-engine", "integrate/2/frame-challenger")):
            return ServerFault("500")
        answer = backing(votes)(key, request)
        return {**answer, "chosen": purist[0]} if key == "decide" and isinstance(answer, dict) else answer

    purist = ["P1.2"]
    first, _ = await deliberate(script=script, evaluators_propose=True, rounds=2)
    latest = {one.member: one.id for one in kept(first).proposals}
    purist[0] = latest["structural-purist"]
    outcome, _ = await deliberate(script=script, evaluators_propose=True, rounds=2)
    record = kept(outcome)
    assert record.decision is not None and record.decision.chosen == latest["structural-purist"]
    own = {one.text for one in record.critiques if one.own and one.proposal == record.decision.chosen}
    others = {one.text for one in record.critiques if not one.own and one.proposal == record.decision.chosen}
    held = {one.member: one for one in record.dissent}
    assert own and others and all(set(one.grounds) == others for one in held.values())
    # Both failed in round 2 and named nobody: each stands by its own, the proposal of round 1.
    for silent in ("friction-engine", "frame-challenger"):
        assert held[silent].proposal == latest[silent] and latest[silent].endswith(".1")


async def test_without_any_ballot_the_best_is_not_the_challenge() -> None:
    outcome, scope = await deliberate(script=failing("decide"), k=3, rounds=1)
    assert kept(outcome).personas[0] == "frame-challenger"  # it would be the first in order
    assert kept(outcome).backing == {}
    author = {one.id: one.member for one in kept(outcome).proposals}
    decision = kept(outcome).decision
    assert decision is not None and author[decision.chosen] == "integrative-synthesizer"
    assert scope.offers[0][1] == outcome.answer
    alone, _ = await deliberate(script=failing("decide", "generate/1/integ", "generate/1/rad"), k=3, rounds=1)
    assert alone.answer.startswith("This fails")  # nobody else proposed
