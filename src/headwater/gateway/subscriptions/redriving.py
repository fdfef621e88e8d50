"""Dead letters sent back, as `headwater queue redrive` does it: that command is run, in a process of its own.

A redrive blocks for long and is a member of a group while it runs; a process can be ended in order (SIGINT) when its
client goes or the gateway stops, and takes its memory with it. What runs remember of each other lies in the cluster, so
that a letter is sent back once, whoever began it and however.
"""

import asyncio
import signal
import sys

import msgspec

from headwater.gateway.problems import Problem, bad_request, too_busy, unavailable
from headwater.gateway.subscriptions.shapes import RedriveIn, Redriven

MAX_AT_ONCE = 2
TIMEOUT_S = 300.0
STOP_S = 10.0
MAX_WORDS = 500


class Redriving:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._running = 0

    async def run(self, topic: str, asked: RedriveIn) -> Redriven:
        """Raises Problem."""
        if self._running >= MAX_AT_ONCE:
            raise too_busy(f"{MAX_AT_ONCE} redrives run here at this moment.", 5)
        self._running += 1
        try:
            return await self._run(topic, asked)
        finally:
            self._running -= 1

    async def _run(self, topic: str, asked: RedriveIn) -> Redriven:
        options = ["--json", f"--limit={asked.limit}", f"--bootstrap={self._bootstrap}"]
        options += [f"--to={asked.to}"] if asked.to is not None else []
        options += [f"--filter={asked.filter}"] if asked.filter is not None else []
        options += ["--dry-run"] if asked.dry_run else []
        if "\0" in "".join(options):
            raise bad_request("A zero byte is in no filter and in no name.")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headwater.cli.main", "queue", "redrive", *options, "--", topic,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(TIMEOUT_S):
                told, complaints = await process.communicate()
        except TimeoutError:
            raise unavailable(
                f"The redrive took longer than {TIMEOUT_S:.0f} s; another goes on where it was."
            ) from None
        finally:
            await _end(process)
        if process.returncode == 0:
            return msgspec.json.decode(told, type=Redriven)
        words = " ".join(complaints.decode(errors="replace").split())[-MAX_WORDS:]
        if process.returncode == 2 or "does not exist" in words or "is the dead-letter topic" in words:
            raise bad_request(words)
        raise Problem(502, "Redrive failed", words or "The redrive ended without a word.")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except (TimeoutError, asyncio.CancelledError):
        process.kill()
        await process.wait()
