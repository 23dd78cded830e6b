"""Asks the embedded model for JSON by prompt alone, at temperature 1, and writes down what it answers.

The replies are raw material: ``captured.jsonl`` holds a chosen few, each labelled by a person. Run::

    python tests/models/corpus/capture.py --model SmolLM2-135M-Instruct.Q4_1.gguf --out replies.raw.jsonl

Needs ``xllamacpp`` (the extra ``local``). The same seed gives the same prompts and caps; the sampled text may differ
between builds of the library.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import urllib.request
from pathlib import Path
from typing import Any

SCHEMAS: dict[str, Any] = json.loads(Path(__file__).with_name("schemas.json").read_text(encoding="utf-8"))

GOALS = (
    "Grow a small bakery without a loan.",
    "Make a city bus line punctual.",
    "Cut the paper use of a school by half.",
    "Keep a village library open in the evening.",
    "Find out why a web shop loses customers at the payment page.",
    "Plan a first-aid course for 30 volunteers.",
)

ASKS = {
    "proposal": "Write a proposal in one or two sentences and say which of P1, P2, P3, P4 you back.",
    "critiques": "P1 says: 'Open one hour earlier and sell by subscription.' "
    "Write exactly three short critiques of P1.",
    "decision": "P1: start small. P2: ask the users first. P3: change nothing. Choose one, write the answer, and list "
    "what you absorbed from the others.",
    "frame": "Write a failure scenario, another framing of the goal, and a dimension that nobody has looked at.",
    "score": "P2 says: 'Ask the users first.' Give P2 a score from 1 to 5 and a reason.",
    "verdict": "P3 says: 'Change nothing.' Do you agree, and with what confidence between 0 and 1?",
    "ledger": "List what is known as entries of kind fact, constraint or risk, each with a short text.",
    "note": "Write the answer, add a note, and give it an id such as M-1.",
    "tags": "Give three tags, a level (low, lower or high) and how many people it concerns, or null.",
}

FIELDS = {
    "proposal": '"proposal" (text) and "backs" (one of "P1", "P2", "P3", "P4")',
    "critiques": '"critiques" (list of 3 texts)',
    "decision": '"chosen" (one of "P1", "P2", "P3"), "answer" (text) and "absorbed" (list of texts)',
    "frame": '"failure" (text), "reframing" (text) and "dimension" (text)',
    "score": '"score" (whole number 1 to 5) and "reason" (text)',
    "verdict": '"agree" (true or false) and "confidence" (number 0 to 1)',
    "ledger": '"entries" (list of objects with "kind" and "text")',
    "note": '"answer" (text), "note" (text) and "id" ("M-" and a number)',
    "tags": '"tags" (list of texts), "level" (one of "low", "lower", "high") and "count" (whole number or null)',
}

EXAMPLES = {
    "proposal": '{"proposal": "...", "backs": "P1"}',
    "critiques": '{"critiques": ["...", "...", "..."]}',
    "decision": '{"chosen": "P1", "answer": "...", "absorbed": ["..."]}',
    "frame": '{"failure": "...", "reframing": "...", "dimension": "..."}',
    "score": '{"score": 3, "reason": "..."}',
    "verdict": '{"agree": true, "confidence": 0.5}',
    "ledger": '{"entries": [{"kind": "fact", "text": "..."}]}',
    "note": '{"answer": "...", "note": "...", "id": "M-1"}',
    "tags": '{"tags": ["...", "..."], "level": "low", "count": 3}',
}

FIRST_SCHEMAS = ("critiques", "decision", "frame", "ledger", "proposal", "score", "verdict")
"""Those of the first two captures: without ``--schemas`` a seed gives the prompts that it gave then."""

CAPS = (24, 40, 64, 96, 140, 200)

FIRST_STYLES = ("fields", "example", "schema", "alone", "short")
STYLES = (*FIRST_STYLES, "told", "again")
"""How the shape is told: fields by name, an example, the JSON schema, an example after a system message, an example
after a system message and a request to be brief, the words of the ladder's prompt rung, or those of its re-ask."""

SYSTEM = "You reply with one JSON object and no other text."


