"""Columns and types, read without Spark as Spark reads them: the same texts are given to both."""

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.pipelines.spec.schema_text import DeclaredColumn, read_schema, read_type
from tests.pipelines.schema_examples import SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def judged(text: str, *, is_strict: bool) -> list[str] | None:
    """The names of the columns; None if it is refused."""
    schema = read_schema(text, is_strict=is_strict)
    return None if schema.faults else [column.name for column in schema.columns]


def test_spark_and_the_check_agree_about_every_schema(spark: "SparkSession") -> None:
    """Once as steps read schemas, through PySpark, and once as Spark's readers of files do, which are strict."""
    from pyspark.sql.types import StructType

    jvm: Any = spark._jvm

    def of_pyspark(text: str) -> list[str] | None:
        schema = StructType.fromDDL(text)
        return schema.fieldNames() if isinstance(schema, StructType) else None

    def of_spark(text: str) -> list[str]:
        return list(jvm.org.apache.spark.sql.types.StructType.fromDDL(text).fieldNames())

    different = []
    for text in SCHEMAS:
        for read, is_strict in ((of_pyspark, False), (of_spark, True)):
            try:
                by_spark = read(text)
            except Exception:
                by_spark = None
            if by_spark != judged(text, is_strict=is_strict):
                different.append((text, is_strict, by_spark, read_schema(text, is_strict=is_strict)))
    assert different == []


def test_columns_have_the_names_and_types_that_are_written() -> None:
    schema = read_schema("id string not null, `a b` decimal(3,1) comment 'x', items array<struct<p: string, q: int>>")
    assert schema.columns == (
        DeclaredColumn("id", "string"),
        DeclaredColumn("a b", "decimal"),
        DeclaredColumn("items", "array"),
    )
    assert schema.faults == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("order_id strng", [(0, "there is no type strng. Did you mean string?")]),
        ("a int64,\nb strin,\nc doubl", [(0, "int64"), (1, "strin. Did you mean string?"), (2, "doubl")]),
        ("a set<int>, b strng", [(0, "there is no type set."), (0, "there is no type strng")]),
        ("a int b string", [(0, "b is too much: a comma belongs between columns")]),
        ("a int,\nb", [(1, "b has no type, as in b string")]),
        ("a-b int", [(0, "a name with a dash has to be quoted: `a-b`")]),
        ("a array int", [(0, "array needs the types of what is in it, as in array<int>")]),
        ("a decimal(40,2)", [(0, "decimal takes a precision up to 38")]),
        ("a varchar", [(0, "varchar takes a length, as in varchar(10)")]),
        ("a" + " array<" * 200 + "int" + ">" * 200, [(0, "its types are nested too deeply")]),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, told: list[tuple[int, str]]) -> None:
    faults = read_schema(text).faults
    assert [fault.line for fault in faults] == [line for line, _ in told]
    assert all(says in fault.what for fault, (_, says) in zip(faults, told, strict=True)), faults


def test_a_type_alone_is_one_type() -> None:
    assert read_type("map<string, array<int>>").faults == ()
    assert read_type("int, string").faults != ()


@given(st.text("array<struct>:,(0123)`' -/*\n\\é map string not null comment", max_size=60))
def test_no_text_is_too_strange(text: str) -> None:
    schema = read_schema(text)
    assert schema.faults or schema.columns or "struct<" in text.replace(" ", "")
