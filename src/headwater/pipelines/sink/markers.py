"""What a batch leaves behind in its own transaction: the offset of a group, which says that the batch is written.

The group has the name of the transactional id. Its offsets are where the batch ended in each partition that it wrote,
so that the group of a writer has no lag but what others have written behind it. The text beside one names the next
batch, the query and the run that wrote it, and the earlier runs:

    {"next": 12, "query": "1f0c…", "run": "8a41…", "before": ["02bb…"]}

Only one of the texts names the earlier runs. Without `next`, as they were written once, the offset is the next batch.

A *query* is what a checkpoint belongs to: its batches have numbers that never come back for other rows. A *run* is one
start of it. A run that finds itself among the earlier ones has been replaced, and must not go on.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headwater.pipelines.errors import RequestRefused

MAX_EARLIER_RUNS: Final = 32
"""Their names must fit beside an offset (4 KiB)."""


@dataclass(frozen=True, slots=True)
class BatchMarker:
    query_id: str
    run_id: str
    next_batch: int
    earlier_runs: tuple[str, ...] = ()

    def text(self, *, is_short: bool = False) -> str:
        before = () if is_short else self.earlier_runs
        return json.dumps({"next": self.next_batch, "query": self.query_id, "run": self.run_id, "before": before})


@dataclass(frozen=True, slots=True)
class BatchMarkers:
    """All that a group has: one for each partition that was ever written."""

    found: tuple[BatchMarker, ...] = ()

    def has_batch(self, query_id: str, batch_id: int) -> bool:
        return any(marker.query_id == query_id and marker.next_batch > batch_id for marker in self.found)

    def have_replaced(self, run_id: str) -> bool:
        return any(run_id in marker.earlier_runs for marker in self.found)

    def after(self, query_id: str, run_id: str, batch_id: int) -> BatchMarker:
        """The one to commit with a batch."""
        earlier = dict.fromkeys(run for marker in self.found for run in (*marker.earlier_runs, marker.run_id))
        earlier.pop(run_id, None)
        return BatchMarker(query_id, run_id, batch_id + 1, tuple(earlier)[-MAX_EARLIER_RUNS:])


def read_markers(group: str, offsets: Iterable[tuple[int, str | None]]) -> BatchMarkers:
    """From the offsets of the group, each with its text. Raises RequestRefused if another client wrote them."""
    return BatchMarkers(tuple(_marker(group, offset, text) for offset, text in offsets if offset >= 0))


def _marker(group: str, offset: int, text: str | None) -> BatchMarker:
    try:
        read = json.loads(text or "")
        query_id, run_id, earlier = read["query"], read["run"], read["before"]
        next_batch = read.get("next", offset)
        if not all(isinstance(each, str) for each in (query_id, run_id, *earlier)) or type(next_batch) is not int:
            raise TypeError("names are texts, and batches have numbers")
    except (ValueError, TypeError, KeyError):
        raise RequestRefused(
            f"Group {group} has offsets of a reader, not of this sink: choose another transactionalId, whose name no "
            "consumer group has."
        ) from None
    return BatchMarker(query_id, run_id, next_batch, tuple(earlier))
