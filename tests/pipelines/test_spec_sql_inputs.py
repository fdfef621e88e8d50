"""Which tables a query reads, told without Spark."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.pipelines.spec.sql_inputs import Relation, relations


def names(query: str) -> list[str]:
    return [relation.name for relation in relations(query)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select * from orders", ["orders"]),
        ("SELECT a, b FROM orders o, customers AS c WHERE o.id = c.id", ["orders", "customers"]),
        ("select * from a join b on a.x = b.x, c left join d using (x, y)", ["a", "b", "c", "d"]),
        ("select * from (select x, y from inner_one) t, other", ["inner_one", "other"]),
        ("select * from (a join b on a.x = b.x)", ["a", "b"]),
        ("with t as (select 1 from a), u (x, y) as (select 2 from t) select * from t, u", ["a"]),
        ("select * from a where x in (select x from b) and exists (select 1 from c)", ["a", "b", "c"]),
        ("select * from a union all select * from b order by x, y", ["a", "b"]),
        ("from a select x, y where x > 1", ["a"]),
    ],
)
def test_what_stands_in_a_from_clause_is_read(query: str, expected: list[str]) -> None:
    assert names(query) == expected


@pytest.mark.parametrize(
    "query",
    [
        "select extract(year from at), trim(both ' ' from name), substring(a from 2) from t",
        "select x is distinct from y, x is not distinct from y from t",
        "select 'from a', \"from b\", `from c` from t -- from d",
        "select /* from a */ x from t",
        "select x, y from t, range(3), values (1, 2), db.other",
        "select k, v from t lateral view explode(m) e as k, v",
        "select * from t as u(x, y)",
        "select * from t group by a, b having count(*) > 1 order by c, d limit 3",
        "select sum(x) over w, y from t window w as (partition by a, b)",
    ],
)
def test_everything_else_is_not(query: str) -> None:
    assert names(query) == ["t"]


def test_names_in_backquotes_are_read_as_they_are() -> None:
    assert names("select * from `Orders Of Today`") == ["Orders Of Today"]


def test_a_name_knows_its_line() -> None:
    assert relations("select *\nfrom a\n  join b\n  using (x)") == [Relation("a", 1), Relation("b", 2)]


@given(st.text("from join(),.`'\"-/*\n abSELECT withas", max_size=60))
def test_no_text_is_too_strange(query: str) -> None:
    for relation in relations(query):
        assert relation.name
