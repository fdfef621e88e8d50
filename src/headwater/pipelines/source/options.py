"""The options of a query that reads topics, under the names that Spark's Kafka source has for them.

Spark hands names over in lower case and values as text. Everything is checked when the query is made, before anything
is read. A name that is not known is refused: a misspelt option that does nothing is found too late.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.client.offsets import EARLIEST, LATEST
from headwater.pipelines.client.config import ClientConfig, client_config, is_client_option
from headwater.pipelines.client.option_values import a_boolean, a_choice, a_duration_ms, an_integer
from headwater.pipelines.errors import InvalidOption
from headwater.pipelines.source.positions import Position, names_earliest, names_latest, position
from headwater.pipelines.source.subscription import WAYS, Subscription, subscription

BOTH = (
    *WAYS,
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
)
BATCH_ONLY = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp", "pushFilters")
STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "pollWaitMs")
KNOWN = (*BOTH, *BATCH_ONLY, *STREAM_ONLY)

DEFAULT_POLL_TIMEOUT_MS = 120_000
DEFAULT_POLL_WAIT_MS = 200
"""How long an idle query waits for news before it asks again. A query of several sources waits for each in turn."""
MAX_POLL_WAIT_MS = 60_000
DEFAULT_MAX_TRIGGER_DELAY = "15m"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    client: ClientConfig
    subscription: Subscription
    starting: Position
    ending: Position
    no_match_is_latest: bool
    """What a starting time after the last record means: its end, or an error."""
    fail_on_data_loss: bool
    include_headers: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    push_filters: bool
    """See `FilteringBatchReader`."""
    poll_timeout_ms: int
    poll_wait_ms: int


def source_options(options: Mapping[str, str], is_streaming: bool) -> SourceOptions:
    """From the names and values that Spark hands over. Raises InvalidOption."""
    given = {name.lower(): value for name, value in options.items()}
    client = {name: value for name, value in given.items() if is_client_option(name)}
    own = {name: value for name, value in given.items() if name not in client}
    _check_names(own, is_streaming)
    starting = position(own, "starting", default=LATEST if is_streaming else EARLIEST)
    ending = position(own, "ending", default=LATEST)
    if not is_streaming and names_latest(starting):
        raise InvalidOption("Option startingOffsets cannot be latest (-1) in a batch query: there is nothing after it.")
    if names_earliest(ending):
        raise InvalidOption("Option endingOffsets cannot be earliest (-2): there is nothing before it.")
    least, most = _positive(own, "minOffsetsPerTrigger"), _positive(own, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise InvalidOption(f"Option minOffsetsPerTrigger is {least}, which is more than maxOffsetsPerTrigger, {most}.")
    strategy = own.get("startingoffsetsbytimestampstrategy", "error")
    return SourceOptions(
        client=client_config(client),
        subscription=subscription(own),
        starting=starting,
        ending=ending,
        no_match_is_latest=a_choice("startingOffsetsByTimestampStrategy", strategy, ("error", "latest")) == "latest",
        fail_on_data_loss=a_boolean("failOnDataLoss", own.get("failondataloss", "true")),
        include_headers=includes_headers(own),
        min_partitions=_positive(own, "minPartitions"),
        max_records_per_partition=_positive(own, "maxRecordsPerPartition"),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=a_duration_ms("maxTriggerDelay", own.get("maxtriggerdelay", DEFAULT_MAX_TRIGGER_DELAY)),
        push_filters=a_boolean("pushFilters", own.get("pushfilters", "false")),
        poll_timeout_ms=_positive(own, "kafkaConsumer.pollTimeoutMs") or DEFAULT_POLL_TIMEOUT_MS,
        poll_wait_ms=_wait_ms(own),
    )


def includes_headers(options: Mapping[str, str]) -> bool:
    return a_boolean("includeHeaders", options.get("includeheaders", "false"))


def _check_names(own: Mapping[str, str], is_streaming: bool) -> None:
    known = {name.lower(): name for name in KNOWN}
    for name in own:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            advice = f"Did you mean {known[near[0]]}?" if near else f"Known are: {', '.join(sorted(KNOWN))}, kafka.…"
            raise InvalidOption(f"Option {name} is unknown. {advice}")
    if is_streaming:
        for name in BATCH_ONLY:
            if name.lower() in own:
                raise InvalidOption(f"Option {name} is for batch queries, and not for streams.")


def _positive(own: Mapping[str, str], name: str) -> int | None:
    text = own.get(name.lower())
    return None if text is None else an_integer(name, text, at_least=1)


def _wait_ms(own: Mapping[str, str]) -> int:
    text = own.get("pollwaitms")
    return DEFAULT_POLL_WAIT_MS if text is None else an_integer("pollWaitMs", text, 0, MAX_POLL_WAIT_MS)
