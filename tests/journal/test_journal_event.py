"""Canonical JSON and the hash chain."""

from __future__ import annotations

import hashlib
import json
import math
import threading
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from romanesco.errors import JournalCorrupt
from romanesco.journal import GENESIS, Event, canonical, digest, event_hash, make_event
from romanesco.journal._chain import check_chain
from romanesco.journal._payload import PAYLOAD_BYTES, fill, pack, payloads
from romanesco.testing._store_conformance import chain

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_canonical_json_comes_back_as_it_was(value: Any) -> None:
    text = canonical(value)
    assert json.loads(text) == value
    assert canonical(json.loads(text)) == text
    assert "\n" not in text


def test_canonical_json_does_not_depend_on_the_order_of_keys() -> None:
    assert canonical({"b": [1, {"d": 1, "c": 2}], "a": "é"}) == '{"a":"é","b":[1,{"c":2,"d":1}]}'


@given(st.text(st.characters(codec=None), max_size=20))
def test_halves_of_surrogate_pairs_can_be_stored(text: str) -> None:
    stored = canonical({"reply": text})
    assert stored.encode("utf-8").decode("utf-8") == stored
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    assert json.loads(stored) == {"reply": joined}


class Secret:
    def __repr__(self) -> str:
        return "canary-key"


@pytest.mark.parametrize(
    ("value", "path", "kind"),
    [
        ({"a": [1, {"b": threading.Lock()}]}, "$.a[1].b is of type lock", TypeError),
        ({"usd": Decimal("0.1")}, "$.usd is of type Decimal", TypeError),
        ({"x": {"y": (1, {2})}}, "$.x.y[1] is of type set", TypeError),
        ({"x": {1: "a", "b": 2}}, "$.x has a key of type int", TypeError),
        ({"x": {(1, 2): 3}}, "$.x has a key of type tuple", TypeError),
        ({"x": [0.5, math.nan]}, "$.x[1] is nan", ValueError),
        ({"x": -math.inf}, "$.x is -inf", ValueError),
        ({"x": 10**5000}, "$ can't be written as JSON", ValueError),
    ],
    ids=["lock", "decimal", "set", "keys", "tuple", "nan", "inf", "huge"],
)
def test_br_056_the_error_names_the_path_of_the_bad_leaf(value: Any, path: str, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        canonical(value)
    assert path in str(caught.value)


def test_br_056_a_value_that_contains_itself_is_named() -> None:
    value: dict[str, Any] = {"ok": 1}
    value["self"] = value
    with pytest.raises(ValueError, match=r"\$\.self\.self.* levels deep, or contains itself"):
        canonical(value)
    deep: Any = None
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="levels deep"):
        canonical({"deep": deep})


def test_br_125_a_secret_can_not_be_written_and_is_not_in_the_error() -> None:
    with pytest.raises(TypeError) as caught:
        canonical({"headers": {"authorization": Secret()}})
    assert "$.headers.authorization is of type Secret" in str(caught.value)
    assert "canary" not in repr(caught.value)


def test_the_hash_is_what_the_documentation_says() -> None:
    event = make_event(run="r", seq=3, kind="note", node="/", key="k é", at=1.5, body='{"a":"é"}', prev=GENESIS)
    text = f'["r",3,"note","/","k é",1.5,"{GENESIS}"]\n{{"a":"é"}}'
    assert event.hash == hashlib.sha256(text.encode()).hexdigest() == digest(text)
    assert event.data == {"a": "é"}


FIELDS = ("run", "seq", "kind", "node", "key", "at", "body", "prev")


@given(
    st.fixed_dictionaries({name: st.sampled_from(["", "a", '","', "a\n", "\n{}", "[]"]) for name in FIELDS}),
    st.sampled_from(FIELDS),
    st.sampled_from(["", "a", '","', "a\n", "\n{}", "[]"]),
)
def test_any_changed_field_changes_the_hash(fields: dict[str, Any], name: str, value: str) -> None:
    changed = {**fields, name: value}
    assert (event_hash(**fields) == event_hash(**changed)) == (fields == changed)


def test_names_that_can_not_be_stored_are_refused() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        make_event(run="r", seq=1, kind="k", node="", key="\ud800", at=0.0, body="{}", prev=GENESIS)
    with pytest.raises(ValueError, match="float values"):
        make_event(run="r", seq=1, kind="k", node="", key="", at=math.nan, body="{}", prev=GENESIS)


@given(st.integers(0, 9), st.sampled_from(FIELDS))
def test_the_chain_check_names_the_changed_event(index: int, name: str) -> None:
    events = chain("r", 10)
    values = {field: getattr(events[index], field) for field in (*FIELDS, "hash")}
    values[name] = values[name] + 1 if name in ("seq", "at") else values[name] + "x"
    events[index] = Event(**values)
    with pytest.raises(JournalCorrupt, match=f"seq {index + 1}"):
        check_chain(events, None, "r")


@pytest.mark.parametrize("index", [0, 4, 8])
def test_the_chain_check_names_the_missing_event(index: int) -> None:
    events = chain("r", 10)
    del events[index]
    with pytest.raises(JournalCorrupt, match=rf"Event {index + 1} of run r is missing .*verify"):
        check_chain(events, None, "r")
    events = chain("r", 10)
    check_chain(events, None, "r")
    check_chain(events[4:], events[3], "r")


LARGE = JSON | st.text(min_size=PAYLOAD_BYTES - 5, max_size=PAYLOAD_BYTES + 5)
MARKS = st.just({"$blob": "0" * 64}) | st.just({"$blob": 1}) | st.just({"$blob": "x", "more": 1})


@given(st.dictionaries(st.text(max_size=5), LARGE | MARKS, max_size=5))
def test_packed_data_comes_back_as_it_was(data: dict[str, Any]) -> None:
    body, blobs = pack(data)
    event = make_event(run="r", seq=1, kind="k", node="", key="", at=0.0, body=body, prev=GENESIS)
    assert fill(event, event.data, blobs) == data
    assert canonical(event.data) == body
    assert set(payloads(event.data).values()) == set(blobs)
    for name, value in event.data.items():
        assert len(canonical(value).encode()) <= PAYLOAD_BYTES
        large = len(canonical(data[name]).encode()) > PAYLOAD_BYTES
        marked = isinstance(data[name], dict) and "$blob" in data[name]
        assert (name in payloads(event.data)) == (large or marked)


def test_equal_payloads_have_one_digest_and_many_small_values_have_none() -> None:
    text = "é" * PAYLOAD_BYTES
    _, blobs = pack({"a": text, "b": text})
    assert list(blobs.values()) == [canonical(text).encode()]
    assert pack({f"k{index:03}": "x" * 50 for index in range(100)})[1] == {}


def test_br_056_the_path_is_from_the_top_also_beside_a_large_payload() -> None:
    with pytest.raises(TypeError, match=r"\$\.b\[0\] is of type set"):
        pack({"a": "x" * 5000, "b": [{1}]})
    with pytest.raises(TypeError, match="key of type int"):
        pack({"a": "x" * 5000, 1: "b"})  # type: ignore[dict-item]


def test_a_missing_or_altered_payload_names_its_event() -> None:
    body, blobs = pack({"reply": "x" * 2000})
    event = make_event(run="r", seq=7, kind="k", node="", key="", at=0.0, body=body, prev=GENESIS)
    with pytest.raises(JournalCorrupt, match="'reply' of event 7 of run r is missing"):
        fill(event, event.data, {})
    with pytest.raises(JournalCorrupt, match="'reply' of event 7 of run r is not what its digest says"):
        fill(event, event.data, dict.fromkeys(blobs, b'"other"'))
