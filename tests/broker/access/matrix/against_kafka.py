"""The matrix beside an Apache Kafka with its own authorizer: `make access-matrix`.

Every request is sent to both with the same bindings. What they do differently must be in differences.toml, with the
reason, and what is there must still be so; else the run fails.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench import kafka, maven

from headwater.wire.api_keys import ApiKey
from tests.broker.access.matrix.case import APIS, Case
from tests.broker.access.matrix.cases.groups import GROUP_KEY, TRANSACTION_KEY
from tests.broker.access.matrix.cases.table import CASES
from tests.broker.access.matrix.observations import Observations, observe
from tests.broker.access.matrix.own_broker import own_world
from tests.broker.access.matrix.scene import settled
from tests.broker.access.matrix.world import ADMIN, STRANGER, SlowWorld
from tests.support.first_users import PASSWORD
from tests.support.user_client import API_VERSIONS

KNOWN: Final = Path(__file__).with_name("differences.toml")
PROPERTIES: Final = f"""\
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
username="{ADMIN}" password="{PASSWORD}" user_{ADMIN}="{PASSWORD}" user_{STRANGER}="{PASSWORD}";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{ADMIN};User:ANONYMOUS
offsets.topic.num.partitions=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.num.partitions=1
group.consumer.session.timeout.ms=60000
group.share.session.timeout.ms=60000
"""


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    request: str
    headwater: str
    kafka: str


@asynccontextmanager
async def kafka_world() -> AsyncIterator[SlowWorld]:
    folder = Path(tempfile.mkdtemp(prefix="kafka-"))
    process = kafka.new_nodes(folder, [1], PROPERTIES)[1]
    try:
        process.start()
        await asyncio.to_thread(process.wait_until_answering)
        host, port = process.bootstrap.rsplit(":", 1)
        world = await SlowWorld.enter((host, int(port)))
        try:
            await _make_state_topics(world)
            yield world
        finally:
            world.close()
    finally:
        process.stop()
        shutil.rmtree(folder, ignore_errors=True)


async def _make_state_topics(world: SlowWorld) -> None:
    """Kafka makes the topics behind groups and transactions when it is first asked for their coordinators."""
    for key_type in (GROUP_KEY, TRANSACTION_KEY):
        fields = {"key_type": key_type, "coordinator_keys": ["the first"]}
        await settled(partial(world.admin.ask, ApiKey.FIND_COORDINATOR, 4, **fields))


async def both(cases: Sequence[Case]) -> tuple[Observations, Observations]:
    """Ours, and Kafka's."""
    async with kafka_world() as world:
        answer = await world.admin.ask(API_VERSIONS, 3, client_software_name="matrix", client_software_version="1")
        served = {each.api_key: range(each.min_version, each.max_version + 1) for each in answer.api_keys}
        theirs = await observe(world, cases, lambda key: served.get(key, range(0)), _tell("Kafka"))
    missing = [api.name for key, api in APIS.items() if key not in served]
    print(f"Not in Kafka {maven.KAFKA_VERSION}: {', '.join(missing) or 'nothing'}")
    with tempfile.TemporaryDirectory() as directory:
        async with own_world(Path(directory)) as (_, own):
            ours = await observe(own, cases, lambda key: served.get(ApiKey(key), range(0)), _tell("Headwater"))
    return ours, theirs


def differences(ours: Observations, theirs: Observations) -> dict[Difference, list[str]]:
    """Each with the versions and the bindings where it is seen."""
    assert ours.keys() == theirs.keys(), "both were asked the same"
    found: dict[Difference, list[str]] = defaultdict(list)
    for trial in sorted(ours):
        only_ours, only_theirs = ours[trial] - theirs[trial], theirs[trial] - ours[trial]
        if only_ours or only_theirs:
            difference = Difference(trial.request, _words(only_ours), _words(only_theirs))
            found[difference].append(f"{trial.version}: {trial.bindings}")
    return found


def known() -> dict[Difference, str]:
    """With the reason of each."""
    tables = tomllib.loads(KNOWN.read_text())["difference"]
    return {
        Difference(request, each["headwater"], each["kafka"]): each["reason"]
        for each in tables
        for request in each["requests"]
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="requests whose names begin so, such as Produce")
    only = parser.parse_args().only
    cases = [case for case in CASES if case.name.startswith(only)]
    try:
        ours, theirs = asyncio.run(both(cases))
    except maven.JarsUnavailable as problem:
        print(f"Apache Kafka cannot be had here: {problem}")
        return 1
    found = differences(ours, theirs)
    explained = {each: reason for each, reason in known().items() if each.request.startswith(only)}
    print(f"{len(ours)} requests to each, {len(found)} differences")
    for difference, where in sorted(found.items()):
        reason = explained.get(difference)
        print(f"\n{difference.request}\n  Headwater: {difference.headwater}\n  Kafka:     {difference.kafka}")
        print(f"  {reason or 'NOT EXPLAINED, in ' + '; '.join(where)}")
    vanished = sorted(explained.keys() - found.keys())
    for difference in vanished:
        print(f"\n{difference.request}: not different any more\n  {difference.headwater} / {difference.kafka}")
    return 1 if vanished or found.keys() - explained.keys() else 0


def _words(seen: Iterable[str]) -> str:
    return ", ".join(sorted(seen))


def _tell(server: str) -> Callable[[str], None]:
    return lambda request: print(f"{server}: {request}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
