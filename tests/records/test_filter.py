from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.records.filter import MAX_DEPTH, MAX_FILTER_CHARS, MAX_TESTS, FilterError, compile_filter
from headwater.records.record import Headers

COUNTRY: Headers = (("country", b"NL"), ("priority", b"7"), ("empty", b""), ("null", None))


def wanted(expression: str, key: bytes | None = b"order-1", headers: Headers = COUNTRY) -> bool:
    return compile_filter(expression)(key, headers)


@pytest.mark.parametrize(
    "expression",
    [
        "key = 'order-1'",
        'key = "order-1"',
        "key != 'order-2'",
        "key prefix 'order-'",
        "key contains 'er-'",
        "key < 'order-2' and key >= 'order-1'",
        "header('country') in ('BE', 'NL')",
        "header('country') not in ('DE')",
        "header('priority') > 6.5",
        "header('priority') = 7.0",
        "header('priority') in (1, 7)",
        "header('priority') in ('x', '7')",
        "exists(header('empty')) and not exists(header('null'))",
        "not exists(header('none')) and exists(key)",
        "header('none') != 'x' and header('none') not in (1)",
        "NOT (key = 'a' OR key = 'b') AND exists(key)",
        "key = 'a' and key = 'b' or key = 'order-1'",
        "header('country') != 5",
        "header('empty') prefix ''",
    ],
)
def test_a_record_is_wanted(expression: str) -> None:
    assert wanted(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "key = 'order'",
        "header('none') = ''",
        "header('none') < 'z' or header('none') >= ''",
        "header('null') prefix '' or header('null') contains ''",
        "header('country') < 5 or header('country') >= 5 or header('country') = 5",
        "header('priority') > 10",
        "key = 'order-1' and (key = 'a' or key = 'b')",
        "not not not exists(key)",
    ],
)
def test_a_record_is_not_wanted(expression: str) -> None:
    assert not wanted(expression)


def test_strings_compare_by_bytes_and_numbers_by_value() -> None:
    assert wanted("header('n') < '9'", headers=(("n", b"10"),))
    assert not wanted("header('n') < 9", headers=(("n", b"10"),))


def test_of_a_repeated_header_the_last_counts() -> None:
    assert wanted("header('a') = '2'", headers=(("a", b"1"), ("a", b"2")))


def test_escapes_and_bytes_that_are_no_text() -> None:
    assert wanted(r"key = 'it\'s \\ \"'", key=b"it's \\ \"")
    assert not wanted("key contains 'x'", key=b"\xff\xfe")
    assert wanted("key = 'é'", key="é".encode())


@pytest.mark.parametrize(
    ("expression", "position", "reason"),
    [
        ("", 0, "not the end"),
        ("key", 3, "a comparison"),
        ("key = ", 6, "a string in quotes"),
        ("key = 'a", 6, "does not end"),
        ("key = 'a' key", 10, "and, or, or the end"),
        ("key = 'a\\n'", 6, "does not end"),
        ("key ~ 'a'", 4, "means nothing"),
        ("header(a) = 1", 7, "a string"),
        ("(key = 'a'", 10, "')'"),
        ("key in ()", 8, "a string"),
        ("key prefix 5", 11, "a string"),
        ("value = 'a'", 0, "key, header"),
        ("__import__('os')", 0, "means nothing"),
        ("key not = 'a'", 8, "in is expected"),
        ("key = " + "9" * 40, 6, "at most 32"),
    ],
)
def test_an_error_says_where_and_why(expression: str, position: int, reason: str) -> None:
    with pytest.raises(FilterError) as raised:
        compile_filter(expression)
    assert raised.value.position == position
    assert reason in str(raised.value)
    assert f"at character {position + 1}" in str(raised.value)


def test_length_depth_and_number_of_tests_are_limited() -> None:
    test = "exists(key)"
    assert compile_filter("(" * (MAX_DEPTH - 1) + test + ")" * (MAX_DEPTH - 1))(b"", ())
    for nested in ("(" * MAX_DEPTH + test + ")" * MAX_DEPTH, "not " * MAX_DEPTH + test):
        with pytest.raises(FilterError, match="nested"):
            compile_filter(nested)
    with pytest.raises(FilterError, match="characters"):
        compile_filter(" " * (MAX_FILTER_CHARS + 1))
    assert not compile_filter(" or ".join(["key=1"] * MAX_TESTS))(b"", ())
    with pytest.raises(FilterError, match="tests"):
        compile_filter(" or ".join(["key=1"] * (MAX_TESTS + 1)))


