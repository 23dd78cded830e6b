"""Servers' refusals, as they word them, and the errors that they become."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from romanesco.errors import (
    ContextOverflow,
    KeyMissing,
    ModelError,
    RateLimited,
    ReplyUnreadable,
    RequestRejected,
    ServerFault,
)
from romanesco.models._openai_errors import (
    EXCERPT,
    Caller,
    Refusal,
    error_from,
    error_in_stream,
    names_unsupported,
    parse_error,
    retry_after,
    unreadable,
)

KEY = "sk-canary-0123456789abcdef"
CALLER = Caller("acme:big", "https://api.acme.example/v1", "ACME_API_KEY", (KEY,))


def refused(status: int, body: Any, headers: dict[str, str] | None = None) -> ModelError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return error_from(Refusal(status, headers or {}, data), CALLER)


# The wording is each provider's own; the numbers are made up.
OVERFLOWS: dict[str, tuple[int, Any]] = {
    "openai": (400, {"error": {"code": "context_length_exceeded", "message": "too long"}}),
    "openai, old": (
        400,
        {"error": {"message": "This model's maximum context length is 8192 tokens. However, your messages are 9000."}},
    ),
    "vllm": (
        400,
        {
            "object": "error",
            "message": "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context "
            "length is 4096 tokens and your request has 200 input tokens.",
            "code": 400,
        },
    ),
    "vllm, prompt": (
        400,
        {"error": {"message": "The decoder prompt (length 5000) is longer than the maximum model length of 4096."}},
    ),
    "llama.cpp": (
        400,
        {
            "error": {
                "code": 400,
                "message": "request (9000 tokens) exceeds the available context size (2048 tokens), try increasing it",
                "type": "exceed_context_size_error",
                "n_ctx": 2048,
            }
        },
    ),
    "llama.cpp, as a 500": (500, {"error": {"message": "the request exceeds the available context size"}}),
    "anthropic": (
        400,
        {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8"}},
    ),
    "google": (
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": "The input token count (1200000) exceeds the maximum number of tokens allowed (9).",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
    ),
    "mistral": (
        400,
        {"message": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length", "code": "x"},
    ),
    "tgi": (422, {"error": "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000"}),
    "together": (
        422,
        {"error": {"message": "`inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens"}},
    ),
    "sglang": (
        400,
        {"message": "The input (5000 tokens) is longer than the model's context length (4096 tokens)."},
    ),
    "groq": (413, {"error": {"message": "Please reduce the length of the messages or completion."}}),
    "xai": (400, {"error": "This model's maximum prompt length is 131072 but the request contains 140000 tokens."}),
    "ollama": (400, {"error": {"message": "the input length exceeds the context length"}}),
    "bedrock": (400, {"message": "Input is too long for requested model."}),
}


@pytest.mark.parametrize("provider", OVERFLOWS)
def test_br_104_context_errors_of_every_provider_are_one_error(provider: str) -> None:
    status, body = OVERFLOWS[provider]
    error = refused(status, body)
    assert isinstance(error, ContextOverflow)
    assert not error.retryable
    assert "window of acme:big" in str(error)


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (401, {"error": {"message": "bad key"}}, KeyMissing, "ACME_API_KEY"),
        (403, {"error": {"message": "no"}}, KeyMissing, "ACME_API_KEY"),
        (402, {"error": "pay"}, RequestRejected, "out of credit"),
        (404, {"error": {"message": "no such model"}}, RequestRejected, "romanesco models"),
        (400, {"detail": [{"loc": ["body"], "msg": "odd"}]}, RequestRejected, "odd"),
        (429, {"error": {"message": "slow"}}, RateLimited, "slow"),
        (429, {"error": {"message": "no", "code": "insufficient_quota"}}, RequestRejected, "will not help"),
        (408, b"", ServerFault, "no message"),
        (500, b"<html><style>p{}</style><h1>Oh no</h1></html>", ServerFault, "answered 500: Oh no"),
        (529, {"error": {"message": "overloaded"}}, ServerFault, "overloaded"),
        (301, b"", RequestRejected, "redirects"),
        (307, b"prompt is long", RequestRejected, "redirects"),
        (201, {"choices": []}, ReplyUnreadable, "HTTP status 201"),
        (204, b"", ReplyUnreadable, "HTTP status 204"),
        (202, b"prompt is too long", ReplyUnreadable, "HTTP status 202"),
        (500, b"[" * 100_000, ServerFault, "answered 500"),
        (400, b"\xff\xfe", RequestRejected, "answered 400"),
        (400, b"[]", RequestRejected, "answered 400"),
        (400, {"error": {"odd": 1}}, RequestRejected, '"odd": 1'),
        # a wording that only looks like an overflow must not become one
        (400, {"error": {"message": "max_tokens is too large: 9. At most 8 completion tokens"}}, RequestRejected, "9"),
        (429, {"error": {"message": "Request too large on tokens per min"}}, RateLimited, "per min"),
    ],
)
def test_statuses(status: int, body: Any, kind: type[ModelError], words: str) -> None:
    error = refused(status, body)
    assert type(error) is kind
    assert words in str(error)


def test_the_servers_words_are_cut_and_on_one_line() -> None:
    error = refused(400, {"error": {"message": "a\nb\x1b[31m " + "x" * 1000}})
    assert "a b [31m xxx" in str(error)
    assert len(error.what) < EXCERPT + 50


NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "message", "seconds"),
    [
        ({"retry-after": "7"}, "", 7.0),
        ({"retry-after": "0.25"}, "", 0.25),
        ({"retry-after": "7", "retry-after-ms": "1500"}, "", 1.5),
        ({"retry-after": "Thu, 01 Jan 2026 12:00:30 GMT"}, "", 30.0),
        ({"retry-after": "Thu, 01 Jan 2026 11:00:00 GMT"}, "", 0.0),
        # the server's clock is what its date is written by
        ({"retry-after": "Thu, 01 Jan 2026 15:00:30 GMT", "date": "Thu, 01 Jan 2026 15:00:00 GMT"}, "", 30.0),
        ({"retry-after": "soon"}, "", None),
        ({"retry-after": "-3"}, "", None),
        ({"retry-after": "nan"}, "", None),
        ({"retry-after": "inf"}, "", None),
        ({}, "Please try again in 1.5s.", 1.5),
        ({}, "Please try again in 20ms.", 0.02),
        ({}, "Later.", None),
    ],
)
def test_br_091_retry_after(headers: dict[str, str], message: str, seconds: float | None) -> None:
    assert retry_after(headers, message, now=NOW) == seconds


def test_br_091_the_wait_is_in_the_error() -> None:
    error = refused(429, {"error": {"message": "slow"}}, {"retry-after": "3"})
    assert isinstance(error, RateLimited)
    assert error.retry_after == 3.0


@pytest.mark.parametrize(
    ("payload", "begun", "kind"),
    [
        ({"error": {"message": "slow", "code": 429}}, False, RateLimited),
        ({"error": {"message": "slow", "type": "rate_limit_error"}}, False, RateLimited),
        ({"error": {"message": "who", "code": "invalid_api_key"}}, False, KeyMissing),
        ({"error": {"message": "bad", "type": "invalid_request_error"}}, False, RequestRejected),
        ({"object": "error", "message": "maximum context length is 5", "code": 400}, False, ContextOverflow),
        ({"error": {"message": "boom"}}, False, ServerFault),
        ({"error": "boom"}, False, ServerFault),
        # what was generated is paid for, whatever the event says
        ({"error": {"message": "slow", "code": 429}}, True, ServerFault),
    ],
)
def test_errors_inside_a_stream(payload: dict[str, Any], begun: bool, kind: type[ModelError]) -> None:
    assert type(error_in_stream(payload, CALLER, begun=begun)) is kind


@pytest.mark.parametrize(
    ("status", "body", "parameter", "answer"),
    [
        (400, {"error": {"message": "Unsupported parameter", "param": "max_tokens"}}, "max_tokens", True),
        (
            400,
            {"error": {"message": "'max_tokens' is not supported. Use 'max_completion_tokens'."}},
            "max_tokens",
            True,
        ),
        (422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"]}]}, "stream_options", True),
        (400, {"error": {"message": "Unrecognized request argument: seed"}}, "seed", True),
        (400, {"error": {"message": "temperature must be below 2", "param": "temperature"}}, "temperature", False),
        (
            400,
            {"error": {"message": "max_tokens is too large: this model's maximum context length is 5"}},
            "max_tokens",
            False,
        ),
        (500, {"error": {"message": "seed is not supported"}}, "seed", False),
        (400, {"error": {"message": "unknown field max_tokens_total"}}, "max_tokens", False),
    ],
)
def test_which_parameter_is_not_supported(status: int, body: Any, parameter: str, answer: bool) -> None:
    assert names_unsupported(Refusal(status, {}, json.dumps(body).encode()), parameter) is answer


@pytest.mark.parametrize(
    "echo",
    [
        f"Incorrect API key provided: {KEY}.",
        f"Incorrect API key provided: {KEY[:10]}****cdef.",
        f"header was Bearer {KEY}",
        "and somebody else's sk-other-99999999",
    ],
)
def test_keys_that_a_server_echoes_are_removed(echo: str) -> None:
    for text in (str(refused(401, {"error": {"message": echo}})), str(unreadable(CALLER, "odd", echo.encode()))):
        assert "[key]" in text
        assert KEY[:10] not in text
        assert "cdef" not in text
        assert "9999" not in text
    assert KEY not in repr(CALLER)


def test_parse_error_never_fails() -> None:
    for body in (b"", b"null", b"3", b'"x"', b"[]", b"[3]", b'{"error": null}', b'{"error": []}', b"\x00"):
        message, kind, parameter = parse_error(body)
        assert (type(message), type(kind), type(parameter)) == (str, str, str)


@pytest.mark.parametrize("message", ["Slow down.", "Slow down"])
def test_the_end_of_a_servers_sentence_is_not_doubled(message: str) -> None:
    said = str(refused(429, {"error": {"message": message}}))
    assert "answered 429: Slow down. Lower the concurrency" in said
