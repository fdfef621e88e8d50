"""A Python process that Spark has for tasks and for commits, and uses again and again.

After every use Spark has it look for garbage, through all objects that there are. Nearly all of these belong to modules
and never become garbage: tens of milliseconds of CPU time for nothing, several times in each micro-batch.
"""

import gc
import os

_frozen_process = 0


def freeze_heap() -> None:
    """Spare what is loaded by now from being looked through. Called when a process gets something to do; what
    it has by then, it keeps."""
    global _frozen_process
    if _frozen_process != os.getpid():  # a process that was forked has what it was given, and loads more
        _frozen_process = os.getpid()
        gc.freeze()
