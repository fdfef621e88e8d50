"""`headwater cluster`, and `headwater serve` as a node of one, called as a person would."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headwater.cli.cluster.child import find_etcd
from headwater.cli.cluster.files import LocalNode, LocalPlan, load_plan, save_plan
from headwater.cli.cluster.stores import decide, opened
from headwater.cli.main import app
from headwater.cli.output import CommandFailed
from headwater.metadata import keys
from headwater.metadata.store import Put
from headwater.model.cluster import StoreRecord, StoreState
from headwater.model.ids import StoreId
from headwater.testing import Broker
from tests.support.eventually import eventually

PATIENCE_S = 90.0
COMMAND = [sys.executable, "-m", "headwater.cli.main"]


def headwater(*arguments: str, status: int = 0) -> str:
    """What it says, on both streams."""
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == status, done.output
    return done.output


class Up:
    """`headwater cluster up` as a process; what it says on a stream is collected as it comes."""

    def __init__(self, directory: Path, *arguments: str, terminal: bool = False) -> None:
        self.directory = directory
        self.said = ""
        master, slave = os.openpty() if terminal else os.pipe()
        self._stream = master
        command = [*COMMAND, "cluster", "up", "--data", str(directory), "--port", "0", *arguments]
        environment = {**os.environ, "COLUMNS": "200", "TERM": "xterm"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, start_new_session=True, env=environment
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> "Up":
        eventually(lambda: "is up." in self.said or self.process.poll() is not None, "the cluster is up")
        assert self.process.poll() is None, self.said
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        os.close(self._stream)

    @property
    def plan(self) -> LocalPlan:
        plan = load_plan(self.directory)
        assert plan is not None
        return plan

    def status(self) -> Any:
        return json.loads(headwater("cluster", "status", "--data", str(self.directory), "--json"))

    def interrupt(self) -> int:
        """Ctrl-C, once."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE_S)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # a terminal whose other side is closed
            while data := os.read(self._stream, 65536):
                self.said += data.decode(errors="replace")


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if f"PPid:\t{pid}\n" in (folder / "status").read_text():
                    found.append(int(folder.name))
    return found


@pytest.mark.timeout(300)
def test_a_cluster_is_started_used_grown_hurt_healed_and_stopped(tmp_path: Path) -> None:
    with Up(tmp_path, "--sqlite", "--nodes", "2", "--racks", "east,west") as up:
        plan = up.plan
        assert f"bootstrap   {plan.bootstrap}" in up.said
        assert f"metadata    sqlite:{tmp_path}/metadata.db" in up.said
        assert f"console     {plan.console}" in up.said
        said = headwater("produce", "--bootstrap", plan.bootstrap, "greetings", "hello")
        assert "greetings partition 0 offset 0" in said
        found = up.status()
        assert [(node["node"], node["rack"]) for node in found["nodes"]] == [(1, "east"), (2, "west")]
        assert found["controller"] in (1, 2)
        assert {store["state"] for store in found["stores"]} == {"active"}
        assert "runs already" in headwater("cluster", "up", "--data", str(tmp_path), status=1)

        assert "Added node 3" in headwater("cluster", "add", "--data", str(tmp_path), "--roles", "broker")
        assert {node["node"]: node["roles"] for node in up.status()["nodes"]}[3] == ["broker"]
        assert len(up.plan.nodes) == 3

        assert "Killed node-2" in headwater("cluster", "kill", "2", "--data", str(tmp_path))
        eventually(lambda: "node-2 ended: SIGKILL" in up.said, "its end is told")
        assert f"headwater cluster restart 2 --data {tmp_path}" in up.said
        eventually(lambda: up.status()["nodes"][1]["down_since_ms"] is not None, "it is missed")
        said = headwater("cluster", "status", "--data", str(tmp_path))
        assert ": 2 of 3 nodes, controller" in said
        assert re.search(rf"^ *2 +down since 20\d\d-\S+ +{plan.nodes[1].address} +west +0 ", said, re.MULTILINE), said
        assert plan.console is not None
        with urllib.request.urlopen(f"{plan.console}/v1/cluster", timeout=PATIENCE_S) as answer:
            (lost,) = [node for node in json.load(answer)["nodes"] if not node["is_up"]]
        assert (lost["node_id"], lost["rack"], lost["leads"], lost["size_bytes"]) == (2, "west", 0, None)
        assert lost["down_since_ms"] == up.status()["nodes"][1]["down_since_ms"]
        assert "Restarted node-2" in headwater("cluster", "restart", "2", "--data", str(tmp_path))
        headwater("cluster", "status", "--data", str(tmp_path), "--wait", "60")
        assert "no 'nine'" in headwater("cluster", "restart", "nine", "--data", str(tmp_path), status=1)

        assert "2 of" not in headwater("cluster", "status", "--data", str(tmp_path)), "it is back"
        started = children(up.process.pid)
        assert len(started) == 4
        assert up.interrupt() == 0, up.said
        assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]
    assert "does not run" in headwater("cluster", "add", "--data", str(tmp_path), status=1)
    assert (tmp_path / "logs" / "node-3.log").read_text()


