"""Where keys stand in a TOML file, checked against what tomllib reads."""

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headwater.pipelines.spec.toml_lines import Lines, key_lines

FILE = '''\
name = "a"  # not = a key
trigger = "1s"

[source.orders]
kind = 'topic'
"quoted key" = 1
options = { "a.b" = 1, c = [1,
  2] }

[step.sum]
kind = "sql"
sql = """
select "name" = 'x' -- a = 1
from orders
[not.a.table]
"""
after = 1
dotted.key.here = true
list = [
  "one",  # comment ]
  { inner = "two" },
]

[[many]]
x = 1
[[many]]
x = 2
[many.below]
y = 3
'''


def test_keys_and_tables_have_the_line_where_they_stand() -> None:
    lines = key_lines(FILE)
    assert lines["name",] == Lines(1, 1)
    assert lines["source", "orders"].key == 4
    assert lines["source", "orders", "quoted key"].key == 6
    assert lines["source", "orders", "options", "c"].key == 7
    assert lines["source", "orders", "options", "c", 1].key == 8
    assert lines["step", "sum", "after"].key == 17
    assert lines["step", "sum", "dotted", "key", "here"].key == 18
    assert lines["step", "sum", "list", 1, "inner"].key == 21
    assert lines["many", 1, "x"].key == 27
    assert lines["many", 1, "below", "y"].key == 29


def test_a_text_of_many_lines_begins_below_its_quotes() -> None:
    assert key_lines(FILE)["step", "sum", "sql"] == Lines(12, 13)
    assert key_lines('a = """x\ny"""')["a",] == Lines(1, 1)


def test_what_looks_like_a_key_inside_a_text_is_none() -> None:
    lines = key_lines(FILE)
    assert ("not", "a", "table") not in lines
    assert set(lines) == set(_paths(tomllib.loads(FILE)))


def test_quotes_at_the_end_of_a_text_belong_to_it() -> None:
    text = 'a = """x""""\nb = \'\'\'y\'\'\'\'\'\nc = "\\\\"\nd = 1\n'
    assert tomllib.loads(text) == {"a": 'x"', "b": "y''", "c": "\\", "d": 1}
    assert key_lines(text)["d",].key == 4


KEYS = st.text("ab.'\"\\ \n#[]=é", max_size=4)
VALUES = st.recursive(
    st.integers() | st.booleans() | st.text("ab'\"\\ \n#[]={},é", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, VALUES, max_size=4), st.data())
def test_every_path_that_tomllib_reads_is_found(values: dict[str, Any], data: st.DataObject) -> None:
    lines = [f"{_string(key, data)} = {_written(value, data)}  # end" for key, value in values.items()]
    text = "\n".join(lines)
    assert tomllib.loads(text) == values
    assert set(key_lines(text)) == set(_paths(values))


def _written(value: Any, data: st.DataObject) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case str():
            return _string(value, data)
        case list():
            return "[" + ",\n".join(_written(each, data) for each in value) + "]"
        case _:
            return "{" + ", ".join(f"{_string(k, data)} = {_written(v, data)}" for k, v in value.items()) + "}"


def _string(text: str, data: st.DataObject) -> str:
    if "'" not in text and "\n" not in text and data.draw(st.booleans()):
        return f"'{text}'"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    below = [deeper for key, each in inner for deeper in _paths(each, (*path, key))]
    return [path, *below] if path else below
