"""How options are read."""

from __future__ import annotations

import io
from decimal import Decimal
from pathlib import Path

import pytest

from romanesco.errors import InputError
from romanesco.interfaces.cli._main import split_debug
from romanesco.interfaces.cli._options import dollars, minutes, read_goal, read_models, read_params, whole


def test_models_are_read_by_role() -> None:
    given = ["embedded:smollm2", "decision-maker=openai:gpt-5-mini", "evaluator=http://127.0.0.1:1/v1#a=b"]
    assert read_models(given) == {
        "default": "embedded:smollm2",
        "decision-maker": "openai:gpt-5-mini",
        "evaluator": "http://127.0.0.1:1/v1#a=b",
    }


def test_an_equals_sign_in_a_models_name_is_no_role() -> None:
    assert read_models(["http://127.0.0.1:1/v1#a=b"]) == {"default": "http://127.0.0.1:1/v1#a=b"}


def test_a_role_that_is_given_two_models_is_refused() -> None:
    with pytest.raises(InputError, match="The model of evaluator is given twice"):
        read_models(["evaluator=a:b", "evaluator=c:d"])


def test_parameters_are_json_or_text() -> None:
    given = ["temperature=0.5", "members=a,b", "on-inadmissible=stop", "evaluators_propose=true", "x=a=b"]
    assert read_params(given) == {
        "temperature": 0.5,
        "members": "a,b",
        "on_inadmissible": "stop",
        "evaluators_propose": True,
        "x": "a=b",
    }


@pytest.mark.parametrize("wrong", ["temperature", "=3"])
def test_a_parameter_without_name_or_value_is_refused(wrong: str) -> None:
    with pytest.raises(InputError, match="NAME=VALUE"):
        read_params([wrong])


def test_zero_is_a_limit_and_is_kept() -> None:
    assert (whole("--tokens")("0"), dollars("0"), minutes("0")) == (0, Decimal(0), 0.0)


@pytest.mark.parametrize("wrong", ["-1", "x", "1.5", ""])
def test_a_wrong_count_names_option_value_and_limit(wrong: str) -> None:
    with pytest.raises(InputError) as caught:
        whole("--calls")(wrong)
    assert str(caught.value).startswith(f"--calls is wrong; got {wrong!r}; limit a whole number, 0 or more")


@pytest.mark.parametrize("wrong", ["-0.01", "nan", "inf", "a lot"])
def test_wrong_money_and_wrong_time_are_refused(wrong: str) -> None:
    with pytest.raises(InputError):
        dollars(wrong)
    with pytest.raises(InputError):
        minutes(wrong)


def test_the_goal_comes_from_a_file_without_its_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "goal.txt"
    file.write_bytes("\ufeffWhy? 你好".encode())
    assert read_goal(None, file) == "Why? 你好"


@pytest.mark.parametrize("goal", [None, "-"])
def test_the_goal_comes_from_a_pipe(goal: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("Why? 你好".encode()), encoding="ascii"))
    assert read_goal(goal, None) == "Why? 你好"


def test_debug_may_stand_anywhere_before_a_double_dash() -> None:
    assert split_debug(["show", "last", "--debug"]) == (["show", "last"], True)
    assert split_debug(["--debug", "show"]) == (["show"], True)
    assert split_debug(["run", "--", "--debug"]) == (["run", "--", "--debug"], False)
    assert split_debug(["run"]) == (["run"], False)