@pytest.mark.timeout(300)
@pytest.mark.skipif(find_etcd() is None, reason="etcd is not installed (apt-get install etcd-server)")
def test_a_cluster_with_etcd_stops_its_nodes_first_and_comes_back_as_it_was(tmp_path: Path) -> None:
    with Up(tmp_path, "--nodes", "2", "--no-logs") as up:
        assert "metadata    etcd://127.0.0.1:" in up.said
        headwater("produce", "--bootstrap", up.plan.bootstrap, "greetings", "hello")
        cluster_id = up.status()["cluster_id"]
        assert up.interrupt() == 0, up.said
        stopped = re.findall(r"^(\S+): stopped", up.said, re.MULTILINE)
        assert stopped == ["console", "node-2", "node-1", "etcd"]
    with Up(tmp_path, "--no-logs", terminal=True) as up:
        assert up.status()["cluster_id"] == cluster_id
        said = headwater("consume", "--bootstrap", up.plan.bootstrap, "greetings", "--exit-at-end")
        assert "hello" in said
        eventually(lambda: "broker,store,controller" in up.said, "the table shows who controls")
        assert up.interrupt() == 0, up.said


@pytest.mark.timeout(300)
def test_a_secure_cluster_is_started_used_grown_hurt_and_gets_another_secret(tmp_path: Path) -> None:
    data = tmp_path / "cluster"
    with Up(data, "--sqlite", "--nodes", "2", "--secure", "--no-logs") as up:
        admin, at = str(data / "clients" / "admin.properties"), ("--data", str(data))
        assert f"headwater produce --client {admin}" in up.said
        assert "partition 0 offset 0" in headwater("produce", "--client", admin, "greetings", "hello")
        refused = headwater("topic", "list", "--bootstrap", up.plan.bootstrap, "--client", "", status=1)
        assert "TLS" in refused, "the cluster asks who is there"
        assert [node["is_up"] for node in up.status()["nodes"]] == [True, True]
        assert "Added node 3" in headwater("cluster", "add", *at)
        assert (data / "tls" / "node-3.pem").exists()
        before = (data / "cluster-secret").read_text()
        assert "new secret" in headwater("cluster", "rotate-secret", *at)
        assert (data / "cluster-secret").read_text() != before
        assert "Killed node-2" in headwater("cluster", "kill", "2", *at)
        assert "Restarted node-2" in headwater("cluster", "restart", "2", *at)
        headwater("cluster", "status", *at, "--wait", "60")
        assert "hello" in headwater("consume", "--client", admin, "greetings", "--exit-at-end")
        assert up.plan.console is not None
        asked = urllib.request.Request(f"{up.plan.console}/v1/topics")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(asked, timeout=PATIENCE_S)
        asked.add_header("Authorization", f"Bearer {(data / 'http-token').read_text().strip()}")
        with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
            assert [topic["name"] for topic in json.load(answer)["topics"]] == ["greetings"]
        logs = "".join(path.read_text() for path in (data / "logs").iterdir())
        assert "peer_handshake_failed" not in logs
        assert up.interrupt() == 0, up.said
    open_to_others = [path for path in data.rglob("*") if path.stat().st_mode & 0o007 and "secret" in path.name]
    assert open_to_others == [] and data.stat().st_mode & 0o777 == 0o700
    assert (data / "metadata.db").stat().st_mode & 0o777 == 0o600


