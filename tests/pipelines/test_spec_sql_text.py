"""Queries and expressions, judged without Spark: what Spark takes is taken, and mistakes are named with their line."""

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.pipelines.spec.spark_functions import built_in
from headwater.pipelines.spec.sql_inputs import relations
from headwater.pipelines.spec.sql_text import judge_expression, judge_query
from tests.pipelines.sql_examples import COLUMNS, ILLEGAL, LEGAL, TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def refused_by_spark(spark: "SparkSession", query: str) -> bool:
    try:
        spark.sql(query)
    except Exception:
        return True
    return False


@pytest.fixture
def tables(spark: "SparkSession") -> "SparkSession":
    session = spark.newSession()
    for name, columns in TABLES.items():
        session.createDataFrame([], columns).createOrReplaceTempView(name)
    return session


def test_spark_and_the_check_agree_about_every_query(tables: "SparkSession") -> None:
    assert [query for query in LEGAL if refused_by_spark(tables, query)] == []
    assert [query for query in ILLEGAL if not refused_by_spark(tables, query)] == []


def test_the_functions_are_those_that_spark_has(spark: "SparkSession") -> None:
    names = {row[0] for row in spark.sql("show system functions").collect()}
    assert {name for name in names if re.fullmatch(r"[a-z_]\w*", name)} == built_in()


def test_what_spark_takes_is_taken() -> None:
    assert len(LEGAL) > 150
    assert {query: judged for query in LEGAL if (judged := judge_query(query, COLUMNS).faults)} == {}


@pytest.mark.parametrize(("query", "says"), ILLEGAL.items())
def test_what_spark_refuses_is_explained(query: str, says: str) -> None:
    assert [fault.what for fault in judge_query(query, COLUMNS).faults if fault.what.startswith(says.rstrip("."))]


def test_the_tables_of_a_query_are_found_in_every_one() -> None:
    for query in LEGAL:
        assert {relation.name.lower() for relation in relations(query)} in ({"t"}, {"t", "u"}), query


def test_a_mistake_has_its_line() -> None:
    faults = judge_query("select id,\n  nme,\n  uper(name)\nfrom t\nwhere flg", COLUMNS).faults
    assert sorted((fault.line, fault.what.split(".")[0]) for fault in faults) == [
        (1, "there is no column nme"),
        (2, "there is no function uper"),
        (4, "there is no column flg"),
    ]


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("select id, name as n, t.amount from t", {"id", "n", "amount"}),
        ("select * from u", {"id", "name", "rate", "since"}),
        ("select u.*, t.id as other from t join u on t.id = u.id", {"id", "name", "rate", "since", "other"}),
        ("select * except (id) from u", {"name", "rate", "since"}),
        ("with x (one, two) as (select id, name from t) select * from x", {"one", "two"}),
        ("select id from t union all select rate from u", {"id"}),
        ("select posexplode(tags) as (pos, tag) from t", {"pos", "tag"}),
        ("select id, upper(name) from t", None),  # Spark chooses a name
        ("select * from t lateral view explode(tags) e as tag", None),
        ("select * from range(3)", None),
    ],
)
def test_the_columns_of_a_query_are_told_where_they_can_be(query: str, columns: set[str] | None) -> None:
    found = judge_query(query, COLUMNS).columns
    assert (None if found is None else set(found)) == columns


def test_where_columns_are_not_known_none_is_missing() -> None:
    unknown = {**COLUMNS, "v": None}
    assert judge_query("select nme, v.x from t join v", unknown).faults == ()
    assert judge_query("select t.nme from t join v", unknown).faults[0].is_sure is False


def test_expressions_are_judged_over_the_columns_they_have() -> None:
    sides = {"left": COLUMNS["t"], "right": COLUMNS["u"]}
    assert judge_expression("left.id = right.id and amount > 3 -- why", sides).faults == ()
    assert [fault.what for fault in judge_expression("left.id =\n right.idd", sides).faults] == [
        "right has no column idd. Did you mean id?"
    ]
    assert judge_expression("left.id =\n right.idd", sides).faults[0].line == 1
    assert "more than one expression" in judge_expression("id, name", {"": COLUMNS["t"]}).faults[0].what
    assert [fault.what for fault in judge_expression("sum(amount", {"": COLUMNS["t"]}).faults] == [
        "it is no SQL that Spark reads: look at “sum(amount”"
    ]


def test_what_spark_puts_in_by_itself_is_left_to_spark() -> None:
    assert judge_query("select ${column} from t", COLUMNS).faults == ()


@given(st.text("select * from t where id in (1,2) group by name -- /* '`\"\n<>:|~x", max_size=60))
def test_no_text_is_too_strange(query: str) -> None:
    for fault in judge_query(query, COLUMNS).faults:
        assert fault.what and 0 <= fault.line <= query.count("\n")
