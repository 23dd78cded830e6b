"""Questions to a person that are waiting for an answer, and how an answer finds its question."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from romanesco.errors import InputError


@dataclass(slots=True)
class Question:
    """A question that waits."""

    id: str
    node: str
    key: str
    text: str
    choices: tuple[str, ...]
    answer: asyncio.Future[str]


@dataclass(slots=True)
class Questions:
    """The pending questions of one run, by id."""

    pending: dict[str, Question] = field(default_factory=dict)

    def open(self, question_id: str, node: str, key: str, text: str, choices: tuple[str, ...]) -> Question:
        """Add a question that waits."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        question = self.pending[question_id] = Question(question_id, node, key, text, choices, future)
        return question

    def close(self, question_id: str) -> None:
        """Remove a question, answered or given up: a late answer finds nothing."""
        self.pending.pop(question_id, None)

    def find(self, question_id: str | None, text: str) -> Question:
        """The question that an answer is for. It waits until its ``answer`` is set.

        Raises:
            InputError: No such question is pending; no id was given and several are; or it isn't a choice.
        """
        waiting = {name: question for name, question in self.pending.items() if not question.answer.done()}
        if question_id is None:
            if len(waiting) > 1:
                raise InputError(
                    "The answer names no question and several are pending",
                    value=len(waiting),
                    limit=", ".join(waiting),
                    advice="Name one: romanesco answer RUN ID TEXT.",
                )
            question_id = next(iter(waiting), "")
        question = waiting.get(question_id)
        if question is None:
            raise InputError(
                "No such question is pending",
                value=question_id or "none",
                limit=", ".join(waiting) or "no question is pending",
                advice="It may have been answered, or the node was stopped. See: romanesco show RUN.",
            )
        if question.choices and text not in question.choices:
            raise InputError("The answer is not one of the choices", value=text, limit=", ".join(question.choices))
        return question
