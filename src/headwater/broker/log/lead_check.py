"""Does this node still lead? To be asked when a reader knows of more than the log holds: either it is wrong, or someone
else leads by now, and this node was paused or cut off and has not heard of it.

Fetches of older clients do not say which leader epoch they believe in (KIP-320), and "out of range" would send such a
reader back to the start of the log, or to its end.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from headwater.broker.log.partition_metadata import LostLeadership
from headwater.metadata.store import Unavailable, Unknown
from headwater.model.clock import Clock
from headwater.model.ids import NO_OFFSET, Offset

VALID_S: Final = 1.0
"""How long an answer holds. Long enough for the reader's next fetch."""


class LeadCheck:
    def __init__(
        self,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        confirm: Callable[[], Awaitable[None]],
        resign: Callable[[str], None],
    ) -> None:
        """`confirm` reads the head, and raises LostLeadership if it is another's."""
        self._clock = clock
        self._spawn = spawn
        self._confirm = confirm
        self._resign = resign
        self._is_asking = False
        self._offset = NO_OFFSET
        self._until_s = 0.0

    def is_past_the_end(self, offset: Offset) -> bool:
        """Whether no other leader can have written at an offset past the end here. False while that is not known: the
        check is started then, and its result is there for the next call."""
        if offset <= self._offset and self._clock.monotonic() < self._until_s:
            return True
        if not self._is_asking:
            self._is_asking = True
            self._spawn(self._ask(offset))
        return False

    async def _ask(self, offset: Offset) -> None:
        try:
            await self._confirm()
        except LostLeadership as error:
            self._resign(str(error))
        except (Unavailable, Unknown):
            pass  # without the metadata nothing is known
        else:
            self._offset, self._until_s = offset, self._clock.monotonic() + VALID_S
        finally:
            self._is_asking = False
