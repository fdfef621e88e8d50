"""The table of what each request needs, as docs/security.md has it: `python -m tests.broker.access.access_table`
writes it there from the declarations."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headwater.broker.access.declared_access import LEFT_OUT, AccessCheck
from headwater.broker.api import Api
from headwater.broker.dispatch import load_handlers
from headwater.security.access_codes import ResourceType

PAGE: Final = Path(__file__).parents[3] / "docs/security.md"
HEADING: Final = "## What each request needs\n"
INTRODUCTION: Final = """
Where `authorization` is `on`, a client needs what all rows of a request say; *or* stands between grants of which one
will do. A refusal does not say whether there is what the client named.

"""
HEAD: Final = "| request | needs | a refusal stands at | when |\n|---|---|---|---|\n"
RESOURCES: Final = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.CLUSTER: "cluster",
    ResourceType.TRANSACTIONAL_ID: "transactional id",
}


def section() -> str:
    apis = [load_handlers()[key].api for key in sorted(load_handlers())]
    return HEADING + INTRODUCTION + HEAD + "".join(line for api in apis for line in _lines(api))


def write() -> None:
    before, _, rest = PAGE.read_text().partition(HEADING)
    _, next_heading, after = rest.partition("\n## ")
    PAGE.write_text(f"{before.rstrip()}\n\n{section()}{next_heading}{after}")


def _lines(api: Api) -> Iterator[str]:
    title = f"{api.name} ({api.key.value})"
    if api.access.open_because:
        yield f"| {title} | nothing | | {api.access.open_because} |\n"
    merged: dict[tuple[str, str], list[AccessCheck]] = {}
    for check in api.access.checks:
        merged.setdefault((_needs(check), check.condition), []).append(check)
    for (needs, condition), checks in merged.items():
        yield f"| {title} | {needs} | {_places(api, checks)} | {condition} |\n"
        title = ""


def _needs(check: AccessCheck) -> str:
    words = f"{check.operation.name} on the {RESOURCES[check.resource_type]}"
    return words if check.or_else is None else f"{words}, *or* {_alternative(check.or_else)}"


def _alternative(check: AccessCheck) -> str:
    return _needs(check).replace("the topic", check.condition) if check.condition else _needs(check)


def _places(api: Api, checks: list[AccessCheck]) -> str:
    """Where versions differ, with the last version of each."""
    places: dict[str, range] = {}
    for check in checks:
        place, versions = _place(check), check.versions
        known = places.get(place, versions)
        places[place] = range(min(known.start, versions.start), max(known.stop, versions.stop))
    if len(places) == 1:
        ((place, versions),) = places.items()
        if versions.start > api.min_version:
            return f"{place}, from version {versions.start} on"
        return place if versions.stop > api.max_version else f"{place}, to version {versions.stop - 1}"
    return ", ".join(
        f"{place} to version {versions.stop - 1}" if versions.stop <= api.max_version else f"then {place}"
        for place, versions in places.items()
    )


def _place(check: AccessCheck) -> str:
    return "nowhere (it is left out)" if check.refused_at == LEFT_OUT else f"`{check.refused_at}`"


if __name__ == "__main__":
    write()
