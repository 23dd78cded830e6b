"""A run's journal as models: new runs that ask what it asked get what it got."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from romanesco.errors import JournalCorrupt
from romanesco.journal import canonical, digest
from romanesco.models import Capabilities, ModelRequest, RecordedReply, ReplayModel
from romanesco.runtime._codec import read_reply, request_data
from romanesco.runtime._recover import FoldedEvent


def recorded_models(
    events: Iterable[FoldedEvent], *, capabilities: Capabilities | None = None
) -> dict[str, ReplayModel]:
    """Models by role that answer from a run's journal, to be given to a new run as ``model=``.

    A model's name is the recorded one behind ``replay:``, and what it answers is free. It has a reply for each call
    that finished, by the call's node, key and request; any other request ends the new run with ``Diverged``. So goal,
    sources, topology and guards must be the recorded ones. What the plan chose by the model's window (style, caps)
    must be so too: give the recorded plan's parameters as ``params``, or the recorded model's ``capabilities``.

    Args:
        events: The run's events, from ``read_events``.
        capabilities: What the models say of themselves; by default that they take a schema and nothing else is known.

    Raises:
        JournalCorrupt: The events don't begin with the run's.
    """
    names: dict[str, str] = {}
    asked: dict[tuple[str, str], tuple[str, str]] = {}
    replies: dict[str, dict[str, list[RecordedReply]]] = {}
    for _, kind, node, key, data in events:
        if kind == "run.created":
            names = data["spec"]["models"]
        elif kind == "call.started":
            asked[node, key] = data["model"], data["fingerprint"]
        elif kind == "call.finished":
            model, fingerprint = asked[node, key]
            one = RecordedReply(read_reply(data), key=key, node=node)
            replies.setdefault(model, {}).setdefault(fingerprint, []).append(one)
    if not names:
        raise JournalCorrupt("The events are not those of a run", advice="Give what read_events gives.")
    models = {
        name: ReplayModel(
            replies.get(name, {}), name=f"replay:{name}", fingerprint=_as_asked_of(name), capabilities=capabilities
        )
        for name in names.values()
    }
    return {role: models[name] for role, name in names.items()}


def _as_asked_of(model: str) -> Callable[[ModelRequest], str]:
    """How the journal fingerprints a request to a model, whatever the model is called now."""

    def fingerprint(request: ModelRequest) -> str:
        return digest(canonical({**request_data(request), "model": model}))

    return fingerprint
