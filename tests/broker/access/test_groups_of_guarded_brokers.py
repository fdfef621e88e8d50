"""Groups and their offsets where bindings are in force: what is refused is refused for itself, before it is looked for,
and lists show what the user may see."""

import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from headwater.model.errors import ErrorCode
from headwater.security.access_codes import SUPPORTED_BITS, Operation, PatternType, Permission, ResourceType
from headwater.wire.api_keys import ApiKey
from tests.support.eventually import eventually
from tests.support.guarded import Guarded, LoggedIn, assert_hides, guarded_broker
from tests.support.messages import nested, values_at

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
NO_TOPIC, NO_GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
UNKNOWN, UNKNOWN_ID = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID
NOT_ASKED = -(2**31)
JOIN = {"member_epoch": 0, "rebalance_timeout_ms": 60_000, "topic_partitions": []}


class Scene:
    """Two topics, the first of which is the user's to see, and a group's name."""

    def __init__(self, guarded: Guarded) -> None:
        self.mark = uuid.uuid4().hex
        self.guarded, self.admin = guarded, guarded.admin
        self.known, self.secret, self.missing = (f"{name}-{self.mark}" for name in ("known", "secret", "missing"))
        self.ids = guarded.create(self.known, self.secret, partitions=2)
        self.group = f"group-{self.mark}"

    def allow(self, operation: Operation, resource_type: ResourceType, *names: str) -> None:
        for name in names:
            self.guarded.allow(operation, resource_type, name)

    def committed(self, *topics: str, group: str = "") -> None:
        """By the administrator: 7, in partition 0 of each topic."""
        answer = commit(self.admin, group or self.group, topics)
        assert set(answer.values()) == {0}


@pytest.fixture(scope="module")
def shared_guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_broker(tmp_path_factory.mktemp("guarded"), users=["alice", "bob"]) as guarded:
        yield guarded


@pytest.fixture
def scene(guarded: Guarded) -> Scene:
    return Scene(guarded)


def commit(client: LoggedIn, group: str, topics: Iterable[Any], version: int = 8) -> dict[Any, int]:
    named = "topic_id" if version >= 10 else "name"
    asked = [nested(**{named: topic}, partitions=[nested(partition_index=0, committed_offset=7)]) for topic in topics]
    answer = client.ask(ApiKey.OFFSET_COMMIT, version, group_id=group, topics=asked)
    return {getattr(each, named): each.partitions[0].error_code for each in answer.topics}


def fetch(client: LoggedIn, group: str, topics: Iterable[Any] | None, version: int = 8) -> dict[Any, tuple[int, int]]:
    """Error and offset of partition 0, by topic."""
    named = "topic_id" if version >= 10 else "name"
    asked = None if topics is None else [nested(**{named: topic}, partition_indexes=[0]) for topic in topics]
    if version >= 8:
        answer = client.ask(ApiKey.OFFSET_FETCH, version, groups=[nested(group_id=group, topics=asked)])
        (found,) = answer.groups
    else:
        found = client.ask(ApiKey.OFFSET_FETCH, version, group_id=group, topics=asked)
    assert found.error_code == 0
    return {
        getattr(each, named): (each.partitions[0].error_code, each.partitions[0].committed_offset)
        for each in found.topics
    }


def beat(client: LoggedIn, group: str, member: str, **fields: Any) -> Any:
    def answered() -> Any:
        answer = client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id=group, member_id=member, **fields)
        return answer if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else None

    return eventually(answered, "the coordinator is loaded")


class PatternMember:
    """Subscribes to all topics of a scene, and does as it is told."""

    def __init__(self, scene: Scene, client: LoggedIn, member_id: str) -> None:
        self.scene, self.client, self.member_id = scene, client, member_id
        self.owned: set[tuple[Any, int]] = set()
        self.was_told: set[tuple[Any, int]] = set()
        pattern = {"subscribed_topic_names": [], "subscribed_topic_regex": f".*-{scene.mark}"}
        self.epoch = 0
        self._learn(beat(client, scene.group, member_id, **JOIN, **pattern))

    def beat(self) -> None:
        owned = [nested(topic_id=topic_id, partitions=[index]) for topic_id, index in self.owned]
        self._learn(
            beat(self.client, self.scene.group, self.member_id, member_epoch=self.epoch, topic_partitions=owned)
        )

    def _learn(self, answer: Any) -> None:
        assert answer.error_code == 0, answer.error_message
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            assigned = answer.assignment.topic_partitions
            self.owned = {(each.topic_id, index) for each in assigned for index in each.partitions}
            self.was_told |= self.owned


