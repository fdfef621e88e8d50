"""With which bindings a request is sent, and what comes of it."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.broker.access.declared_access import AccessCheck
from headwater.security.access_codes import Operation, PatternType, Permission, ResourceType
from headwater.security.acl import AclBinding
from headwater.security.principal import CLUSTER_NAME, EVERY_HOST, EVERY_RESOURCE, EVERY_USER
from tests.broker.access.matrix.case import Case, alternatives
from tests.broker.access.matrix.scene import Scene
from tests.broker.access.matrix.world import ADMIN, STRANGER, binding

HOST: Final = "127.0.0.1"
BESIDE_A_SUCCESS: Final = "topic_config_error_code"
"""The end of the place of an error that says that something else is not shown."""
IMPLYING: Final = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
ALL_RESOURCES: Final = {
    ResourceType.TOPIC: EVERY_RESOURCE,
    ResourceType.GROUP: EVERY_RESOURCE,
    ResourceType.TRANSACTIONAL_ID: EVERY_RESOURCE,
    ResourceType.CLUSTER: CLUSTER_NAME,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    title: str
    bindings: tuple[AclBinding, ...] = ()
    refused: AccessCheck | None = None
    """The check that fails; None if the request is allowed."""
    user: str = STRANGER

    @property
    def is_partial(self) -> bool:
        """Refused in part: the rest is done."""
        return self.refused is not None and self.refused.refused_at.endswith(BESIDE_A_SUCCESS)


def does_something(case: Case, run: Run) -> bool:
    """Whether a refused request does something all the same: a part, or the next step of a session."""
    assert run.refused is not None, "something is refused"
    return run.is_partial or (case.has_session and "[]" in case.place(run.refused))


def refused_runs(case: Case, version: int, scene: Scene, *, shapes: bool) -> Iterator[Run]:
    """`shapes`: a denial in every form that there is, and not in one alone."""
    checks = case.checks(version)
    if not checks:
        return
    yield Run(title="nothing", refused=checks[0])
    for chosen in itertools.product(*map(alternatives, checks)):
        grants = [_granted(each, scene) for each in chosen]
        for index, check in enumerate(checks):
            words = _words(chosen[index])
            others = [*grants[:index], *grants[index + 1 :]]
            yield Run(title=f"all but {words}", bindings=_flat(others), refused=check)
            denials = list(_denials(chosen[index], scene))
            for shape, denial in denials if shapes else denials[:1]:
                first = next(
                    each
                    for each, form in zip(checks, chosen, strict=True)
                    if any(_concerns(one, form) for one in denial)
                )
                yield Run(title=f"{words} denied {shape}", bindings=_flat([*grants, denial]), refused=first)


def allowed_runs(case: Case, version: int, scene: Scene, *, shapes: bool) -> Iterator[Run]:
    """The first is the administrator's, which says what the answer is to a client who may do it."""
    checks = case.checks(version)
    denied = [
        _denial(Operation.ALL, each, name, principal=user)
        for each, name in ALL_RESOURCES.items()
        for user in (EVERY_USER, f"User:{ADMIN}")
    ]  # fmt: skip
    yield Run(title="super user, all denied", bindings=tuple(denied), user=ADMIN)
    if not checks:
        yield Run(title="nothing")
        return
    for chosen in itertools.product(*map(alternatives, checks)):
        words = ", ".join(map(_words, chosen))
        yield Run(title=f"only {words}", bindings=_flat(_granted(each, scene) for each in chosen))
    if shapes:
        yield from _shaped(checks, scene)


def mixed_checks(case: Case, version: int) -> list[AccessCheck]:
    """Checks on names of a list, whose errors are in a list, too: one name can be refused, and another not."""
    forms = [(each, alternatives(each)[-1]) for each in case.checks(version)]
    return [check for check, form in forms if "[]" in form.named_at and "[]" in check.refused_at]


def mixed_run(case: Case, version: int, check: AccessCheck, scene: Scene) -> Run:
    """Of the names of `check` only the first is allowed."""
    grants = [_granted(alternatives(each)[-1], scene)[: 1 if each == check else None] for each in case.checks(version)]
    return Run(title=f"{_words(alternatives(check)[-1])} on one of two", bindings=_flat(grants), refused=check)


