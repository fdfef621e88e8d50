"""When a query looks for more rows: again and again, or until it has seen what is there now."""

from dataclasses import dataclass

from headwater.pipelines.spec.durations import HELP, duration_ms
from headwater.pipelines.spec.keys import NotAccepted

AVAILABLE_NOW_WORD = "available_now"


@dataclass(frozen=True, slots=True)
class Trigger:
    every_ms: int | None
    """None: once, over all that is there at the start."""


AVAILABLE_NOW = Trigger(None)
DEFAULT_TRIGGER = Trigger(1_000)
"""A batch costs 0.2 s of CPU however small it is: shorter is a choice, not a default."""


def read_trigger(value: object) -> Trigger:
    if value == AVAILABLE_NOW_WORD:
        return AVAILABLE_NOW
    every_ms = duration_ms(value) if isinstance(value, str) else None
    if not every_ms:
        raise NotAccepted(f'"{AVAILABLE_NOW_WORD}" or a length of time: {HELP}')
    return Trigger(every_ms)
