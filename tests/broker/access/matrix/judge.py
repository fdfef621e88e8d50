"""What an answer must be: to a request that is refused, in whole or for one of two names, and to one that is allowed.

A judgement is a list of sentences, one for each thing that is wrong.
"""

import re
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from headwater.broker.access.declared_access import LEFT_OUT, REFUSALS
from headwater.model.errors import ErrorCode
from headwater.security.access_codes import Operation, ResourceType
from headwater.security.acl_index import AclIndex
from headwater.security.hosts import host_of
from headwater.security.principal import Principal
from headwater.wire.message import Message
from headwater.wire.message_classes import request_class
from tests.broker.access.matrix.case import Case, Fields, alternatives, refusal
from tests.broker.access.matrix.places import Leaf, error_codes, leaves
from tests.broker.access.matrix.runs import HOST, Run
from tests.broker.access.matrix.scene import Named, Scene
from tests.broker.access.matrix.world import ADMIN, STRANGER, VALUE, World
from tests.support.messages import build
from tests.support.user_client import Exchange

AUTHORIZATION: Final = frozenset((*REFUSALS.values(), ErrorCode.SECURITY_DISABLED))
POSITIONS: Final = re.compile(r"(offset|watermark|lag|producer_id|producer_epoch|append_time_ms)$")
"""Ends of the names of fields that tell how much there is, or who writes it."""
UNKNOWN_POSITION: Final = -1
NO_PRODUCER: Final = ("producer_id", "producer_epoch")
"""Fields that may be 0: as in Kafka, no value says that there is none."""
NAMED_TYPES: Final = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
_STRANGER: Final = Principal.user(STRANGER)


def of_refused(case: Case, run: Run, world: World, fields: Fields, exchange: Exchange) -> list[str]:
    assert run.refused is not None, "something is refused"
    if exchange.is_closed or case.closes:
        is_wrong = exchange.is_closed is not case.closes
        return [f"the connection was {'' if exchange.is_closed else 'not '}closed"] if is_wrong else []
    place = case.place(run.refused)
    problems = [
        *(_code_at(place, refusal(run.refused), exchange) if place != LEFT_OUT else ()),
        *_codes_elsewhere(place, exchange),
        *leaks(world, run, exchange),
    ]
    if place != LEFT_OUT and not run.is_partial:
        problems += _positions(case, fields, exchange)
    return problems


def of_allowed(case: Case, version: int, run: Run, scene: Scene, exchange: Exchange) -> list[str]:
    if exchange.is_closed:
        return ["the connection was closed"]
    good = {ErrorCode.NONE, *case.also}
    problems = [
        f"{leaf.path} is {_word(leaf.value)}" for leaf in error_codes(exchange.message) if leaf.value not in good
    ]
    for check in case.checks(version):
        if case.place(check) == LEFT_OUT:
            resource_type = alternatives(check)[-1].resource_type
            names = scene.names(ResourceType.TOPIC if resource_type is ResourceType.CLUSTER else resource_type)
            problems += [f"{each.name} is not in the response" for each in names if not _has(exchange, each)]
    return problems if case.shows_all or _is_of_cluster(run) else [*problems, *leaks(scene.world, run, exchange)]


def of_mixed(case: Case, run: Run, scene: Scene, exchange: Exchange) -> list[str]:
    """The first of two names is allowed, and the other is not."""
    check = run.refused
    assert check is not None, "a name is refused"
    if exchange.is_closed:
        return [] if case.closes else ["the connection was closed"]
    place = case.place(check)
    allowed, other = scene.names(alternatives(check)[-1].resource_type)
    if place == LEFT_OUT:
        return [
            *([] if _has(exchange, allowed) else [f"{allowed.name} is not in the response"]),
            *([f"{other.name} is in the response"] if _has(exchange, other) else []),
            *_codes_elsewhere(place, exchange),
        ]
    codes = [leaf for leaf in error_codes(exchange.message) if leaf.path == place]
    of_other = [leaf for leaf in codes if _is_about(leaf, other)]
    of_allowed = [leaf for leaf in codes if _is_about(leaf, allowed) and leaf not in of_other]
    good = {ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED, *case.also}
    return [
        *([] if of_other and of_allowed else ["one of the names is not in the response"]),
        *(f"{place} of {other.name} is {_word(each.value)}" for each in of_other if each.value != refusal(check)),
        *(f"{place} of {allowed.name} is {_word(each.value)}" for each in of_allowed if each.value not in good),
        *_codes_elsewhere(place, exchange),
        *([] if case.shows_all else leaks(scene.world, run, exchange)),
    ]


