"""The collector of a broker's process: what was deleted after it had lived for a while is freed."""

import subprocess
import sys

SCRIPT = """
import gc
from headwater.cli import runtime

class Partition:
    def __init__(self):
        self.replicator = [self]

alive = 0
def died():
    global alive
    alive -= 1

runtime.tune_interpreter()
runtime.settle_garbage_collector()
import weakref
topics = [Partition() for _ in range(10_000)]
for each in topics:
    alive += 1
    weakref.finalize(each, died).atexit = False
old = [Partition() for _ in range(60_000)]  # the first ones grow old meanwhile
del topics, each
more = [[] for _ in range(550_000)]
print(alive)
"""


def test_deleted_objects_that_outlived_young_collections_are_found() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout) == 0