# Offsets


def test_offsets_are_committed_where_topics_may_be_read(scene: Scene) -> None:
    scene.allow(Operation.READ, GROUP, scene.group)
    scene.allow(Operation.READ, TOPIC, scene.known)
    with scene.guarded.client() as client:
        topics = (scene.known, scene.secret, scene.missing)
        assert commit(client, scene.group, topics) == {
            scene.known: 0,
            scene.secret: NO_TOPIC,
            scene.missing: NO_TOPIC,
        }, "a name that is refused is not looked for"
        assert fetch(scene.admin, scene.group, None) == {scene.known: (0, 7)}
        scene.allow(Operation.READ, TOPIC, scene.missing)
        assert commit(client, scene.group, topics)[scene.missing] == UNKNOWN


def test_offsets_by_id_tell_an_unknown_id_from_a_refused_one(scene: Scene) -> None:
    scene.allow(Operation.READ, GROUP, scene.group)
    scene.allow(Operation.READ, TOPIC, scene.known)
    known, secret, nobodys = scene.ids[scene.known], scene.ids[scene.secret], uuid.uuid4()
    with scene.guarded.client() as client:
        assert commit(client, scene.group, (known, secret, nobodys), version=10) == {
            known: 0,
            secret: NO_TOPIC,
            nobodys: UNKNOWN_ID,
        }
        scene.committed(scene.secret)
        assert fetch(client, scene.group, (known, secret, nobodys), version=10) == {
            known: (0, 7),
            secret: (NO_TOPIC, -1),
            nobodys: (UNKNOWN_ID, -1),
        }


@pytest.mark.parametrize("version", [5, 9])
def test_offsets_of_refused_topics_are_errors_by_name_and_absent_from_all(scene: Scene, version: int) -> None:
    scene.committed(scene.known, scene.secret)
    scene.allow(Operation.DESCRIBE, GROUP, scene.group)
    scene.allow(Operation.DESCRIBE, TOPIC, scene.known)
    with scene.guarded.client() as client:
        assert fetch(client, scene.group, (scene.secret, scene.known, scene.missing), version) == {
            scene.known: (0, 7),
            scene.secret: (NO_TOPIC, -1),
            scene.missing: (NO_TOPIC, -1),
        }
        assert fetch(client, scene.group, None, version) == {scene.known: (0, 7)}
        assert fetch(client, scene.group, [scene.secret], version) == {scene.secret: (NO_TOPIC, -1)}


def test_all_offsets_by_id_leave_out_what_is_refused(scene: Scene) -> None:
    scene.committed(scene.known, scene.secret)
    scene.allow(Operation.READ, GROUP, scene.group)
    scene.allow(Operation.WRITE, TOPIC, scene.known)
    with scene.guarded.client() as client:
        assert fetch(client, scene.group, None, version=10) == {scene.ids[scene.known]: (0, 7)}, (
            "WRITE implies DESCRIBE"
        )


def test_groups_of_one_request_are_refused_one_by_one(scene: Scene) -> None:
    scene.committed(scene.known)
    scene.allow(Operation.DESCRIBE, GROUP, scene.group)
    groups = [nested(group_id=each, topics=None) for each in (scene.group, f"other-{scene.mark}")]
    with scene.guarded.client() as client:
        answer = client.ask(ApiKey.OFFSET_FETCH, 8, groups=groups)
        assert [(each.error_code, list(each.topics)) for each in answer.groups] == [(0, []), (NO_GROUP, [])]


def test_offsets_are_deleted_of_topics_that_may_be_read(scene: Scene) -> None:
    scene.committed(scene.known, scene.secret)
    scene.allow(Operation.DELETE, GROUP, scene.group)
    scene.allow(Operation.READ, TOPIC, scene.known)
    names = (scene.known, scene.secret, scene.missing)
    topics = [nested(name=name, partitions=[nested(partition_index=0)]) for name in names]
    with scene.guarded.client() as client:
        answer = client.ask(ApiKey.OFFSET_DELETE, 0, group_id=scene.group, topics=topics)
        assert answer.error_code == 0
        assert list(values_at(answer, "topics[].partitions[].error_code")) == [0, NO_TOPIC, NO_TOPIC]
    assert fetch(scene.admin, scene.group, None) == {scene.secret: (0, 7)}


# Groups by name


