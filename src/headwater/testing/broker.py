"""A real broker for tests, started in a moment and gone without a trace.

    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

The broker listens on a free loopback port and keeps its data in a temporary directory, which is removed at the end
(a `data_dir` that the caller gave stays). It runs in a thread of this process, or with `subprocess=True` as a
`headwater serve` child, which can be killed. Keyword arguments are fields of `BrokerConfig`.

With `secure=True` it has TLS, logins and access control, and the users that `users` names beside `admin`, who may do
everything; each logs in with what `client_config` gives:

    with Broker(secure=True, users=["alice"]) as broker:
        admin = AdminClient(broker.client_config("admin"))

Differences from `headwater serve`, each of which a keyword argument undoes: no metrics port, no HTTP, and
`durability="os"`, because a test broker's data has no power cut to survive.

Not thread-safe: one thread starts, stops and restarts a broker. Any number of clients may use it.
"""

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headwater.testing.processes.broker_process import BrokerProcess
from headwater.transport.ports import HOST, free_port

if TYPE_CHECKING:
    from headwater.testing.processes.broker_thread import BrokerThread

TEST_DEFAULTS: dict[str, Any] = {"durability": "os", "metrics": "off", "http": "off"}


class Broker:
    def __init__(
        self,
        *,
        subprocess: bool = False,
        data_dir: str | os.PathLike[str] | None = None,
        secure: bool = False,
        users: Sequence[str] = (),
        **config: Any,
    ) -> None:
        if users and not secure:
            raise ValueError("users log in to a secure broker: Broker(secure=True, users=[...])")
        self._is_process = subprocess
        self._is_secure = secure
        self._users = tuple(users)
        self._given_data_dir = Path(data_dir) if data_dir is not None else None
        self._config = {**TEST_DEFAULTS, **config}
        self._scratch: Path | None = None
        self._run: BrokerThread | BrokerProcess | None = None
        self._address: tuple[str, int] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> Self:
        """Return when clients can connect. After a stop: on the same port, with the same data."""
        assert self._run is None, "the broker is already running"
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="headwater-"))
        config = {**self._secured(), **self._config, "data_dir": self.data_dir}
        if "listener" in config:
            pass  # the listeners have their addresses
        elif self._address is not None:
            config["listen"] = self.bootstrap
        elif "listen" not in config:
            config["listen"] = f"{HOST}:{free_port()}"
        run = self._new_run(config, self._scratch)
        try:
            self._address = run.start()
        except BaseException:
            if self._address is None:
                self._remove_scratch()
            raise
        self._run = run
        return self

    def stop(self) -> None:
        """A clean shutdown. The data stays, for `start`, until `close`."""
        run, self._run = self._run, None
        if run is not None:
            run.stop()

    def kill(self) -> None:
        """SIGKILL: the process ends between two instructions. Only with `subprocess=True`."""
        if not isinstance(self._run, BrokerProcess):
            raise RuntimeError("only a running Broker(subprocess=True) can be killed: a thread has no process to lose")
        run, self._run = self._run, None
        run.kill()

    def restart(self) -> None:
        """Stop, unless stopped or killed already, and start again: same port, same data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop and remove everything this broker left on the disk."""
        try:
            self.stop()
        finally:
            self._remove_scratch()
            self._address = None

    @property
    def bootstrap(self) -> str:
        """What clients call `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    @property
    def host(self) -> str:
        return self._bound()[0]

    @property
    def port(self) -> int:
        return self._bound()[1]

    def client_config(self, user: str) -> dict[str, Any]:
        """What a client of confluent-kafka is made with to log in as `admin` or one of `users`. Only with
        `secure=True`."""
        from headwater.testing.secured_files import librdkafka_settings

        self._check_user(user)
        return librdkafka_settings(self.data_dir, user)

    def client_file(self, user: str) -> Path:
        """For `--client` of the commands, and for Kafka's tools. Only with `secure=True`."""
        from headwater.cli.security.secured_directory import client_file

        self._check_user(user)
        return client_file(self.data_dir, user)

    @property
    def data_dir(self) -> Path:
        if self._given_data_dir is not None:
            return self._given_data_dir
        assert self._scratch is not None, "a broker that has not started has no data directory"
        return self._scratch / "data"

    @property
    def is_running(self) -> bool:
        return self._run is not None and self._run.is_running

    @property
    def pid(self) -> int:
        """The broker's process; in thread mode, this one."""
        assert self._run is not None, "the broker is not running"
        return self._run.pid

    @property
    def log(self) -> str:
        """What the child has logged since the first start. Empty in thread mode: there it goes to `logging`."""
        if not self._is_process or self._scratch is None:
            return ""
        return BrokerProcess.log_in(self._scratch)

    def _secured(self) -> dict[str, Any]:
        if not self._is_secure:
            return {}
        from headwater.testing.secured_files import secured_config

        return secured_config(self.data_dir, self._users)

    def _check_user(self, user: str) -> None:
        if not self._is_secure:
            raise RuntimeError("clients log in to a secure broker: Broker(secure=True)")
        if user not in ("admin", *self._users):
            raise ValueError(f"{user} is no user of this broker: Broker(secure=True, users=[{user!r}])")

    def _new_run(self, config: dict[str, Any], scratch: Path) -> "BrokerThread | BrokerProcess":
        if self._is_process:
            return BrokerProcess(config, scratch)
        # Imports asyncio and the whole broker: only for a broker in this process.
        from headwater.testing.processes.broker_thread import BrokerThread

        return BrokerThread(config)

    def _bound(self) -> tuple[str, int]:
        assert self._address is not None, "a broker that has not started has no address"
        return self._address

    def _remove_scratch(self) -> None:
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None
