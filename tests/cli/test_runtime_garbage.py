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
runtime.tune_garbage_collector()
import weakref
topics = [Partition() for _ in range(10_000)]
for each in topics:
    alive += 1
    weakref.finalize(each, died).atexit = False
old = [Partition() for _ in range(60_000)]  # the first ones grow old meanwhile
del topics, each
young = [[] for _ in range(60_000)]
held_before = alive

import asyncio
async def delete() -> None:
    runtime.COLLECT_SOON_S = 0.0
    deleted = runtime.DeletedTopics(asyncio.get_running_loop())
    deleted.removed(runtime.COLLECT_AFTER_PARTITIONS - 1)
    for _ in range(10):
        await asyncio.sleep(0)
    held_by_few = alive
    deleted.removed(1)
    deleted.removed(5)
    while alive:
        await asyncio.sleep(0)
    print(held_before, held_by_few, alive)
asyncio.run(delete())
"""


def test_deleted_topics_that_outlived_young_collections_are_found_when_they_are_many() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["10000", "10000", "0"]
