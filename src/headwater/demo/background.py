"""A loop in a thread: it is asked to stop, waited for, and its failure is not lost."""

import threading
from collections.abc import Callable

IsStopping = Callable[[], bool]


class Background:
    """Runs `loop` in a thread; it returns soon after `is_stopping` says so."""

    def __init__(self, name: str, loop: Callable[[IsStopping], None]) -> None:
        self._loop = loop
        self._stop_asked = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"demo-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Ask, and wait. Raises TimeoutError if it does not end in time."""
        self._stop_asked.set()
        if self._thread.ident is None:
            return
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"{self._thread.name} did not stop within {timeout_s:.0f} s")

    def raise_failure(self) -> None:
        """What ended the loop, if anything did but a stop."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._loop(self._stop_asked.is_set)
        except BaseException as error:
            self._failure = error
