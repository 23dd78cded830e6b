"""The shipped library and a user's persona file."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from romanesco.errors import InputError, UnknownName
from romanesco.personas import (
    AXES,
    EVALUATORS,
    FRAME_CHALLENGER,
    GENERATORS,
    Persona,
    PersonaRole,
    builtin_personas,
    find_persona,
    load_personas,
)

NEW = """
[personas.data-engineer]
name = "Data Engineer"
brief = "Propose what the data can carry."
bias = { evidence_demand = 0.8 }
"""


def load(tmp_path: Path, text: str) -> dict[str, Persona]:
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    return dict(load_personas(file))


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        load(tmp_path, text)
    return str(caught.value).replace(str(tmp_path), "DIR")


def test_the_library_has_the_five_named_roles_and_eight_or_more_domain_personas() -> None:
    library = builtin_personas()
    assert {GENERATORS, EVALUATORS} <= {tuple(list(library)[:3]), tuple(list(library)[3:5])}
    assert {library[one].role for one in GENERATORS} == {PersonaRole.GENERATOR}
    assert {library[one].role for one in EVALUATORS} == {PersonaRole.EVALUATOR}
    domain = [p for p in library.values() if p.id not in (*GENERATORS, *EVALUATORS)]
    assert len(domain) >= 8
    assert {p.role for p in domain} == {PersonaRole.GENERATOR}


def test_only_the_frame_challenger_is_mandatory() -> None:
    assert [p.id for p in builtin_personas().values() if p.mandatory] == [FRAME_CHALLENGER]


@pytest.mark.parametrize("persona", builtin_personas().values(), ids=lambda p: p.id)
def test_each_shipped_persona_is_brief_and_leans_somewhere(persona: Persona) -> None:
    # 20 tokens at most with a 32,000-word tokenizer; 90 characters keep English below 30 with any.
    assert len(persona.brief) <= 90
    assert persona.brief.count(".") == 1 and persona.brief.endswith(".")
    assert 2 <= persona.charter.count(".") <= 5
    assert any(persona.beta)
    assert persona.model is None and persona.tools == ()


def test_shipped_personas_differ_in_name_texts_and_bias() -> None:
    for one, other in combinations(builtin_personas().values(), 2):
        assert one.name != other.name
        assert one.brief != other.brief
        assert one.charter != other.charter
        assert one.beta != other.beta


def test_each_axis_is_used_in_both_directions() -> None:
    for axis in AXES:
        values = [p.bias[axis] for p in builtin_personas().values()]
        assert min(values) <= -0.5, axis
        assert max(values) >= 0.5, axis


def test_the_library_is_read_only() -> None:
    library = builtin_personas()
    with pytest.raises(TypeError):
        library["x"] = library[FRAME_CHALLENGER]  # type: ignore[index]  # that it is refused is the point


def test_a_new_persona_is_added_behind_the_library(tmp_path: Path) -> None:
    library = load(tmp_path, NEW)
    assert list(library) == [*builtin_personas(), "data-engineer"]
    persona = library["data-engineer"]
    assert persona.role is PersonaRole.GENERATOR
    assert persona.charter == persona.brief == "Propose what the data can carry."
    assert "data-engineer" not in builtin_personas()


def test_a_known_id_changes_only_what_the_file_states(tmp_path: Path) -> None:
    text = """
    [personas.security-engineer]
    model = "openai:gpt-5-mini"
    tools = ["search"]
    bias = { dissent = -0.5 }
    """
    old = builtin_personas()["security-engineer"]
    new = load(tmp_path, text)["security-engineer"]
    assert (new.model, new.tools) == ("openai:gpt-5-mini", ("search",))
    assert new.bias == {**old.bias, "dissent": -0.5}
    assert (new.name, new.brief, new.charter, new.role) == (old.name, old.brief, old.charter, old.role)


def test_a_prompt_over_several_lines_becomes_one_line(tmp_path: Path) -> None:
    text = NEW + 'charter = """\nYou follow the data.\n  Say where it comes from.\n"""\n'
    persona = load(tmp_path, text)["data-engineer"]
    assert persona.charter == "You follow the data. Say where it comes from."


def test_a_byte_order_mark_is_no_obstacle(tmp_path: Path) -> None:
    assert "data-engineer" in load(tmp_path, "\ufeff" + NEW)


def test_the_fixed_fields_of_a_named_role_may_be_repeated(tmp_path: Path) -> None:
    text = '[personas.frame-challenger]\nrole = "generator"\nmandatory = true\nname = "Contrarian"'
    assert load(tmp_path, text)[FRAME_CHALLENGER].name == "Contrarian"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            NEW.replace("0.8", "8"),
            "DIR/mine.toml: persona 'data-engineer', field 'bias.evidence_demand': is out of range; got 8;"
            " limit"
            " -1 to 1. 0 means no leaning.",
        ),
        (
            NEW.replace("0.8", "1" + "0" * 400),
            "DIR/mine.toml: persona 'data-engineer', field 'bias.evidence_demand': is out of range; got"
            f" 1{'0' * 59}... (401 characters); limit -1 to 1. 0 means no leaning.",
        ),
        (
            NEW.replace("name =", "nmae ="),
            "DIR/mine.toml: persona 'data-engineer': unknown field; got 'nmae'; limit name, role, brief,"
            " charter,"
            " bias, mandatory, tools, model. Correct the name or remove the line.",
        ),
        (
            NEW.replace("[personas.data-engineer]", "[personas.data-engineer]\nid = 'x'"),
            "DIR/mine.toml: persona 'data-engineer': unknown field; got 'id'; limit name, role, brief,"
            " charter,"
            " bias, mandatory, tools, model. Correct the name or remove the line.",
        ),
        (
            NEW.replace('brief = "Propose what the data can carry."', ""),
            "DIR/mine.toml: persona 'data-engineer', field 'brief': missing; limit a new persona needs name,"
            " brief, bias. Add 'brief', or correct the id if you meant to change a persona of the library.",
        ),
        (
            "[data-engineer]\nname = 'x'",
            "DIR/mine.toml: unknown key 'data-engineer'; limit [personas.ID] tables only. Write"
            " [personas.data-engineer] if it is a persona, or remove it.",
        ),
        (
            "personas = 3",
            "DIR/mine.toml: 'personas' is not a table; limit [personas.ID] tables only. Rename that key.",
        ),
        (
            "[personas]\nx = 3",
            "DIR/mine.toml: persona 'x' is not a table; got 3; limit [personas.ID] tables only",
        ),
        (
            "",
            "DIR/mine.toml: no persona in it; limit [personas.ID] tables only. Add one, or drop the option.",
        ),
        (
            "[personas.frame-challenger]\nmandatory = false",
            "DIR/mine.toml: persona 'frame-challenger', field 'mandatory': can't be changed; got False; limit"
            " true. It is one of the five named roles; define a persona of your own instead.",
        ),
        (
            "[personas.friction-engine]\nrole = 'generator'",
            "DIR/mine.toml: persona 'friction-engine', field 'role': can't be changed; got 'generator'; limit"
            " evaluator. It is one of the five named roles; define a persona of your own instead.",
        ),
        (
            "[personas.security-engineer]\nbias = 1",
            "DIR/mine.toml: persona 'security-engineer', field 'bias': is not a table; got 1; limit a table."
            " Write for example bias = { novelty = 0.5, dissent = -0.2 }.",
        ),
        (
            "[personas.Boss]\nname = 'x'\nbrief = 'y'\nbias = {}",
            "DIR/mine.toml: persona id is not a slug; got 'Boss'; limit lower-case letters, digits and single"
            " hyphens, at most 40 characters. Rename it, for example 'data-engineer'.",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_file_persona_field_value_and_range(
    tmp_path: Path, text: str, message: str
) -> None:
    assert refusal(tmp_path, text) == message


@pytest.mark.parametrize("text", ["[personas", NEW + NEW, "a = " + "[" * 5000, "a = " + "1" * 5000])
def test_what_is_not_toml_is_refused_with_a_reason(tmp_path: Path, text: str) -> None:
    message = refusal(tmp_path, text)
    assert message.startswith("DIR/mine.toml: not TOML: ")
    assert message.endswith(". Correct the file at that place.")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_personas(tmp_path / "none.toml")
    assert str(caught.value) == (
        f"persona file {tmp_path / 'none.toml'} can't be read: No such file or directory."
        " Give the path of a readable TOML file."
    )


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read: Is a directory"):
        load_personas(tmp_path)


def test_a_path_with_a_nul_is_refused() -> None:
    with pytest.raises(InputError, match="can't be read"):
        load_personas("a\0b")


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes(b"name = \xff")
    with pytest.raises(InputError) as caught:
        load_personas(file)
    assert str(caught.value) == f"persona file {file} is not UTF-8 text; got byte 0xff at offset 7. Save it as UTF-8."


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes(b"#" * 1_000_001)
    with pytest.raises(InputError, match="too large; got more than 1000000 bytes; limit 1000000 bytes"):
        load_personas(file)


def test_an_unknown_id_is_refused_with_the_ids_there_are() -> None:
    with pytest.raises(UnknownName) as caught:
        find_persona(builtin_personas(), "frame-chalenger")
    assert str(caught.value).startswith("no persona has that id; got 'frame-chalenger'; limit radical-speculator, ")
    assert find_persona(builtin_personas(), FRAME_CHALLENGER).name == "Frame Challenger"
