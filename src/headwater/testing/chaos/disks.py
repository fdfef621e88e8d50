"""A small disk for one node, in memory, that can be filled up and freed."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_FILLER: Final = "filler"
_COMMAND_TIMEOUT_S: Final = 10.0
_KEEP_BYTES: Final = 64 * 1024
"""Page by page to the end would be slow; what is left is less than a batch or two."""


class NoDisk(Exception):
    """A file system cannot be mounted here, and why."""


class Disk:
    """The node's data lies in `data`, beside the file that takes its room."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def data(self) -> Path:
        return self._directory / "data"

    def fill(self) -> None:
        room = os.statvfs(self._directory)
        size_bytes = room.f_bavail * room.f_frsize - _KEEP_BYTES
        if size_bytes <= 0:
            return
        fd = os.open(self._directory / _FILLER, os.O_CREAT | os.O_WRONLY)
        try:
            with contextlib.suppress(OSError):  # a broker wrote meanwhile: the disk is full
                os.posix_fallocate(fd, 0, size_bytes)
        finally:
            os.close(fd)

    def free(self) -> None:
        (self._directory / _FILLER).unlink(missing_ok=True)


@contextlib.contextmanager
def mounted(directory: Path, size_bytes: int) -> Iterator[Disk]:
    """Raises NoDisk where it is not permitted."""
    directory.mkdir(parents=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "headwater-chaos", str(directory))
    try:
        yield Disk(directory)
    finally:
        _run("umount", "--lazy", str(directory))


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False)
    except FileNotFoundError as error:
        raise NoDisk(str(error)) from error
    if done.returncode != 0:
        raise NoDisk(f"{' '.join(command)}: {done.stderr.strip()}")
