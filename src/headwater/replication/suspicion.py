"""Which nodes do not answer, though their sessions still live.

A process that was killed refuses at once: a few refusals in a row are enough. A process that hangs is silent; but to a
node that hangs itself, all the others seem silent, too. So silence counts only after a while, and not if all the others
are silent. A wrong guess costs an election, nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.model.cluster import Node
from headwater.model.ids import NodeId


@dataclass(slots=True)
class _Impression:
    epoch: int
    refusals: int = 0
    silent_since: float | None = None


class Suspicion:
    def __init__(self, refusals: int = 3, silence_s: float = 3.0) -> None:
        self._refusals = refusals
        self._silence_s = silence_s
        self._impressions: dict[NodeId, _Impression] = {}

    def attend(self, nodes: Mapping[NodeId, Node]) -> None:
        """Only these are of interest from now on. One that registered anew starts with a clean slate."""
        self._impressions = {
            node_id: known if known is not None and known.epoch == node.epoch else _Impression(node.epoch)
            for node_id, node in nodes.items()
            for known in (self._impressions.get(node_id),)
        }

    def answered(self, node: Node) -> None:
        impression = self._impression(node)
        if impression is not None:
            impression.refusals, impression.silent_since = 0, None

    def refused(self, node: Node) -> None:
        impression = self._impression(node)
        if impression is not None:
            impression.refusals += 1

    def silent(self, node: Node, since: float) -> None:
        """It was asked at `since`, and has not answered yet."""
        impression = self._impression(node)
        if impression is not None and impression.silent_since is None:
            impression.silent_since = since

    def suspected(self, now: float) -> frozenset[NodeId]:
        refusing = {id_ for id_, it in self._impressions.items() if it.refusals >= self._refusals}
        silent = {
            id_
            for id_, it in self._impressions.items()
            if it.silent_since is not None and now - it.silent_since >= self._silence_s
        }
        is_own_fault = len(silent) > 1 and len(silent) == len(self._impressions)
        return frozenset(refusing if is_own_fault else refusing | silent)

    def _impression(self, node: Node) -> _Impression | None:
        known = self._impressions.get(node.node_id)
        return known if known is not None and known.epoch == node.epoch else None
