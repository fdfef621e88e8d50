"""The functions that Spark 4.3 brings, by their names in SQL. A test asks Spark for them."""

from functools import cache
from importlib.resources import files

PARSED = frozenset({"date_diff", "identifier", "timestampadd", "timestampdiff", "try_cast"})
"""What Spark's grammar takes as a call, and its catalog of functions does not list."""


@cache
def built_in() -> frozenset[str]:
    return frozenset(files(__package__).joinpath("spark_functions.txt").read_text().split())