def built(case: Case, fields: Fields) -> Message:
    """The request as a message."""
    message: Message = build(request_class(case.api_key), **fields)
    return message


def leaks(world: World, run: Run, exchange: Exchange) -> Iterator[str]:
    """What the client has not named itself, and may not know of."""
    marked = re.compile(re.escape(world.mark.encode()) + rb"(?:-\d+-[a-z]+-\d)?(?:" + VALUE.encode() + rb")?")
    index = AclIndex(run.bindings, version=1)
    for each in sorted(set(marked.findall(exchange.response)) - set(marked.findall(exchange.request))):
        text = each.decode()
        if text.endswith(VALUE):
            is_known = _may(index, Operation.READ, ResourceType.TOPIC, text.removesuffix(VALUE))
        else:
            is_known = any(_may(index, Operation.DESCRIBE, resource_type, text) for resource_type in NAMED_TYPES)
        if not is_known:
            yield f"{text} is in the response"
    for each, (resource_type, name) in world.hidden.items():
        is_new = each in exchange.response and each not in exchange.request
        if is_new and not _may(index, Operation.DESCRIBE, resource_type, name):
            yield f"{each!r} of {name} is in the response"


def _is_of_cluster(run: Run) -> bool:
    """Of an administrator, or of someone who may do something with the whole cluster, and so with all in it."""
    return run.user == ADMIN or any(each.resource_type is ResourceType.CLUSTER for each in run.bindings)


def _may(index: AclIndex, operation: Operation, resource_type: ResourceType, name: str) -> bool:
    return index.authorize(_STRANGER, host_of(HOST), operation, resource_type, name).is_allowed


def _code_at(place: str, expected: ErrorCode, exchange: Exchange) -> Iterator[str]:
    codes = [leaf for leaf in error_codes(exchange.message) if leaf.path == place]
    if not codes:
        yield f"{place} is not in the response"
    yield from (f"{place} is {_word(leaf.value)}, not {expected.name}" for leaf in codes if leaf.value != expected)


def _codes_elsewhere(place: str, exchange: Exchange) -> Iterator[str]:
    for leaf in error_codes(exchange.message):
        if leaf.path != place and leaf.value in AUTHORIZATION:
            yield f"{leaf.path} is {_word(leaf.value)}"


def _positions(case: Case, fields: Fields, exchange: Exchange) -> Iterator[str]:
    named = {leaf.value for leaf in leaves(built(case, fields))}
    for leaf in leaves(exchange.message):
        is_nothing = leaf.value == UNKNOWN_POSITION or (leaf.value == 0 and leaf.path.endswith(NO_PRODUCER))
        if POSITIONS.search(leaf.path) and not is_nothing and leaf.value not in named:
            yield f"{leaf.path} is {leaf.value}"


def _has(exchange: Exchange, named: Named) -> bool:
    return named.name.encode() in exchange.response or (named.id.int != 0 and named.id.bytes in exchange.response)


def _is_about(leaf: Leaf, named: Named) -> bool:
    identities = {named.name, *([named.id] if named.id.int else [])}
    return any(
        getattr(struct, name) in identities
        for struct in leaf.around
        for name in struct.__slots__
        if _is_id(struct, name)
    )


def _is_id(struct: object, name: str) -> bool:
    return isinstance(getattr(struct, name), str | UUID)


def _word(code: int) -> str:
    return ErrorCode(code).name
