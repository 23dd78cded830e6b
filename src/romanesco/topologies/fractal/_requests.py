"""The node's model requests. The bill and the driver build them here, so that what was priced is what is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from romanesco.models._types import Message, ModelRequest, OutputSchema
from romanesco.personas import FRAME_CHALLENGER, Persona
from romanesco.topologies.fractal import _defaults as d
from romanesco.topologies.fractal import _schemas as shapes
from romanesco.topologies.fractal._params import Params
from romanesco.topologies.fractal._prompts import (
    Form,
    MatrixRow,
    Shown,
    render_blind_challenge,
    render_challenge,
    render_critique,
    render_decision,
    render_generation,
    render_integration,
    render_wrap_up,
)

PROPOSAL, CRITIQUE, DECISION, WRAP_UP = "proposal", "critique", "decision", "wrap-up"
"""Lines of the bill."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Builds the requests of one node.

    Attributes:
        goal: The goal.
        params: The parameters in force.
        sources: Names of the sources, for citing.
    """

    goal: str
    params: Params
    sources: tuple[str, ...] = ()

    @property
    def form(self) -> Form:
        """Style and caps of the prompts."""
        return Form(self.params.style, self.params.caps)

    @property
    def cites(self) -> bool:
        """Whether proposals list their evidence: with sources, in the full style."""
        return bool(self.sources) and self.params.style == "full"

    @property
    def critiques_cap(self) -> int:
        """Output cap of one critique call, without room for reasoning."""
        return self.params.caps.critiques + (d.CRITIQUE_SLACK if self.form.compact else 0)

    def generation(self, model: str, persona: Persona, payload: str) -> ModelRequest:
        """Round 1 of one member, blind."""
        key = f"generate/1/{persona.id}"
        caps, style = self.params.caps, self.params.style
        if persona.id == FRAME_CHALLENGER:
            messages = render_blind_challenge(persona, self.goal, payload, self.form)
            output: OutputSchema | None = shapes.challenge_schema(caps, style)
        else:
            messages = render_generation(persona, self.goal, payload, self.form, cite=self.cites)
            output = shapes.evidence_schema(caps, style, self.sources) if self.cites else None
        return self._request(model, messages, caps.proposal, self.params.temperature, key, output)

    def integration(
        self,
        model: str,
        persona: Persona,
        own: Shown,
        challenge: Shown | None,
        others: Sequence[Shown],
        round: int,
        payload: str = "",
    ) -> ModelRequest:
        """A later round of one member. For the Frame Challenger ``own`` is the challenge.

        ``payload`` is the member's own, as far as it is shown again; nobody is given another's.
        """
        key = f"integrate/{round}/{persona.id}"
        caps, style, rounds = self.params.caps, self.params.style, self.params.rounds
        ids = [own.id, *([challenge.id] if challenge else []), *(one.id for one in others)]
        if persona.id == FRAME_CHALLENGER:
            messages = render_challenge(
                persona, self.goal, own, others, self.form, round=round, rounds=rounds, payload=payload
            )
            output = shapes.stance_schema(caps, style, ids)
        else:
            messages = render_integration(
                persona, self.goal, own, challenge, others, self.form, round=round, rounds=rounds, payload=payload
            )
            output = shapes.integration_schema(caps, style, ids)
        return self._request(model, messages, caps.proposal, self.params.temperature, key, output)

    def critique(self, model: str, evaluator: Persona, proposal: Shown) -> ModelRequest:
        """One evaluator's critiques of one proposal."""
        key = f"critique/{proposal.id}/{evaluator.id}"
        caps = self.params.caps
        messages = render_critique(evaluator, self.goal, proposal, self.form)
        output = shapes.critique_schema(caps, self.params.style)
        return self._request(model, messages, self.critiques_cap, self.params.critique_temperature, key, output)

    def decision(self, model: str, matrix: Sequence[MatrixRow], ledger: Sequence[str]) -> ModelRequest:
        """The decision."""
        caps, style = self.params.caps, self.params.style
        messages = render_decision(self.goal, matrix, ledger, self.form)
        output = shapes.decision_schema(caps, style, [row.id for row in matrix])
        return self._request(model, messages, caps.decision, self.params.decision_temperature, "decide", output)

    def wrap_up(self, model: str, matrix: Sequence[MatrixRow]) -> ModelRequest:
        """The held-back call: plain text, so that it needs no repair."""
        messages = render_wrap_up(self.goal, matrix, self.form)
        temperature = self.params.decision_temperature
        return self._request(model, messages, self.params.caps.decision, temperature, "wrap-up", None)

    def _request(
        self,
        model: str,
        messages: tuple[Message, ...],
        cap: int,
        temperature: float | None,
        key: str,
        output: OutputSchema | None,
    ) -> ModelRequest:
        return ModelRequest(
            model=model,
            messages=messages,
            max_output_tokens=cap + self.params.reasoning_tokens,
            temperature=temperature,
            seed=_seed(self.params.seed, key),
            output=output,
        )


def _seed(seed: int | None, key: str) -> int | None:
    """A call's own seed: with one seed for all, members with similar prompts would say the same."""
    if seed is None:
        return None
    return int.from_bytes(hashlib.sha256(f"{seed}/{key}".encode()).digest()[:4], "big") >> 1
