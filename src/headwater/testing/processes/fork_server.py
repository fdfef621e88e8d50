"""The process that is forked: it has imported the broker, and has one thread, so that what it forks is whole.

A message on its socket asks for a child: the command line, the number of a descriptor that the child keeps, its working
directory and its environment, with three descriptors: the child's output, the one that it keeps, and a pipe on which
the server tells the child's exit status. The server ends when the other end of the socket closes; its children do not.
"""

import contextlib
import gc
import json
import os
import pkgutil
import select
import signal
import socket
import sys
from importlib import import_module
from typing import Final

from headwater.testing.processes.forks import MAX_REQUEST_BYTES, NUMBER_BYTES

FDS: Final = 3
IMPORTED: Final = (
    "headwater.cli.main",
    "headwater.cli.serve",
    "headwater.cli.runtime",
    "headwater.cli.gateway_thread",
    "headwater.logs.formats",
    "headwater.broker.server",
    "headwater.metadata.sqlite.store",
    "uvloop",
    "headwater.metadata.etcd.store",
)
"""What a broker imports when it starts, beside its handlers. The last two are there if they are installed. None of them
starts a thread when it is imported."""


def main(control: socket.socket) -> None:
    """Return in a child, which is ready to be `headwater` then; exit when the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that uses the server
    _import()
    gc.collect()
    gc.freeze()  # pages of what was imported stay shared
    wake_fd, woken_fd = os.pipe()
    os.set_blocking(wake_fd, False)
    os.set_blocking(woken_fd, False)
    signal.set_wakeup_fd(woken_fd)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    status_fds: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control.fileno(), wake_fd], [], [])
        if wake_fd in ready:
            os.read(wake_fd, select.PIPE_BUF)
            _tell_ends(status_fds)
        if control.fileno() not in ready:
            continue
        message, fds, _, _ = socket.recv_fds(control, MAX_REQUEST_BYTES, FDS)
        if not message:
            sys.exit()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            control.close()
            for fd in (wake_fd, woken_fd, *status_fds.values()):
                os.close(fd)
            _become(message, *fds)
            return
        log_fd, keep_fd, status_fds[pid] = fds
        os.close(log_fd)
        os.close(keep_fd)
        control.send(pid.to_bytes(NUMBER_BYTES, "big"))


def _import() -> None:
    from headwater.broker import handlers

    found = [f"{handlers.__name__}.{module.name}" for module in pkgutil.iter_modules(handlers.__path__)]
    for name in (*IMPORTED, *found):
        with contextlib.suppress(ModuleNotFoundError):
            import_module(name)


def _tell_ends(status_fds: dict[int, int]) -> None:
    while status_fds:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        fd = status_fds.pop(pid)
        with contextlib.suppress(BrokenPipeError):  # nothing waits for this child any more
            os.write(fd, os.waitstatus_to_exitcode(status).to_bytes(NUMBER_BYTES, "big", signed=True))
        os.close(fd)


def _become(message: bytes, log_fd: int, keep_fd: int, status_fd: int) -> None:
    """Take the command line, the environment and the descriptors that a new process would have."""
    arguments, keep_as, directory, environment = json.loads(message)
    os.close(status_fd)
    # The number to keep may be that of the log here, so the log goes first.
    for standard in (1, 2):
        os.dup2(log_fd, standard)
    os.close(log_fd)
    if keep_as != keep_fd:
        os.dup2(keep_fd, keep_as)
        os.close(keep_fd)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["headwater", *arguments]


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
    from headwater.cli.main import app

    app()
