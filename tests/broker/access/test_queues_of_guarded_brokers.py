"""Share groups where bindings are in force: their members, what these fetch and acknowledge, and their offsets."""

import uuid
from typing import Any

import pytest

from headwater.model.errors import ErrorCode
from headwater.records.batch import split
from headwater.records.record import records
from headwater.security.access_codes import SUPPORTED_BITS, Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from tests.support.eventually import eventually
from tests.support.guarded import Guarded, LoggedIn, assert_hides
from tests.support.messages import nested, values_at

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
NO_TOPIC, NO_GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NO_ID = uuid.UUID(int=0)
ACCEPT = 1


class Scene:
    """A share group that reads from the beginning, and two topics, the first of which is the user's to read."""

    def __init__(self, guarded: Guarded) -> None:
        self.mark = uuid.uuid4().hex
        self.guarded, self.admin = guarded, guarded.admin
        self.known, self.secret, self.missing = (f"{name}-{self.mark}" for name in ("known", "secret", "missing"))
        self.ids = guarded.create(self.known, self.secret)
        self.group = f"group-{self.mark}"
        config = nested(name="share.auto.offset.reset", config_operation=0, value="earliest")
        resource = nested(resource_type=32, resource_name=self.group, configs=[config])
        answer = self.admin.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
        assert answer.responses[0].error_code == 0
        for name in (self.known, self.secret):
            guarded.write(name, name.encode())

    def allow(self, operation: Operation, resource_type: ResourceType, *names: str) -> None:
        for name in names:
            self.guarded.allow(operation, resource_type, name)

    def offsets(self, client: LoggedIn, *topics: str) -> dict[str, Any]:
        """By topic; of all topics, without names."""
        asked = [nested(topic_name=name, partitions=[0]) for name in topics] or None
        answer = client.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[nested(group_id=self.group, topics=asked)])
        assert answer.groups[0].error_code == 0, answer.groups[0].error_message
        return {each.topic_name: each for each in answer.groups[0].topics}


@pytest.fixture
def scene(guarded: Guarded) -> Scene:
    return Scene(guarded)


class Member:
    def __init__(self, scene: Scene, client: LoggedIn) -> None:
        self.scene, self.client = scene, client
        self.member_id = str(uuid.uuid4())
        self.session_epoch = 0

    def join(self, *topics: str) -> Any:
        def answered() -> Any:
            answer = self.client.ask(
                ApiKey.SHARE_GROUP_HEARTBEAT, 1, group_id=self.scene.group, member_id=self.member_id, member_epoch=0,
                subscribed_topic_names=list(topics),
            )  # fmt: skip
            return answer if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else None

        return eventually(answered, "the coordinator is loaded")

    def leave(self) -> None:
        fields = {"group_id": self.scene.group, "member_id": self.member_id, "member_epoch": -1}
        assert self.client.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, **fields).error_code == 0

    def fetch(self, *topic_ids: uuid.UUID, acks: tuple[uuid.UUID, ...] = ()) -> dict[uuid.UUID, Any]:
        """Partition 0 of each topic of the response."""
        answer = self.client.ask(
            ApiKey.SHARE_FETCH, 1, group_id=self.scene.group, member_id=self.member_id,
            share_session_epoch=self.session_epoch, max_bytes=1 << 20, max_records=10, min_bytes=1,
            topics=[*(asked(each) for each in topic_ids), *(asked(each, accepts=True) for each in acks)],
        )  # fmt: skip
        assert answer.error_code == 0, answer.error_message
        self.session_epoch += 1
        return {each.topic_id: each.partitions[0] for each in answer.responses}

    def accept(self, *topic_ids: uuid.UUID) -> dict[uuid.UUID, int]:
        answer = self.client.ask(
            ApiKey.SHARE_ACKNOWLEDGE, 1, group_id=self.scene.group, member_id=self.member_id,
            share_session_epoch=self.session_epoch, topics=[asked(each, accepts=True) for each in topic_ids],
        )  # fmt: skip
        assert answer.error_code == 0, answer.error_message
        self.session_epoch += 1
        return {each.topic_id: each.partitions[0].error_code for each in answer.responses}


def asked(topic_id: uuid.UUID, *, accepts: bool = False) -> dict[str, Any]:
    batch = nested(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT])
    return nested(
        topic_id=topic_id, partitions=[nested(partition_index=0, acknowledgement_batches=[batch] if accepts else [])]
    )


def values(partition: Any) -> list[bytes | None]:
    return [each.value for header, batch in split(partition.records or b"") for each in records(batch, header)]


def test_a_member_subscribes_to_topics_that_it_may_describe(scene: Scene) -> None:
    scene.allow(Operation.READ, GROUP, scene.group)
    scene.allow(Operation.DESCRIBE, TOPIC, scene.known)
    with scene.guarded.client() as client:
        member = Member(scene, client)
        for other in (scene.secret, scene.missing):
            refused = member.join(scene.known, other)
            assert (refused.error_code, refused.assignment) == (NO_TOPIC, None)
        joined = member.join(scene.known)
        assert [each.topic_id for each in joined.assignment.topic_partitions] == [scene.ids[scene.known]]