def test_coordinators_are_told_of_groups_and_ids_that_may_be_described(scene: Scene) -> None:
    scene.allow(Operation.READ, GROUP, scene.group)
    scene.allow(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, scene.group)
    with scene.guarded.client() as client:
        for key_type, refusal in ((0, NO_GROUP), (1, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)):
            answer = client.ask(ApiKey.FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=["other", scene.group])
            refused, found = answer.coordinators
            assert (refused.error_code, refused.node_id, refused.host, refused.port) == (refusal, -1, "", -1)
            assert (found.error_code, found.port) == (0, scene.guarded.address[1])
        nonsense = client.ask(ApiKey.FIND_COORDINATOR, 4, key_type=7, coordinator_keys=["x"]).coordinators
        assert nonsense[0].error_code == ErrorCode.INVALID_REQUEST


def test_a_share_coordinator_is_for_those_who_act_for_the_cluster(scene: Scene) -> None:
    key = f"{scene.group}:{scene.ids[scene.known]}:0"
    scene.allow(Operation.ALL, GROUP, scene.group)
    with scene.guarded.client() as client:
        ask = {"key_type": 2, "coordinator_keys": [key]}
        refused = client.ask(ApiKey.FIND_COORDINATOR, 6, **ask).coordinators[0]
        assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        scene.guarded.allow_on_cluster(Operation.CLUSTER_ACTION)
        assert client.ask(ApiKey.FIND_COORDINATOR, 6, **ask).coordinators[0].error_code == ErrorCode.INVALID_REQUEST
        assert client.ask(ApiKey.FIND_COORDINATOR, 5, **ask).coordinators[0].error_code == ErrorCode.INVALID_REQUEST


def test_groups_are_described_and_deleted_one_by_one(scene: Scene) -> None:
    other = f"other-{scene.mark}"
    scene.committed(scene.known)
    scene.committed(scene.known, group=other)
    scene.allow(Operation.DESCRIBE, GROUP, scene.group)
    with scene.guarded.client() as client:
        described, refused = client.ask(
            ApiKey.DESCRIBE_GROUPS, 5, groups=[scene.group, other], include_authorized_operations=True
        ).groups
        assert (described.error_code, described.group_state) == (0, "Empty")
        assert described.authorized_operations == 1 << Operation.DESCRIBE
        assert (refused.error_code, refused.group_state, refused.authorized_operations) == (NO_GROUP, "", NOT_ASKED)
        scene.allow(Operation.DELETE, GROUP, scene.group)
        answer = client.ask(ApiKey.DELETE_GROUPS, 2, groups_names=[other, scene.group])
        assert {each.group_id: each.error_code for each in answer.results} == {other: NO_GROUP, scene.group: 0}
    left = {each.group_id for each in scene.admin.ask(ApiKey.LIST_GROUPS, 4).groups}
    assert other in left and scene.group not in left


def test_all_operations_on_a_group_are_those_of_kafka(scene: Scene) -> None:
    scene.committed(scene.known)
    scene.allow(Operation.ALL, GROUP, scene.group)
    scene.guarded.allow(Operation.DELETE, GROUP, scene.group, permission=Permission.DENY)
    with scene.guarded.client() as client:
        (described,) = client.ask(
            ApiKey.DESCRIBE_GROUPS, 5, groups=[scene.group], include_authorized_operations=True
        ).groups
    assert described.authorized_operations == SUPPORTED_BITS[GROUP] & ~(1 << Operation.DELETE)


def test_groups_are_listed_that_may_be_described_or_all_to_those_who_describe_the_cluster(scene: Scene) -> None:
    others = [f"{scene.mark}-{number}" for number in range(3)]
    for name in (*others, scene.group):
        scene.committed(scene.known, group=name)
    scene.guarded.allow(Operation.DELETE, GROUP, scene.mark, pattern=PatternType.PREFIXED)
    scene.guarded.allow(Operation.DESCRIBE, GROUP, others[1], permission=Permission.DENY)
    with scene.guarded.client() as client:
        listed = client.ask(ApiKey.LIST_GROUPS, 5).groups
        assert sorted(each.group_id for each in listed) == [others[0], others[2]]
        scene.guarded.allow_on_cluster(Operation.DESCRIBE)
        assert {*others, scene.group} <= {each.group_id for each in client.ask(ApiKey.LIST_GROUPS, 5).groups}


# Members of consumer groups (KIP-848)


