"""The relations that a query reads, found without Spark."""

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.pipelines.spec.sql_inputs import Relation, relations
from tests.pipelines.sql_examples import LEGAL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READS = {
    "select * from orders": ["orders"],
    "SELECT a, b FROM orders o, customers AS c WHERE o.id = c.id": ["orders", "customers"],
    "select * from a join b on a.x = b.x, c left join d using (x, y)": ["a", "b", "c", "d"],
    "select * from (select x, y from inner_one) t, other": ["inner_one", "other"],
    "select * from (a join b on a.x = b.x)": ["a", "b"],
    "select * from (a) x join ((b)) y": ["a", "b"],
    "select * from a where x in (select x from b) and exists (select 1 from c)": ["a", "b", "c"],
    "select (select max(x) from b) from a left join lateral (select * from c) on true": ["b", "a", "c"],
    "select * from a union all select * from b order by x, y": ["a", "b"],
    "from a select x, y where x > 1": ["a"],
    "from a |> join b using (x) |> union all (select * from c) |> select x": ["a", "b", "c"],
    "table a union all table b": ["a", "b"],
    "select * from (table a), stream b, stream(c)": ["a", "b", "c"],
    "select * from stream join table as t": ["stream", "table"],
    "select * from f(table(a))": ["a"],
}


def names(query: str) -> list[str]:
    return [relation.name for relation in relations(query)]


@pytest.mark.parametrize(("query", "expected"), READS.items())
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
        "select /*+ broadcast(z) */ x from t as z",
    ],
)
def test_everything_else_is_not(query: str) -> None:
    assert names(query) == ["t"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("with t as (select 1 from a), u (x, y) as (select 2 from t) select * from t, u", ["a"]),
        ("with X as (select 1 from a) select * from x", ["a"]),
        ("with x as (table a) table x", ["a"]),
        ("with x as (select * from x) select * from x", ["x"]),
        ("with x as (select 1 from y), y as (select 1 from a) select * from x, y", ["y", "a"]),
        ("select * from (with x as (select 1 from a) select * from x) join x", ["a", "x"]),
        ("with recursive x as (select 1 as n union all select n + 1 from x) select * from x, a", ["a"]),
    ],
)
def test_a_common_table_hides_a_relation_only_where_it_is_defined(query: str, expected: list[str]) -> None:
    assert names(query) == expected


def test_spark_finds_the_same_relations(spark: "SparkSession") -> None:
    parser = spark._jsparkSession.sessionState().sqlParser()
    for query in (*READS, *LEGAL):
        plan = parser.parsePlan(query).toString()
        defined = {name.strip() for ctes in re.findall(r"CTE \[(.*?)]", plan) for name in ctes.split(",")}
        found = set(re.findall(r"UnresolvedRelation \[([^],]*)]", plan)) - defined
        assert set(names(query)) == found, query


def test_a_query_that_sqlglot_does_not_parse_may_read_each_name_in_the_place_of_a_relation() -> None:
    found = relations("from a |> set x = 1 |> join b\n|> union all (from c, `d e`, f(1), g.h select x, y)")
    assert Relation("d e", 1, is_certain=False) in found
    names = {relation.name for relation in found}
    assert {"a", "b", "c"} <= names
    assert not {"f", "g", "h"} & names


def test_names_in_backquotes_are_read_as_they_are() -> None:
    assert names("select * from `Orders Of Today`") == ["Orders Of Today"]


def test_a_name_knows_its_line() -> None:
    assert relations("select *\nfrom a\n  join b\n  using (x)") == [Relation("a", 1), Relation("b", 2)]
    assert relations("select 'ä\nö' /* é\n */\r\nfrom a -- ü\n, `b`") == [Relation("a", 3), Relation("b", 4)]


@given(st.text("from join(),.`'\"-/*\n abSELECT withas", max_size=60))
def test_no_text_is_too_strange(query: str) -> None:
    for relation in relations(query):
        assert relation.name
