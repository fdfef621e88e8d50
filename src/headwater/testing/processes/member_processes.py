"""A metadata service for tests as one process for each member: each can be killed, paused and started again.

Members die with the thread that started them: start them from the main thread.
"""

import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Final, Self, TypeVar

from headwater.testing.processes.pausing import pause

START_ATTEMPTS: Final = 3
"""A port that was free a moment ago can be taken by another process."""
LOOK_EVERY_S: Final = 0.05
MAX_LOG_TAIL_CHARS: Final = 4000

_ServiceT = TypeVar("_ServiceT", bound="MemberProcesses")


class MemberProcesses(ABC):
    """Use as a context manager, or call `stop`."""

    SERVICE: ClassVar[str]
    START_TIMEOUT_S: ClassVar[float]

    def __init__(self, directory: Path, members: int) -> None:
        self.members: Final = range(members)
        self._directory = directory
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kill(self, member: int) -> None:
        """SIGKILL, and wait: nothing of the member runs any more."""
        process = self._processes[member]
        process.kill()
        process.wait()

    def pause(self, member: int) -> None:
        """SIGSTOP: its connections stay open, without answers."""
        pause(self._processes[member].pid)

    def resume(self, member: int) -> None:
        self._processes[member].send_signal(signal.SIGCONT)

    def restart(self, member: int, wait: bool = True) -> None:
        """Start a member that does not run, with the data that it has."""
        assert member not in self._processes or not self._is_running(member), "the member runs"
        self._directory.mkdir(parents=True, exist_ok=True)
        setpriv = shutil.which("setpriv")
        dies_with_us = [setpriv, "--pdeathsig=KILL"] if setpriv is not None else []
        with self._log(member).open("ab") as log:
            self._processes[member] = subprocess.Popen(
                [*self._command_prefix(member), *dies_with_us, *self._command(member)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        if wait:
            self._wait_for(member, time.monotonic() + self.START_TIMEOUT_S)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + self.START_TIMEOUT_S
        for member in self.members:
            self._wait_for(member, deadline)

    @abstractmethod
    def stop(self) -> None:
        """Also for members that are paused or dead."""

    @abstractmethod
    def _command(self, member: int) -> list[str]: ...

    @abstractmethod
    def _is_ready(self, member: int) -> bool:
        """Whether the member says that it serves."""

    def _command_prefix(self, member: int) -> list[str]:
        """What starts the command on another host."""
        return []

    def _is_running(self, member: int) -> bool:
        return self._processes[member].poll() is None

    def _wait_for(self, member: int, deadline: float) -> None:
        while time.monotonic() < deadline:
            if not self._is_running(member):
                status = self._processes[member].returncode
                raise RuntimeError(f"{self.SERVICE} ended with status {status}. It said:\n{self._log_tail(member)}")
            if self._is_ready(member):
                return
            time.sleep(LOOK_EVERY_S)
        raise TimeoutError(
            f"{self.SERVICE} did not start in {self.START_TIMEOUT_S:.0f} s. It said:\n{self._log_tail(member)}"
        )

    def _find_leader(self, is_leader: Callable[[int], bool]) -> int:
        """The member that leads; waits for an election."""
        deadline = time.monotonic() + self.START_TIMEOUT_S
        while time.monotonic() < deadline:
            for member in self._processes:
                if self._is_running(member) and is_leader(member):
                    return member
            time.sleep(LOOK_EVERY_S)
        raise TimeoutError(f"{self.SERVICE} has had no leader for {self.START_TIMEOUT_S:.0f} s")

    def _log(self, member: int) -> Path:
        return self._directory / f"m{member}.log"

    def _log_tail(self, member: int) -> str:
        return self._log(member).read_text(errors="replace")[-MAX_LOG_TAIL_CHARS:]


def start_members(create: Callable[[int], _ServiceT]) -> _ServiceT:
    """All members of `create(attempt)`, ready to serve; once more with other ports if one was taken meanwhile."""
    for attempt in range(START_ATTEMPTS):
        service = create(attempt)
        try:
            for member in service.members:
                service.restart(member, wait=False)
            service.wait_until_ready()
        except BaseException as error:
            service.stop()
            if isinstance(error, RuntimeError) and "address already in use" in str(error).lower():
                continue
            raise
        return service
    raise RuntimeError(f"{service.SERVICE} found no free ports in {START_ATTEMPTS} attempts")
