"""One group driven by hand: requests in, answers collected by token, time only as the test says."""

from collections.abc import Callable
from typing import Any

from headwater.groups.classic import ClassicGroup
from headwater.groups.effects import GroupEffects, JoinAnswer, LeaveAnswer, SyncAnswer
from headwater.groups.events import Event
from headwater.groups.members import MemberProtocol
from headwater.groups.requests import CommitRequest, JoinRequest, LeaveRequest, SyncRequest
from headwater.groups.settings import GroupSettings
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.moment import Moment

WALL_MS = 1_700_000_000_000
NO_DELAY = GroupSettings(initial_rebalance_delay_ms=0)


def at(ms: int) -> Moment:
    return Moment(WALL_MS + ms, ms)


def subscription(*topics: str) -> bytes:
    body = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\x00\x01" + len(topics).to_bytes(4, "big") + body + b"\xff\xff\xff\xff"


def protocols(*names: str, topics: tuple[str, ...] = ("orders",)) -> tuple[MemberProtocol, ...]:
    return tuple(MemberProtocol(name, subscription(*topics)) for name in names)


def refusal(call: Callable[[], object]) -> ErrorCode:
    try:
        call()
    except RequestError as error:
        return error.code
    return ErrorCode.NONE


class DrivenGroup:
    def __init__(self, settings: GroupSettings = NO_DELAY) -> None:
        self.group = ClassicGroup("g", settings)
        self.events: list[Event] = []
        self.answers: dict[object, Any] = {}
        self.now_ms = 0
        self._ids = 0

    def take(self, effects: GroupEffects) -> None:
        self.events += effects.events
        for reply in effects.replies:
            assert reply.to not in self.answers, "a request is answered once"
            self.answers[reply.to] = reply.answer

    def join(self, token: object, member_id: str = "", **changes: Any) -> JoinAnswer | None:
        self._ids += 1
        self.take(self.group.join(join_request(member_id, **changes), f"id{self._ids}", token, at(self.now_ms)))
        return self.answers.get(token)

    def sync(self, token: object, member_id: str, generation: int, **changes: Any) -> SyncAnswer | None:
        request: dict[str, Any] = {"instance_id": None, "protocol_type": None, "protocol": None, "assignments": {}}
        self.take(
            self.group.sync(SyncRequest(member_id, generation=generation, **{**request, **changes}), token, self.now)
        )
        return self.answers.get(token)

    def leave(self, *member_ids: str, instance_id: str | None = None, reason: str | None = None) -> list[LeaveAnswer]:
        token = object()
        self.take(self.group.leave([LeaveRequest(each, instance_id, reason) for each in member_ids], token, self.now))
        answers: list[LeaveAnswer] = self.answers[token]
        return answers

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
        return self.group.heartbeat(member_id, instance_id, generation, self.now)

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now: Moment) -> None:
        self.group.check_commit(CommitRequest(member_id, instance_id, generation, ()), now)

    def pass_ms(self, ms: int) -> None:
        """Let time pass, stopping at every deadline as a timer would."""
        end_ms = self.now_ms + ms
        while (next_ms := self.group.next_deadline_ms()) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            self.take(self.group.tick(self.now))
        self.now_ms = end_ms

    @property
    def now(self) -> Moment:
        return at(self.now_ms)

    def stable_members(self, count: int, **changes: Any) -> list[str]:
        """That many members in one stable generation; the first leads. Each is assigned its own id."""
        for index in range(count):
            self.join(("first", index), needs_known_id=False, **self._static(index, changes))
        waiting = [member.member_id for member in self.group.members if member.joining is None]
        for member_id in waiting:
            self.join(("again", member_id), member_id, **self._static(0, changes))
        member_ids = [member.member_id for member in self.group.members]
        leader = self.group.members.leader
        assert leader is not None
        for member_id in sorted(member_ids, key=lambda each: each == leader):
            assignments = {each: each.encode() for each in member_ids} if member_id == leader else {}
            self.sync(
                ("sync", member_id, self.group.generation), member_id, self.group.generation, assignments=assignments
            )
        assert self.group.state.value == "Stable"
        return member_ids

    @staticmethod
    def _static(index: int, changes: dict[str, Any]) -> dict[str, Any]:
        if "instances" not in changes:
            return changes
        rest = {name: value for name, value in changes.items() if name != "instances"}
        return {**rest, "instance_id": changes["instances"][index]}


def join_request(member_id: str = "", **changes: Any) -> JoinRequest:
    fields: dict[str, Any] = {
        "member_id": member_id,
        "instance_id": None,
        "client_id": "app",
        "client_host": "/127.0.0.1",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": protocols("range"),
    }
    return JoinRequest(**{**fields, **changes})