def test_a_heartbeat_fails_as_a_whole_if_one_name_is_refused(scene: Scene) -> None:
    scene.allow(Operation.READ, GROUP, scene.group)
    scene.allow(Operation.DESCRIBE, TOPIC, scene.known)
    with scene.guarded.client() as client:
        for other in (scene.secret, scene.missing):
            answer = beat(client, scene.group, "m", **JOIN, subscribed_topic_names=[scene.known, other])
            assert (answer.error_code, answer.member_id, answer.assignment) == (NO_TOPIC, None, None)
        answer = beat(client, scene.group, "m", **JOIN, subscribed_topic_names=[scene.known])
        assert answer.error_code == 0
        assert [each.topic_id for each in answer.assignment.topic_partitions] == [scene.ids[scene.known]]
        refused = beat(
            client, scene.group, "m", member_epoch=answer.member_epoch, subscribed_topic_names=[scene.secret]
        )
        assert refused.error_code == NO_TOPIC, "neither can a member slip into another topic later"


def test_a_pattern_stands_for_what_its_member_may_describe(scene: Scene) -> None:
    for user in ("alice", "bob"):
        scene.guarded.allow(Operation.READ, GROUP, scene.group, user=user)
        scene.guarded.allow(Operation.DESCRIBE, TOPIC, scene.known, user=user)
    scene.guarded.allow(Operation.DESCRIBE, TOPIC, scene.secret, user="bob")
    with scene.guarded.client("alice") as of_alice, scene.guarded.client("bob") as of_bob:
        alice, bob = PatternMember(scene, of_alice, "m-alice"), PatternMember(scene, of_bob, "m-bob")

        def have(*topics: str) -> bool:
            """Whether the two have all partitions of these topics, and of no other."""
            alice.beat()
            bob.beat()
            return alice.owned | bob.owned == {(scene.ids[name], index) for name in topics for index in (0, 1)}

        eventually(lambda: have(scene.known, scene.secret), "no partition waits for a member that may not see it")
        assert scene.ids[scene.secret] not in {topic_id for topic_id, _ in alice.was_told}
        described = of_alice.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[scene.group])
        assert described.groups[0].error_code == NO_TOPIC
        assert_hides(described, scene.secret, "m-bob")
        scene.guarded.allow(Operation.DESCRIBE, TOPIC, scene.secret, user="bob", permission=Permission.DENY)
        eventually(lambda: have(scene.known), "what is taken away is given up")
        described = of_alice.ask(
            ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[scene.group], include_authorized_operations=True
        )
        assert (described.groups[0].error_code, len(described.groups[0].members)) == (0, 2)
        assert described.groups[0].authorized_operations == 1 << Operation.READ | 1 << Operation.DESCRIBE
        assert_hides(described, scene.secret)


def test_one_assigned_topic_hides_a_whole_group(scene: Scene) -> None:
    topics = [scene.known, scene.secret]
    joined = beat(scene.admin, scene.group, "m-of-admin", **JOIN, subscribed_topic_names=topics)
    assert joined.error_code == 0
    scene.allow(Operation.DESCRIBE, GROUP, scene.group)
    scene.allow(Operation.DESCRIBE, TOPIC, scene.known)
    other = f"other-{scene.mark}"
    with scene.guarded.client() as client:
        hidden, refused = client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[scene.group, other]).groups
        assert (hidden.error_code, list(hidden.members), hidden.group_epoch) == (NO_TOPIC, [], 0)
        assert_hides(hidden, "m-of-admin", scene.secret, scene.known)
        assert (refused.error_code, refused.authorized_operations) == (NO_GROUP, NOT_ASKED)
        scene.allow(Operation.DESCRIBE, TOPIC, scene.secret)
        (shown,) = client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[scene.group]).groups
        assert (shown.error_code, [each.member_id for each in shown.members]) == (0, ["m-of-admin"])


def test_where_bindings_are_only_observed_nothing_is_refused(observed: Guarded) -> None:
    scene = Scene(observed)
    scene.committed(scene.known, scene.secret)
    with observed.client() as client:
        assert set(commit(client, scene.group, (scene.known, scene.secret)).values()) == {0}
        assert fetch(client, scene.group, None) == {scene.known: (0, 7), scene.secret: (0, 7)}
        assert scene.group in {each.group_id for each in client.ask(ApiKey.LIST_GROUPS, 5).groups}
        (described,) = client.ask(
            ApiKey.DESCRIBE_GROUPS, 5, groups=[scene.group], include_authorized_operations=True
        ).groups
        assert (described.error_code, described.authorized_operations) == (0, SUPPORTED_BITS[GROUP])
        regex = {"subscribed_topic_names": [], "subscribed_topic_regex": f".*-{scene.mark}"}
        joined = beat(client, f"new-{scene.group}", "m", **JOIN, **regex)
        assert {each.topic_id for each in joined.assignment.topic_partitions} == set(scene.ids.values())
