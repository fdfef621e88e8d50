"""Java's .properties: what is written is read, and what Java's own reader reads."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.client.properties import MAX_CHARS, MalformedProperties, Property, parse_properties, property_line
from tests.support.effort import amount

texts = st.text(st.characters(exclude_categories=["Cs"]))


@settings(max_examples=amount(100, 3_000))
@given(key=texts, value=texts)
def test_what_is_written_is_read_again(key: str, value: str) -> None:
    line = property_line(key, value)
    assert line.isascii() and "\n" not in line and "\r" not in line
    if key:
        assert parse_properties(f"# first\n{line}\n") == [Property(2, key, value)]


@settings(max_examples=amount(100, 3_000))
@given(st.text(alphabet=st.sampled_from("a=: \\\n\r\tu00e9#!é"), max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        properties = parse_properties(text)
    except MalformedProperties as error:
        assert "line " in str(error)
    else:
        assert all(1 <= each.line <= text.count("\n") + text.count("\r") + 1 for each in properties)


def test_the_forms_of_java_are_read() -> None:
    text = (
        "\ufeff# comment with = in it\r\n"
        "  ! another\n"
        "\n"
        "a=1\n"
        "b : 2\n"
        "c 3 = three\n"
        "d=one \\\n"
        "      two\\\\\n"
        "e\\ f\\=g = \\u00e9\\ud83d\\ude00 \\x\n"
        "empty\n"
        "# goes on? \\\n"
        "last==\\  "
    )
    assert parse_properties(text) == [
        Property(4, "a", "1"),
        Property(5, "b", "2"),
        Property(6, "c", "3 = three"),
        Property(7, "d", "one two\\"),
        Property(9, "e f=g", "é😀 x"),
        Property(10, "empty", ""),
        Property(12, "last", "=  "),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a=1\nb=\\u12", "line 2"),
        ("\\u", "line 1"),
        ("a=\\ud83d", "line 1 has half of a character"),
        ("a" * (MAX_CHARS + 1), "more than"),
    ],
)
def test_what_java_would_not_read_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(MalformedProperties, match=words):
        parse_properties(text)