def test_records_are_lent_and_acknowledged_of_topics_that_may_be_read(scene: Scene) -> None:
    known, secret, nobodys = scene.ids[scene.known], scene.ids[scene.secret], uuid.uuid4()
    scene.allow(Operation.READ, GROUP, scene.group)
    scene.allow(Operation.READ, TOPIC, scene.known)
    with scene.guarded.client() as client:
        member = Member(scene, client)
        assert member.join(scene.known).error_code == 0
        found = member.fetch(known, secret)
        assert (found[known].error_code, values(found[known])) == (0, [scene.known.encode()])
        assert (found[secret].error_code, values(found[secret])) == (NO_TOPIC, [])
        again = member.fetch(acks=(secret, known))
        assert {each: found.acknowledge_error_code for each, found in again.items()} == {secret: NO_TOPIC, known: 0}
        assert again[secret].error_code == NO_TOPIC, "also what came into the session before"
        assert member.accept(secret, known, nobodys) == {
            secret: NO_TOPIC,
            known: ErrorCode.INVALID_RECORD_STATE,
            nobodys: UNKNOWN,
        }
        assert_hides(found[secret], scene.secret)
        scene.allow(Operation.READ, TOPIC, scene.secret)
        assert values(member.fetch()[secret]) == [scene.secret.encode()], "in the session as it is"
        assert member.accept(secret) == {secret: 0}


def test_one_topic_hides_a_whole_share_group(scene: Scene) -> None:
    with scene.guarded.client("admin") as of_admin, scene.guarded.client() as client:
        Member(scene, of_admin).join(scene.known, scene.secret)
        scene.allow(Operation.DESCRIBE, GROUP, scene.group)
        scene.allow(Operation.DESCRIBE, TOPIC, scene.known)

        def described() -> Any:
            answer = client.ask(
                ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=[scene.group], include_authorized_operations=True
            )
            return answer.groups[0]

        hidden = described()
        assert (hidden.error_code, list(hidden.members), hidden.group_epoch) == (NO_TOPIC, [], 0)
        assert_hides(hidden, scene.known, scene.secret)
        scene.allow(Operation.DESCRIBE, TOPIC, scene.secret)
        shown = described()
        assert (shown.error_code, len(shown.members)) == (0, 1)
        assert shown.authorized_operations == 1 << Operation.DESCRIBE
        (of_all,) = of_admin.ask(
            ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=[scene.group], include_authorized_operations=True
        ).groups
        assert of_all.authorized_operations == SUPPORTED_BITS[GROUP]


def test_offsets_of_share_groups_are_told_altered_and_deleted_topic_by_topic(scene: Scene) -> None:
    with scene.guarded.client("admin") as of_admin, scene.guarded.client() as client:
        reader = Member(scene, of_admin)
        reader.join(scene.known, scene.secret)
        reader.fetch(scene.ids[scene.known], scene.ids[scene.secret])
        reader.fetch()
        reader.leave()
        scene.allow(Operation.READ, GROUP, scene.group)
        scene.allow(Operation.READ, TOPIC, scene.known)
        names = (scene.known, scene.secret, scene.missing)

        found = scene.offsets(client, *names)
        assert [found[name].partitions[0].error_code for name in names] == [0, NO_TOPIC, NO_TOPIC]
        refused = found[scene.secret].partitions[0]
        assert (found[scene.secret].topic_id, refused.start_offset, refused.lag) == (NO_ID, -1, -1)
        assert set(scene.offsets(client)) == {scene.known}, "of all topics what may be seen"
        assert set(scene.offsets(scene.admin)) == {scene.known, scene.secret}

        topics = [nested(topic_name=name, partitions=[nested(partition_index=0, start_offset=1)]) for name in names]
        altered = client.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id=scene.group, topics=topics)
        assert list(values_at(altered, "responses[].partitions[].error_code")) == [0, NO_TOPIC, NO_TOPIC]
        assert [each.topic_id for each in altered.responses] == [scene.ids[scene.known], NO_ID, NO_ID]
        starts = {name: each.partitions[0].start_offset for name, each in scene.offsets(scene.admin).items()}
        assert starts == {scene.known: 1, scene.secret: 0}

        scene.allow(Operation.DELETE, GROUP, scene.group)
        asked_to_delete = [nested(topic_name=name) for name in names]
        deleted = client.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, group_id=scene.group, topics=asked_to_delete)
        assert [(each.error_code, each.topic_id) for each in deleted.responses] == [
            (0, scene.ids[scene.known]),
            (NO_TOPIC, NO_ID),
            (NO_TOPIC, NO_ID),
        ]
        assert set(scene.offsets(scene.admin)) == {scene.secret}


def test_a_topic_that_is_refused_brings_no_group_into_being(scene: Scene) -> None:
    scene.allow(Operation.READ, GROUP, scene.group)
    topics = [nested(topic_name=scene.secret, partitions=[nested(partition_index=0, start_offset=0)])]
    with scene.guarded.client() as client:
        answer = client.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id=scene.group, topics=topics)
        assert list(values_at(answer, "responses[].partitions[].error_code")) == [NO_TOPIC]
    assert scene.group not in {each.group_id for each in scene.admin.ask(ApiKey.LIST_GROUPS, 5).groups}