@given(st.text(alphabet="keyhadrotn('\"),=<>!15 \\", max_size=60))
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    try:
        found = compile_filter(text)
    except FilterError:
        return
    assert found(b"5", ()) in (True, False)


# A naive evaluator of the same trees

FIELDS = ("key", "header('a')", 'header("b")')
VALUES: list[bytes | None] = [None, b"", b"1", b"10", b"9", b"-2.5", b"ab", b"abc", b"\xff"]
STRINGS = ["", "1", "9", "a", "ab", "abc"]
NUMBERS = ["1", "9", "-2.5", "10.0"]


def literals() -> st.SearchStrategy[tuple[str, bytes | Decimal]]:
    return st.one_of(
        st.sampled_from(STRINGS).map(lambda text: (f"'{text}'", text.encode())),
        st.sampled_from(NUMBERS).map(lambda text: (text, Decimal(text))),
    )


def naive_equals(value: bytes | None, literal: bytes | Decimal) -> bool:
    if isinstance(literal, bytes):
        return value == literal
    return (number := naive_number(value)) is not None and number == literal


def naive_number(value: bytes | None) -> Decimal | None:
    return Decimal(value.decode()) if value in (b"1", b"10", b"9", b"-2.5") else None


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> tuple[str, object]:
    kind = draw(st.sampled_from(["test", "test", "and", "or", "not"])) if depth else "test"
    if kind == "not":
        text, tree = draw(trees(depth - 1))
        return f"not ({text})", ("not", tree)
    if kind in ("and", "or"):
        (left, one), (right, other) = draw(trees(depth - 1)), draw(trees(depth - 1))
        return f"({left}) {kind} ({right})", (kind, one, other)
    field = draw(st.integers(0, 2))
    what = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "in", "not in", "prefix", "contains", "exists"]))
    if what == "exists":
        return f"exists({FIELDS[field]})", ("exists", field)
    if what in ("prefix", "contains"):
        string = draw(st.sampled_from(STRINGS))
        return f"{FIELDS[field]} {what} '{string}'", (what, field, string.encode())
    if what.endswith("in"):
        chosen = draw(st.lists(literals(), min_size=1, max_size=3))
        texts = ", ".join(text for text, _ in chosen)
        return f"{FIELDS[field]} {what} ({texts})", (what, field, [value for _, value in chosen])
    text, value = draw(literals())
    return f"{FIELDS[field]}{what}{text}", (what, field, value)


def naive(tree: object, values: list[bytes | None]) -> bool:
    match tree:
        case ("not", inner):
            return not naive(inner, values)
        case ("and", one, other):
            return naive(one, values) and naive(other, values)
        case ("or", one, other):
            return naive(one, values) or naive(other, values)
        case ("exists", int(field)):
            return values[field] is not None
        case ("prefix", int(field), bytes(part)):
            return values[field] is not None and (values[field] or b"")[: len(part)] == part
        case ("contains", int(field), bytes(part)):
            return values[field] is not None and part in (values[field] or b"")
        case ("in", int(field), list(chosen)):
            return any(naive_equals(values[field], each) for each in chosen)
        case ("not in", int(field), list(chosen)):
            return not any(naive_equals(values[field], each) for each in chosen)
        case ("=", int(field), bytes() | Decimal() as literal):
            return naive_equals(values[field], literal)
        case ("!=", int(field), bytes() | Decimal() as literal):
            return not naive_equals(values[field], literal)
        case (str(sign), int(field), bytes() | Decimal() as literal):
            value = values[field] if isinstance(literal, bytes) else naive_number(values[field])
            if value is None:
                return False
            side = (value > literal) - (value < literal)  # type: ignore[operator]
            return {"<": side < 0, "<=": side <= 0, ">": side > 0, ">=": side >= 0}[sign]
    raise AssertionError(tree)


@given(trees(), st.lists(st.sampled_from(VALUES), min_size=3, max_size=3))
def test_a_compiled_filter_says_what_a_naive_evaluator_says(
    expression: tuple[str, object], values: list[bytes | None]
) -> None:
    text, tree = expression
    headers = (("a", values[1]), ("b", values[2]))
    assert compile_filter(text)(values[0], headers) is naive(tree, values)
