"""The options of a query that writes topics. Names are as in Spark's Kafka sink where it has one.

Everything is checked when the query is made. Like at the source, a name that is not known is refused. Options of
Kafka's Java producer that steer what is decided here are accepted and ignored; options that ask for something else than
is done here are refused.

*Exactly once* is the default. It needs a name that stays the same when the query starts again, the transactional id:
the option `transactionalId`, else, in a streaming query, one made from the id that Spark keeps in the checkpoint. A
batch job without the option is one transaction under a unique name.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headwater.pipelines.client.config import PREFIX, ClientConfig, client_config, is_client_option
from headwater.pipelines.client.option_values import a_boolean, a_choice, a_duration_ms, an_integer
from headwater.pipelines.errors import InvalidOption
from headwater.records.batch import Codec

KNOWN: Final = (
    "topic",
    "exactlyOnce",
    "transactionalId",
    "queryId",
    "batchId",
    "compression",
    "batchBytes",
    "transactionTimeout",
    "maxStagedBytes",
    "includeHeaders",
)
OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "path", "outputmode", "trigger"})
"""Options for Spark itself, which hands them on."""
NO_MEANING: Final = frozenset(
    {
        "buffer.memory",
        "delivery.timeout.ms",
        "enable.idempotence",
        "linger.ms",
        "max.block.ms",
        "max.in.flight.requests.per.connection",
        "max.request.size",
        "retries",
        "retry.backoff.ms",
    }
)
REFUSED: Final = {
    "key.serializer": "keys are bytes or strings: make them in the query",
    "value.serializer": "values are bytes or strings: make them in the query",
    "partitioner.class": "name the partition in a column partition",
    "transactional.id": "say it with the option transactionalId",
}
COPIES: Final = {
    "compression.type": "compression",
    "batch.size": "batchbytes",
    "transaction.timeout.ms": "transactiontimeout",
}
"""Options of Kafka's producer, and what they are called here."""

CODECS: Final = {
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
DEFAULT_BATCH_BYTES: Final = 512 * 1024
"""Half of what a topic takes by default: large batches cost a broker least."""
MAX_BATCH_BYTES: Final = 256 * 1024 * 1024
DEFAULT_TRANSACTION_TIMEOUT: Final = "60s"
"""A transaction is open only while a batch is sent. When its writer is gone, readers wait no longer than this."""
DEFAULT_STAGED_BYTES: Final = 256 * 1024 * 1024
MAX_STAGED_BYTES: Final = 1024 * 1024 * 1024
"""Spark hands a task's result over in one piece, which has less than two gigabytes."""
MAX_TRANSACTIONAL_ID_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class SinkOptions:
    client: ClientConfig
    topic: str | None
    """For all rows, whatever their column topic says."""
    is_exactly_once: bool
    transactional_id: str | None
    query_id: str
    """Of a batch job: whose batches the numbers are of; another query counts from 0 again."""
    batch_id: int | None
    """Of a batch job that is repeated after a failure, as in foreachBatch."""
    codec: Codec
    batch_bytes: int
    transaction_timeout_ms: int
    max_staged_bytes: int


def sink_options(options: Mapping[str, str], is_streaming: bool) -> SinkOptions:
    """From the names and values that Spark hands over. Raises InvalidOption."""
    given = _without_producer_options({name.lower(): value for name, value in options.items()})
    client = {name: value for name, value in given.items() if is_client_option(name)}
    own = {name: value for name, value in given.items() if name not in client and name not in OF_SPARK}
    _check_names(own)
    is_exactly_once = a_boolean("exactlyOnce", own.get("exactlyonce", "true"))
    transactional_id = own.get("transactionalid")
    if transactional_id is not None and not 0 < len(transactional_id) <= MAX_TRANSACTIONAL_ID_CHARS:
        raise InvalidOption(f"Option transactionalId has 1 to {MAX_TRANSACTIONAL_ID_CHARS} characters.")
    if transactional_id is not None and not is_exactly_once:
        raise InvalidOption("Option transactionalId is for exactlyOnce=true, and exactlyOnce is false.")
    batch_id = an_integer("batchId", own["batchid"], at_least=0) if "batchid" in own else None
    if batch_id is not None and is_streaming:
        raise InvalidOption("Option batchId is for batch jobs: in a streaming query Spark numbers the batches.")
    if batch_id is not None and transactional_id is None:
        raise InvalidOption("Option batchId needs the option transactionalId: whose batch it is.")
    if "queryid" in own and batch_id is None:
        raise InvalidOption("Option queryId says whose batch it is, and needs the option batchId.")
    if own.get("topic") == "":
        raise InvalidOption("Option topic is empty.")
    a_boolean("includeHeaders", own.get("includeheaders", "true"))
    return SinkOptions(
        client=client_config(client),
        topic=own.get("topic"),
        is_exactly_once=is_exactly_once,
        transactional_id=transactional_id,
        query_id=own.get("queryid", ""),
        batch_id=batch_id,
        codec=CODECS[a_choice("compression", own.get("compression", "none"), tuple(CODECS))],
        batch_bytes=_bytes(own, "batchBytes", DEFAULT_BATCH_BYTES, MAX_BATCH_BYTES),
        transaction_timeout_ms=a_duration_ms(
            "transactionTimeout", own.get("transactiontimeout", DEFAULT_TRANSACTION_TIMEOUT)
        ),
        max_staged_bytes=_bytes(own, "maxStagedBytes", DEFAULT_STAGED_BYTES, MAX_STAGED_BYTES),
    )


def _without_producer_options(given: Mapping[str, str]) -> dict[str, str]:
    """With the options that have another name here under that name."""
    kept: dict[str, str] = {}
    for name, value in given.items():
        bare = name.removeprefix(PREFIX) if name.startswith(PREFIX) else ""
        if bare in REFUSED:
            raise InvalidOption(f"Option {name} is not supported: {REFUSED[bare]}.")
        if bare == "acks" and value.strip().lower() not in ("all", "-1"):
            raise InvalidOption(f"Option {name} is {value!r}; a row counts as written when all replicas have it (all).")
        if bare in NO_MEANING or bare == "acks":
            continue
        if bare in COPIES and COPIES[bare] in given:
            raise InvalidOption(f"Options {name} and {COPIES[bare]} say the same: give one of them.")
        kept[COPIES.get(bare, name)] = value
    return kept


def _check_names(own: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in KNOWN}
    for name in own:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            advice = f"Did you mean {known[near[0]]}?" if near else f"Known are: {', '.join(sorted(KNOWN))}, kafka.…"
            raise InvalidOption(f"Option {name} is unknown. {advice}")


def _bytes(own: Mapping[str, str], name: str, default: int, at_most: int) -> int:
    text = own.get(name.lower())
    return default if text is None else an_integer(name, text, 1, at_most)
