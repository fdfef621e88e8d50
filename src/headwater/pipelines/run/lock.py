"""One run of a pipeline at a time: two queries on one checkpoint would ruin it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.pipelines.run.problems import PipelineFailed
from headwater.pipelines.run.session import is_local_path, local_path

LOCK = "headwater.lock"


@contextmanager
def only_run(pipeline: str, checkpoint: str) -> Iterator[None]:
    """Hold the checkpoint of a local disk. On shared storage the status topic tells of other runs.

    Raises PipelineFailed if another process holds it."""
    if not is_local_path(checkpoint):
        yield
        return
    directory = local_path(checkpoint)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / LOCK).open("a+")
    except OSError as error:
        raise PipelineFailed(
            f"The checkpoint {directory} cannot be written: {error.strerror}.",
            'Name another directory with checkpoint = "…".',
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read(20).strip()
            raise PipelineFailed(
                f"The pipeline {pipeline} is running already{f' (process {holder})' if holder.isdigit() else ''}.",
                f"`headwater pipeline stop {pipeline}` stops it.",
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