def _granted(check: AccessCheck, scene: Scene) -> list[AclBinding]:
    names = scene.names(check.resource_type)
    assert names, f"the request names no {check.resource_type.name}"
    return [binding(check.operation, check.resource_type, each.name) for each in names]


def _denials(check: AccessCheck, scene: Scene) -> Iterator[tuple[str, list[AclBinding]]]:
    operation, resource_type = check.operation, check.resource_type
    name = scene.names(resource_type)[0].name
    if resource_type is not ResourceType.CLUSTER and not check.named_at:
        yield "on all", [_denial(operation, resource_type, EVERY_RESOURCE)]
        return
    yield "by name", [_denial(operation, resource_type, name)]
    yield "to all users", [_denial(operation, resource_type, name, principal=EVERY_USER)]
    yield "by host", [_denial(operation, resource_type, name, host=HOST)]
    yield "with all operations", [_denial(Operation.ALL, resource_type, name)]
    if resource_type is not ResourceType.CLUSTER:
        yield "by prefix", [_denial(operation, resource_type, name[:-1], pattern_type=PatternType.PREFIXED)]
        yield "by wildcard", [_denial(operation, resource_type, EVERY_RESOURCE)]


def _denial(
    operation: Operation,
    resource_type: ResourceType,
    name: str,
    *,
    pattern_type: PatternType = PatternType.LITERAL,
    principal: str = f"User:{STRANGER}",
    host: str = EVERY_HOST,
) -> AclBinding:
    return binding(
        operation, resource_type, name, pattern_type=pattern_type, permission=Permission.DENY, principal=principal,
        host=host,
    )  # fmt: skip


def _concerns(denial: AclBinding, check: AccessCheck) -> bool:
    return denial.resource_type is check.resource_type and denial.operation in (Operation.ALL, check.operation)


def _shaped(checks: Sequence[AccessCheck], scene: Scene) -> Iterator[Run]:
    """The same rights in other words."""
    last = [alternatives(each)[-1] for each in checks]
    pairs = [(each, name) for each in last for name in (one.name for one in scene.names(each.resource_type))]
    yield Run(
        title="all operations", bindings=tuple(binding(Operation.ALL, each.resource_type, name) for each, name in pairs)
    )
    yield Run(
        title="for all users from this host",
        bindings=tuple(
            binding(each.operation, each.resource_type, name, principal=EVERY_USER, host=HOST) for each, name in pairs
        ),
    )
    if any(each.resource_type is not ResourceType.CLUSTER for each in last):
        for title, shaped in (("by prefix", _by_prefix), ("by wildcard", _by_wildcard)):
            yield Run(title=title, bindings=tuple(shaped(each, name) for each, name in pairs))
    for number in range(max(len(IMPLYING.get(each.operation, ())) for each in last)):
        implying = [(IMPLYING.get(each.operation) or (each.operation,), each, name) for each, name in pairs]
        yield Run(
            title=f"implied {number}",
            bindings=tuple(
                binding(operations[number % len(operations)], each.resource_type, name)
                for operations, each, name in implying
            ),
        )


def _by_prefix(check: AccessCheck, name: str) -> AclBinding:
    is_one = check.resource_type is ResourceType.CLUSTER
    return binding(
        check.operation, check.resource_type, name if is_one else name[:-1],
        pattern_type=PatternType.LITERAL if is_one else PatternType.PREFIXED,
    )  # fmt: skip


def _by_wildcard(check: AccessCheck, name: str) -> AclBinding:
    is_one = check.resource_type is ResourceType.CLUSTER
    return binding(check.operation, check.resource_type, name if is_one else EVERY_RESOURCE)


def _words(check: AccessCheck) -> str:
    return f"{check.operation.name} on {check.resource_type.name}"


def _flat(groups: Iterable[Sequence[AclBinding]]) -> tuple[AclBinding, ...]:
    return tuple(dict.fromkeys(each for group in groups for each in group))