def test_a_cluster_that_was_made_open_is_not_secured_by_a_word(tmp_path: Path) -> None:
    save_plan(tmp_path, LocalPlan(None, 2, "sync", (LocalNode(1, 1), LocalNode(2, 2))))
    said = headwater("cluster", "up", "--secure", "--data", str(tmp_path), status=1)
    assert "was made without --secure" in said


def test_a_node_that_cannot_start_ends_the_start_with_its_reason(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nodes = (LocalNode(1, taken.getsockname()[1]), LocalNode(2, 0))
        save_plan(tmp_path, LocalPlan(None, 2, "sync", nodes))
        done = subprocess.run(
            [*COMMAND, "cluster", "up", "--data", str(tmp_path)],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "node-1 did not start: Another program listens on" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_plan_of_a_cluster_survives_the_file(tmp_path: Path) -> None:
    plan = LocalPlan((2379, 2380), 3, "os", (LocalNode(1, 9092), LocalNode(4, 9100, "broker", "east")), 8080)
    save_plan(tmp_path, plan)
    assert load_plan(tmp_path) == plan
    grown = plan.grown("store", None)
    assert [node.node_id for node in grown.nodes] == [1, 4, 5]
    for nonsense in ("", "[]", '{"nodes": 3}', '{"etcd_ports": [1], "replicas": 1, "durability": "os", "nodes": []}'):
        (tmp_path / "cluster.json").write_text(nonsense)
        with pytest.raises(CommandFailed, match="cannot be read"):
            load_plan(tmp_path)


def test_a_decision_about_a_store_holds_though_its_record_is_kept_up_to_date(tmp_path: Path) -> None:
    store = StoreId("a" * 32)
    key = keys.store_key(store)

    async def scenario() -> None:
        async with opened(f"sqlite:{tmp_path / 'metadata.db'}") as metadata:

            async def write(record: StoreRecord) -> int:
                return (await metadata.txn([], [Put(key, keys.encode(record))])).versions[key]

            seen = StoreRecord(store, 1)
            version = await write(seen)
            await write(noted := replace(seen, host="here", away_since_ms=7))
            await decide(metadata, seen, version, StoreState.DRAINING)
            found = await metadata.get(key)
            assert found is not None and keys.decode_store(found.value) == replace(noted, state=StoreState.DRAINING)
            with pytest.raises(CommandFailed, match="at the same moment"):
                await decide(metadata, seen, version, StoreState.ACTIVE)
            version = await write(noted)
            await write(replace(noted, away_since_ms=None))
            with pytest.raises(CommandFailed, match="at the same moment"):
                await decide(metadata, noted, version, StoreState.LOST)

    asyncio.run(scenario())


def test_the_state_of_a_node_that_is_alone(headwater_session: Broker) -> None:
    said = headwater("cluster", "status", "--bootstrap", headwater_session.bootstrap)
    assert "1 node, controller 1" in said
    assert headwater_session.bootstrap in said
    found = json.loads(headwater("cluster", "status", "--bootstrap", headwater_session.bootstrap, "--json"))
    assert (found["is_healthy"], found["stores"], found["problems"]) == (True, None, [])


def test_questions_about_a_cluster_that_is_not_there_are_answered_in_words(tmp_path: Path, free_port: int) -> None:
    nowhere, empty = str(tmp_path / "none"), f"sqlite:{tmp_path / 'empty.db'}"
    assert "No broker answers" in headwater("cluster", "status", "--bootstrap", f"127.0.0.1:{free_port}", status=1)
    assert "There is no cluster in" in headwater("cluster", "status", "--data", nowhere, status=1)
    assert "There is no cluster in" in headwater("cluster", "add", "--data", nowhere, status=1)
    assert "There is no cluster in this metadata" in headwater(
        "cluster", "status", "--metadata", empty, "--bootstrap", "x:1", status=1
    )
    assert "No store belongs to node 7" in headwater("cluster", "drain", "7", "--metadata", empty, status=1)
    assert "There is no store abcd" in headwater("cluster", "drain", "abcd", "--metadata", empty, status=1)
    assert "--metadata is wrong" in headwater("cluster", "drain", "7", "--metadata", "ftp://x", status=2)
    assert "one or more of" in headwater("cluster", "add", "--data", nowhere, "--roles", "king", status=2)
    assert "need 5 nodes" in headwater("cluster", "up", "--data", nowhere, "--replicas", "5", status=2)


@pytest.mark.skipif(find_etcd() is None, reason="the client of etcd is not installed")
@pytest.mark.parametrize(
    "url", ["etcd://user:hush@127.0.0.1:9/x", "redis://user:hush@127.0.0.1:9", "etcd://user:hush/x@h"]
)
def test_the_password_in_a_metadata_url_is_in_no_message(url: str, tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["cluster", "status", "--metadata", url]).output
    config = tmp_path / "headwater.toml"
    config.write_text(f'metadata = "{url}"\nhttp = "off"\nmetrics = "off"\ndata_dir = "{tmp_path / "data"}"\n')
    command = [*COMMAND, "serve", "--config", str(config)]
    served = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert served.returncode != 0 and said
    assert "hush" not in said + served.stdout + served.stderr


def test_a_question_about_no_cluster_at_all_says_how_to_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "--metadata URL" in headwater("cluster", "drain", "1", status=2)


def serve(*arguments: str, data: Path) -> subprocess.CompletedProcess[str]:
    own = ["--data", str(data), "--listen", "127.0.0.1:0", "--metrics", "off", "--http", "off"]
    command = [*COMMAND, "serve", *own, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Broker]:
    """The first node of a cluster."""
    with Broker(metadata=f"sqlite:{tmp_path / 'metadata.db'}", peer_listen="127.0.0.1:0", session_timeout_s=1.0) as one:
        yield one


def test_a_node_id_that_is_in_use_is_told_with_who_uses_it(node: Broker, tmp_path: Path) -> None:
    settings = tmp_path / "node.toml"
    settings.write_text("[cluster]\nsession_timeout_s = 1\n")
    done = serve(
        "--config", str(settings), "--node-id", "1", "--metadata", f"sqlite:{tmp_path / 'metadata.db'}",
        "--peer-listen", "127.0.0.1:0", data=tmp_path / "second",
    )  # fmt: skip
    assert done.returncode == 1
    assert f"node id 1 is in use by a node at {node.bootstrap}" in done.stderr
    assert "--node-id" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_node_that_cannot_join_says_why(tmp_path: Path, free_port: int) -> None:
    away = serve(
        "--metadata", f"etcd://127.0.0.1:{free_port}", "--peer-listen", "127.0.0.1:0", data=tmp_path / "away"
    )  # fmt: skip
    assert away.returncode == 1
    assert "The metadata store cannot be used" in away.stderr
    alone = serve("--peer-listen", "127.0.0.1:0", data=tmp_path / "alone")
    assert alone.returncode == 2
    assert "needs metadata that all nodes reach" in alone.stderr
    storeless = serve("--roles", "broker", data=tmp_path / "storeless")
    assert storeless.returncode == 2
    assert "a node without a store needs a cluster" in storeless.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        busy = serve(
            "--metadata", f"sqlite:{tmp_path / 'metadata.db'}", "--peer-listen", f"127.0.0.1:{port}",
            data=tmp_path / "busy",
        )  # fmt: skip
    assert busy.returncode == 1
    assert f"Another program listens on 127.0.0.1:{port}" in busy.stderr
    assert "--peer-listen" in busy.stderr
    assert "Traceback" not in away.stderr + alone.stderr + storeless.stderr + busy.stderr
