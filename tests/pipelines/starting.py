"""Queries that start on a machine which has too much to do."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

MAX_STARTS = 10
MISSED = "Python worker failed to connect back"


def patiently(start: "Callable[[], StreamingQuery]") -> "StreamingQuery":
    """The query, with its sources ready. Spark gives a source's process 10 s to start; if that was too little, nothing
    has happened yet, and it is started again."""
    for _ in range(MAX_STARTS - 1):
        query = start()
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(0.05)
        if query.isActive or MISSED not in str(query.exception()):
            return query
    return start()
