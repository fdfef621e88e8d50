"""Pages of Spark's, and the sentence that is in them."""

import traceback

import pytest

from headwater.pipelines.errors import BrokerUnreachable, DataLost, RequestRefused, RetriableError
from headwater.pipelines.run.problems import PipelineFailed, explain, plain, sql_line
from headwater.pipelines.sink.errors import ProducerFenced

PARSE = """
[PARSE_SYNTAX_ERROR] Syntax error at or near 'x': extra input 'x'. SQLSTATE: 42601 (line 3, pos 13)

== SQL ==
select * fro x
-------------^^^
"""
UNRESOLVED = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `idd` cannot be resolved. Did you mean `id`? \
SQLSTATE: 42703; line 2 pos 7;
'Project ['idd]
+- SubqueryAlias r
"""
FAILED_STREAM = """[STREAM_FAILED] Query [id = 5d39, runId = f738] terminated with exception: [USER_RAISED_EXCEPTION] \
step x: bad record SQLSTATE: P0001 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = a9b5, runId = 33ac]
Current State: ACTIVE
"""
JAVA = """An error occurred while calling o233.load.
: java.lang.IllegalStateException: too bad
\tat org.apache.spark.Somewhere.go(Somewhere.scala:1)
"""
WORKER = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "py4j/clientserver.py", line 644, in _call_proxy
    return_value = x
pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "sink.py", line 2, in take
    raise ValueError("not today")
{raised}
 SQLSTATE: 39000
=== Streaming Query ===
Identifier: p [id = 1]
"""


KILLED_TASK = """Job aborted due to stage failure: Task 0 in stage 6.0 failed 1 times, most recent failure: Lost task \
0.0 in stage 6.0 (TID 6): org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).
\tat org.apache.spark.Somewhere.go(Somewhere.scala:1)
Caused by: java.io.EOFException
"""
SLOW_START = """An error occurred while calling o7.start.
: org.apache.spark.SparkException: Python worker failed to connect back.
"""
STREAM_END = "\n=== Streaming Query ===\nIdentifier: [id = a9b5, runId = 33ac]\n"


class SparkSays(Exception):
    """What PySpark raises, as far as it matters here: its module is PySpark's."""


SparkSays.__module__ = "pyspark.errors.exceptions.captured"


def raised(error: Exception) -> str:
    """The last line of its traceback."""
    return "".join(traceback.format_exception_only(error)).strip()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (PARSE, "Syntax error at or near 'x': extra input 'x'."),
        (UNRESOLVED, "A column with name `idd` cannot be resolved. Did you mean `id`?"),
        (FAILED_STREAM, "step x: bad record"),
        (JAVA, "too bad"),
        ("[PATH_NOT_FOUND] Path does not exist: /nowhere/x. SQLSTATE: 42K03", "Path does not exist: /nowhere/x."),
        (WORKER.format(raised="ValueError: not today"), "ValueError: not today"),
        (WORKER.format(raised="some.package.OddError: no, not today"), "OddError: no, not today"),
        (WORKER.format(raised="headwater.pipelines.errors.UnknownTopic: There is no topic x."), "There is no topic x."),
    ],
)
def test_the_sentence_is_found(said: str, told: str) -> None:
    assert str(explain(SparkSays(said))) == told
    assert str(explain(SparkSays(said), "sink out")) == f"sink out: {told}"


def test_errors_of_python_keep_their_kind() -> None:
    assert str(explain(TypeError("f() takes 1 argument"), "step s")) == "step s: TypeError: f() takes 1 argument"


def test_a_database_without_a_driver_is_told_what_to_do() -> None:
    said = "An error occurred while calling o2.load.\n: java.sql.SQLException: No suitable driver\n\tat x"
    assert '"spark.jars" = "driver.jar"' in str(explain(SparkSays(said), "source s"))


@pytest.mark.parametrize(
    ("line", "is_passing"),
    [
        (raised(BrokerUnreachable("No broker answers.")), True),
        (raised(RetriableError("Broker h:1 answers NOT_LEADER_OR_FOLLOWER for t-0.")), True),
        (raised(ProducerFenced("Another producer writes as p by now.")), True),
        (raised(RequestRefused("Broker h:1 refuses to say more of t-0: INVALID_REQUEST.")), False),
        (raised(DataLost("Records are gone.")), False),
        ("headwater.pipelines.run.problems.PipelineFailed: The webhook does not answer.", False),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", True),
        ("ValueError: not today", False),
    ],
)
def test_it_is_known_what_another_try_may_cure(line: str, is_passing: bool) -> None:
    assert explain(SparkSays(WORKER.format(raised=line))).is_passing is is_passing
    assert explain(PipelineFailed("x", is_passing=True)).is_passing


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (KILLED_TASK, "has ended unexpectedly: it was killed"),
        ("Broken pipe" + STREAM_END, "has ended unexpectedly: it was killed"),
        ("Stream closed" + STREAM_END, "has ended unexpectedly: it was killed"),
        ("Connection reset" + STREAM_END, "has ended unexpectedly: it was killed"),
        (SLOW_START, "did not start within 10 s"),
    ],
)
def test_a_python_process_that_is_gone_is_told_and_may_be_replaced(said: str, words: str) -> None:
    failure = explain(SparkSays(said), "sink out")
    assert str(failure).startswith("sink out: A Python process of Spark ") and words in str(failure)
    assert failure.is_passing
    assert failure.is_crowded is (said == SLOW_START)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema does not match existing state key schema.\n"
            "Please check number and type of fields.",
            "Provided key schema does not match existing state key schema.",
        ),
        (
            "assertion failed: There are [1] sources in the checkpoint offsets and now there are [2] sources requested "
            "by the query. Cannot continue.",
            "There are [1] sources in the checkpoint offsets and now there are [2] sources requested by the query.",
        ),
    ],
)
def test_a_checkpoint_of_another_query_is_told_with_what_to_do(said: str, words: str) -> None:
    failure = explain(SparkSays(said + STREAM_END), "sink out", "/data/p.checkpoint/out")
    assert str(failure) == (
        f"sink out: The pipeline was changed in a way that its checkpoint does not allow: {words} Undo the change; or "
        "begin anew, and write everything again, by removing the directory /data/p.checkpoint/out."
    )
    assert not failure.is_passing


def test_the_line_of_a_query_is_found() -> None:
    assert sql_line(SparkSays(PARSE)) == 2
    assert sql_line(SparkSays(UNRESOLVED)) == 1
    assert sql_line(SparkSays(FAILED_STREAM)) is None


def test_a_long_message_is_cut() -> None:
    assert len(str(explain(SparkSays("x" * 5_000)))) == 1_000
    assert plain("") == ""
