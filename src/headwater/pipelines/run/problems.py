"""Why a pipeline cannot run, in a sentence: what Spark, its Python workers and brokers say, found in pages of stack.

The caller raises the result from the error itself, so that the whole stack can be shown.
"""

import re

from headwater.pipelines.errors import BrokerUnreachable, RetriableError
from headwater.pipelines.sink.errors import ProducerFenced

PASSING = frozenset(error.__name__ for error in (BrokerUnreachable, RetriableError, ProducerFenced))
"""Errors of topics that another try may cure."""
PASSING_SIGNS = ("Connection refused", "Connection reset", "ConnectionResetError", "timed out", "Broken pipe")
KILLED_SIGN = "Python worker exited unexpectedly"
CROWDED_SIGN = "Python worker failed to connect back"
WORKER_ENDED = frozenset({"Broken pipe", "Connection reset", "Stream closed", "Socket closed"})
"""All that Spark says when the process of a source or a sink is gone."""
OTHER_QUERY_SIGNS = (
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
    "sources in the checkpoint offsets and now there are",
)
"""What Spark says when a query goes on from a checkpoint that another one has made."""
MAX_CHARS = 1_000

_OURS = re.compile(r"headwater\.pipelines\.[a-z_.]+\.(?P<kind>[A-Z]\w*): (?P<what>[^\n]*)")
_RAISED = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*): (?P<what>[^\n]*)$", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"
_BEFORE = re.compile(
    r"^An error occurred while calling [^\n]*\n: "  # py4j
    r"|^Query \[[^\]]*\] terminated with exception: "
    r"|^\[[A-Z][A-Z0-9_.]+\] ?"  # the condition
    r"|^An error occurred in the user provided function in foreach batch sink. Reason: "
    r"|^(?:[a-z]\w*\.)+[A-Z]\w+: "  # a class of Java's
)
_AFTER = re.compile(r"\s*SQLSTATE: \w+.*|; line \d+ pos \d+;?.*|\n.*", re.DOTALL)
_SQL_POSITION = re.compile(r"[(;] ?line (\d+),? pos \d+")


class PipelineFailed(Exception):
    """What happened and what to do, for the person at the keyboard."""

    def __init__(self, what: str, advice: str = "", *, is_passing: bool = False, is_crowded: bool = False) -> None:
        super().__init__(f"{what} {advice}".strip())
        self.what = what
        self.advice = advice
        self.is_passing = is_passing
        """Whether another try may succeed."""
        self.is_crowded = is_crowded
        """Whether it failed only because the machine has too much to do. It is passing, too."""


def explain(error: BaseException, subject: str = "", checkpoint: str = "") -> PipelineFailed:
    """One sentence or two, beginning with the part of the pipeline that it concerns. `checkpoint` is where the query
    keeps its state, if it is about one."""
    if isinstance(error, PipelineFailed):
        return error
    said = f"{type(error).__module__}.{type(error).__name__}: {error}".partition("=== Streaming Query ===")[0]
    about = f"{subject}: " if subject else ""
    if ours := list(_OURS.finditer(said)):
        return PipelineFailed(about + _cut(ours[-1]["what"]), is_passing=ours[-1]["kind"] in PASSING)
    what = plain(str(error))
    if KILLED_SIGN in said or what in WORKER_ENDED:
        reason = "A Python process of Spark has ended unexpectedly: it was killed, for example because memory ran out."
        return PipelineFailed(about + reason, is_passing=True)
    if CROWDED_SIGN in said:
        reason = "A Python process of Spark did not start within 10 s: this machine has too much to do."
        return PipelineFailed(about + reason, is_passing=True, is_crowded=True)
    if any(sign in said for sign in OTHER_QUERY_SIGNS):
        what = what.removeprefix("assertion failed: ").partition(". ")[0].rstrip(".")
        return PipelineFailed(
            f"{about}The pipeline was changed in a way that its checkpoint does not allow: {_cut(what)}.",
            f"Undo the change; or begin anew, and write everything again, by removing the directory {checkpoint}."
            if checkpoint
            else "Undo the change, or begin anew with another checkpoint.",
        )
    is_passing = any(sign in said for sign in PASSING_SIGNS)
    if _TRACEBACK in said and (raised := list(_RAISED.finditer(said.rpartition(_TRACEBACK)[2]))):
        kind, reason = raised[-1]["kind"].rpartition(".")[2], raised[-1]["what"]
        return PipelineFailed(f"{about}{kind}: {_cut(reason)}", is_passing=is_passing)
    if "No suitable driver" in said:
        return PipelineFailed(
            f"{about}There is no driver for this database.", 'Name its jar under [spark]: "spark.jars" = "driver.jar".'
        )
    is_sparks_own = type(error).__module__.startswith(("pyspark.", "py4j."))
    if not is_sparks_own:
        what = f"{type(error).__name__}: {error}"
    return PipelineFailed(about + _cut(what), is_passing=is_passing)


def plain(said: str) -> str:
    """Spark's message without its conditions, its state, its plans and the query that it repeats."""
    said = said.strip()
    while (before := _BEFORE.match(said)) is not None:
        said = said[before.end() :].strip()
    return _AFTER.sub("", said).strip()


def sql_line(error: BaseException) -> int | None:
    """The line of a query, from 0, that Spark complains about."""
    found = _SQL_POSITION.search(str(error))
    return None if found is None else int(found[1]) - 1


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"
