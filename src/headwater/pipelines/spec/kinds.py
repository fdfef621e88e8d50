"""What a pipeline file can say: every kind of part and its keys, for people who look them up."""

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields

from headwater.pipelines.spec.declarations import Section
from headwater.pipelines.spec.durations import shown
from headwater.pipelines.spec.keys import keys_of
from headwater.pipelines.spec.pipeline import Settings
from headwater.pipelines.spec.sinks import SINK_KINDS, Delivery
from headwater.pipelines.spec.sources import SOURCE_KINDS
from headwater.pipelines.spec.starts import Start
from headwater.pipelines.spec.steps import STEP_KINDS
from headwater.pipelines.spec.triggers import Trigger

KINDS = {Section.SOURCE: SOURCE_KINDS, Section.STEP: STEP_KINDS, Section.SINK: SINK_KINDS}


@dataclass(frozen=True, slots=True)
class KeyFacts:
    name: str
    default: str
    """Empty if there is none; "required" if it must be given."""
    doc: str


def kinds() -> Iterator[tuple[Section, str, str]]:
    """Section, name and meaning of every kind."""
    for section, by_name in KINDS.items():
        for name, kind in by_name.items():
            yield section, name, " ".join((kind.__doc__ or "").split())


def facts_of(section: Section, name: str) -> list[KeyFacts]:
    """The keys of a kind, those that must be given first. Raises KeyError."""
    if section is Section.PIPELINE:
        return list(_facts(Settings))
    found = [*_facts(KINDS[section][name]), *(_facts(Delivery) if section is Section.SINK else ())]
    return sorted(found, key=lambda fact: fact.default != "required")


def _facts(kind: type) -> Iterator[KeyFacts]:
    keys = keys_of(kind)
    for each in fields(kind):
        if each.name in keys:
            key = keys[each.name]
            default = (
                "required" if key.is_required else "" if each.default is MISSING else _shown(key.name, each.default)
            )
            yield KeyFacts(key.name, default, key.doc)


def _shown(name: str, value: object) -> str:
    match value:
        case None | ():
            return ""
        case bool():
            return str(value).lower()
        case Trigger(every_ms=int() as every_ms):
            return shown(every_ms)
        case Start(is_earliest=is_earliest):
            return "earliest" if is_earliest else "latest"
        case int() if name == "timeout":
            return shown(value)
        case int() if value >= 2**20 and value % 2**20 == 0:
            return f"{value // 2**20}MiB"
        case _:
            return str(value)
