"""Queries that start on a machine which has too much to do."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

MAX_STARTS = 10
START_S = 120.0
MISSED = "Python worker failed to connect back"


def patiently(start: "Callable[[], StreamingQuery]") -> "StreamingQuery":
    """The query, with its sources ready. Spark gives a source's process 10 s to start; if that was too little, nothing
    has happened yet, and it is started again."""
    for _ in range(MAX_STARTS - 1):
        query = start()
        eventually(lambda query=query: not _initializes(query), "the sources are ready", patience_s=START_S)  # type: ignore[misc]
        if query.isActive or MISSED not in str(query.exception()):
            return query
    return start()


def _initializes(query: "StreamingQuery") -> bool:
    return query.isActive and query.status["message"].startswith("Initializing")