def prompt(schema: str, style: str, goal: str) -> str:
    """The user message: the goal, the ask, and the shape in one of the styles."""
    head = f"Goal: {goal}\n{ASKS[schema]}\n"
    if style == "fields":
        return f"{head}Answer with one JSON object with the fields {FIELDS[schema]}."
    if style in ("told", "again"):
        return laddered(head, schema, style)
    if style in ("example", "alone"):
        return f"{head}Answer with JSON like this: {EXAMPLES[schema]}"
    if style == "short":
        return f"{head}Use at most ten words a text. Answer with JSON like this: {EXAMPLES[schema]}"
    return f"{head}Answer with JSON that fits this JSON schema:\n{json.dumps(SCHEMAS[schema])}"


def laddered(head: str, schema: str, style: str) -> str:
    """The user message as the ladder writes it: for the first ask, or after a reply in prose."""
    from romanesco.models import Message, ModelReply, ModelRequest, OutputSchema, Reask, Rung, judge, prepare

    ask = ModelRequest(
        "embedded:smollm2", (Message("user", head.strip()),), 100, output=OutputSchema(schema, SCHEMAS[schema])
    )
    if style == "again":
        verdict = judge(ModelReply("I think that this is a good idea."), ask, attempt=1)
        assert isinstance(verdict, Reask)
        ask = verdict.request
    return prepare(ask, Rung.PROMPT).messages[-1].content


def conversation(schema: str, style: str, goal: str) -> list[dict[str, str]]:
    """The messages of one ask."""
    user = {"role": "user", "content": prompt(schema, style, goal)}
    return [{"role": "system", "content": SYSTEM}, user] if style in ("alone", "short") else [user]


def post(base: str, body: dict[str, Any]) -> Any:
    """One chat completion."""
    request = urllib.request.Request(
        f"{base}/v1/chat/completions", data=json.dumps(body).encode(), headers={"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as response:
        return json.loads(response.read())


def serve(model: str) -> Any:
    """Start the server of ``xllamacpp`` on a free local port."""
    library = importlib.import_module("xllamacpp")
    params = library.CommonParams()
    params.model.path = model
    params.n_ctx = 4096
    params.n_parallel = 1
    params.cpuparams.n_threads = 2
    params.verbosity = -1
    params.port = 0
    return library.Server(params)


def capture(model: str, out: Path, count: int, seed: int, styles: list[str], schemas: list[str]) -> None:
    """Ask ``count`` times and write one JSON line a reply, as it comes."""
    server = serve(model)
    rng = random.Random(seed)
    with out.open("w", encoding="utf-8") as sink:
        for number in range(count):
            schema = rng.choice(sorted(schemas))
            style = rng.choice(styles)
            cap = rng.choice(CAPS)
            body = {
                "messages": conversation(schema, style, rng.choice(GOALS)),
                "max_tokens": cap,
                "temperature": 1.0,
                "seed": seed * 100_000 + number,
            }
            choice = post(server.listening_address, body)["choices"][0]
            line = {
                "id": f"c{seed}-{number:04d}",
                "origin": "captured",
                "finish": choice["finish_reason"],
                "text": choice["message"].get("content") or "",
                "reasoning": choice["message"].get("reasoning_content") or "",
                "schema": schema,
                "style": style,
                "cap": cap,
            }
            sink.write(json.dumps(line, ensure_ascii=False) + "\n")
            sink.flush()


def main() -> None:
    """Read the options and capture."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", required=True, help="path of the GGUF file")
    options.add_argument("--out", required=True, type=Path, help="file to write, one JSON line a reply")
    options.add_argument("--count", type=int, default=400, help="number of replies")
    options.add_argument("--seed", type=int, default=1, help="seed of prompts and sampling")
    options.add_argument(
        "--styles", nargs="+", choices=STYLES, default=list(FIRST_STYLES), help="how the shape is told"
    )
    options.add_argument(
        "--schemas", nargs="+", choices=sorted(ASKS), default=list(FIRST_SCHEMAS), help="what is asked for"
    )
    given = options.parse_args()
    capture(given.model, given.out, given.count, given.seed, given.styles, given.schemas)


if __name__ == "__main__":
    main()
