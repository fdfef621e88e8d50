"""Records that are gone before a query read them: an error, or a warning, as the query asks (`failOnDataLoss`)."""

import logging
from dataclasses import dataclass

from headwater.client.topic_partition import TopicPartition
from headwater.logs.events import log_event
from headwater.pipelines.errors import DataLost

ADVICE = (
    "To go on without them, set the option failOnDataLoss to false; to keep them longer, raise the topic's retention "
    "or read more often."
)
OTHER_TOPIC_ADVICE = (
    "A query that reads other topics needs a checkpoint of its own; to go on with this one, from the beginning of the "
    "new topics, set the option failOnDataLoss to false."
)


@dataclass(frozen=True, slots=True)
class Losses:
    is_failure: bool

    def report(self, partition: TopicPartition, start: int, end: int | None, reason: str, advice: str = ADVICE) -> None:
        """The records from `start` up to `end` are missing; None: it is not known how many. Raises DataLost, or logs
        and returns."""
        if self.is_failure:
            missing = f"from {start} on" if end is None else f"{start} to {end - 1}"
            raise DataLost(
                f"Offsets {missing} of topic {partition.topic}, partition {partition.partition}, cannot be read any "
                f"more: {reason}. {advice}"
            )
        log_event(
            "records_lost",
            logging.WARNING,
            topic=partition.topic,
            partition=partition.partition,
            first_offset=start,
            last_offset="unknown" if end is None else end - 1,
            reason=reason,
        )
