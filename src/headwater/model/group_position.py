"""How far a group is in a partition."""

from typing import NamedTuple

from headwater.model.ids import Offset


class GroupPosition(NamedTuple):
    group_id: str
    topic: str
    partition: int
    offset: Offset
    """Everything below is consumed."""
