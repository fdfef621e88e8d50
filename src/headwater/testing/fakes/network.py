"""Hosts on one machine, each in its own network namespace, and a router between them that can lose packets.

    machine (clients) ── veth ── router ── veth ── host 1
                                   │  └─── veth ── host 2 …

A cut is a rule of the router: what comes from one host for another is dropped without a word, as by a broken cable or a
firewall, and connections stay open on both sides. A rule has one direction, so a cut can have one, too. It needs root
and iproute2, and nothing of the kernel's packet filters.

A run that was killed leaves namespaces behind; they carry the number of their process, and the next network removes
namespaces whose process is gone.
"""

import os
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

MACHINE: Final = "machine"
"""Everything outside the namespaces: the test, and its clients."""
MAX_HOSTS: Final = 62
"""Each link takes four addresses of a /24."""
_NAMESPACES: Final = Path("/run/netns")
_PREFIX: Final = "hwt"
_ATTEMPTS: Final = 20
_COMMAND_TIMEOUT_S: Final = 10.0


class NoNetwork(Exception):
    """Namespaces cannot be made here, and why."""


class Network:
    """Make with `create`; use as a context manager, or call `close`. Not thread-safe."""

    _made = 0

    def __init__(self, hosts: Sequence[str]) -> None:
        assert 0 < len(hosts) <= MAX_HOSTS and MACHINE not in hosts, "some hosts, and not more than have an address"
        Network._made += 1
        self._tag = f"{_PREFIX}-{os.getpid()}-{Network._made}"
        self._numbers = {MACHINE: 0} | {host: number for number, host in enumerate(hosts, 1)}
        self._subnet = ""
        self._cuts: Counter[tuple[str, str]] = Counter()

    @classmethod
    def create(cls, hosts: Sequence[str]) -> "Network":
        """Raises NoNetwork where it is not permitted."""
        if os.geteuid() != 0:
            raise NoNetwork("network namespaces need root")
        if shutil.which("ip") is None or shutil.which("nsenter") is None:
            raise NoNetwork("network namespaces need ip (iproute2) and nsenter (util-linux)")
        _remove_orphans()
        network = cls(hosts)
        try:
            network._build()
        except BaseException:
            network.close()
            raise
        return network

    def __enter__(self) -> "Network":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def hosts(self) -> list[str]:
        """Without the machine itself."""
        return [host for host in self._numbers if host != MACHINE]

    def address(self, host: str) -> str:
        return f"{self._subnet}.{4 * self._numbers[host] + 2}"

    def command_prefix(self, host: str) -> list[str]:
        """What to put before a command so that it runs on the host; the process is the command's own."""
        return ["nsenter", f"--net={_NAMESPACES / self._namespace(host)}", "--"]

    def cut(self, source: str, target: str) -> None:
        """Lose what `source` sends to `target`, until healed as often as it was cut."""
        self._cuts[source, target] += 1
        if self._cuts[source, target] == 1:
            self._rule("add", source, target)

    def heal(self, source: str, target: str) -> None:
        assert self._cuts[source, target] > 0, f"{source} was not cut from {target}"
        self._cuts[source, target] -= 1
        if not self._cuts[source, target]:
            self._rule("del", source, target)

    def heal_all(self) -> None:
        for (source, target), times in self._cuts.items():
            if times:
                self._rule("del", source, target)
        self._cuts.clear()

    def close(self) -> None:
        """Links go with their namespaces, and routes with their links."""
        for host in (*self.hosts, "router"):
            _remove(self._namespace(host))

    def _namespace(self, host: str) -> str:
        return f"{self._tag}-{host}"

    def _rule(self, change: str, source: str, target: str) -> None:
        router = self._namespace("router")
        where = ("iif", self._link(source), "to", self.address(target))
        _ip("-n", router, "rule", change, *where, "blackhole")
        # Routes that were found before the rule changed are forgotten.
        _ip("-n", router, "route", "flush", "cache")

    def _link(self, host: str) -> str:
        return f"link{self._numbers[host]}"

    def _build(self) -> None:
        router = self._namespace("router")
        _ip("netns", "add", router)
        _ip("-n", router, "link", "set", "lo", "up")
        _run("nsenter", f"--net={_NAMESPACES / router}", "--", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        self._join_machine(router)
        for host in self.hosts:
            namespace, number = self._namespace(host), self._numbers[host]
            _ip("netns", "add", namespace)
            _ip("-n", namespace, "link", "set", "lo", "up")
            _ip("link", "add", "net0", "netns", namespace, "type", "veth", "peer", "name", self._link(host),
                "netns", router)  # fmt: skip
            self._wire(router, self._link(host), namespace, "net0", number)
            _ip("-n", namespace, "route", "add", "default", "via", f"{self._subnet}.{4 * number + 1}")

    def _join_machine(self, router: str) -> None:
        """Take a subnet that is free on this machine: there can be only one route to it."""
        link = f"hwt{os.getpid() % 10_000_000}x{Network._made}"[:15]
        _ip("link", "add", link, "type", "veth", "peer", "name", self._link(MACHINE), "netns", router)
        _ip("link", "set", link, "up")
        for _ in range(_ATTEMPTS):
            subnet = f"10.213.{random.randrange(256)}"
            try:
                _ip("route", "add", f"{subnet}.0/24", "dev", link)
            except NoNetwork:
                continue
            self._subnet = subnet
            break
        else:
            raise NoNetwork("no subnet of 10.213.0.0/16 is free")
        _ip("addr", "add", f"{self._subnet}.2/30", "dev", link)
        _ip("-n", router, "addr", "add", f"{self._subnet}.1/30", "dev", self._link(MACHINE))
        _ip("-n", router, "link", "set", self._link(MACHINE), "up")
        _ip("route", "replace", f"{self._subnet}.0/24", "via", f"{self._subnet}.1", "dev", link)

    def _wire(self, router: str, router_link: str, namespace: str, link: str, number: int) -> None:
        _ip("-n", router, "addr", "add", f"{self._subnet}.{4 * number + 1}/30", "dev", router_link)
        _ip("-n", router, "link", "set", router_link, "up")
        _ip("-n", namespace, "addr", "add", f"{self._subnet}.{4 * number + 2}/30", "dev", link)
        _ip("-n", namespace, "link", "set", link, "up")


def _remove_orphans() -> None:
    for path in _NAMESPACES.glob(f"{_PREFIX}-*") if _NAMESPACES.is_dir() else ():
        owner = path.name.split("-")[1]
        if owner.isdigit() and not Path("/proc", owner).exists():
            _remove(path.name)


def _remove(namespace: str) -> None:
    subprocess.run(["ip", "netns", "del", namespace], capture_output=True, timeout=_COMMAND_TIMEOUT_S, check=False)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise NoNetwork(f"{' '.join(command)}: {done.stderr.strip()}")
