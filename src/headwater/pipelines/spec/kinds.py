"""What a pipeline file can say: every kind of part and its keys, for people who look them up."""

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields

from headwater.model.durations import format_duration
from headwater.pipelines.spec.declarations import FileSection
from headwater.pipelines.spec.keys import keys_of
from headwater.pipelines.spec.pipeline import Settings
from headwater.pipelines.spec.sinks import SINK_KINDS, SinkDelivery
from headwater.pipelines.spec.sources import SOURCE_KINDS
from headwater.pipelines.spec.starts import Start
from headwater.pipelines.spec.steps import STEP_KINDS
from headwater.pipelines.spec.triggers import Trigger

KINDS = {FileSection.SOURCE: SOURCE_KINDS, FileSection.STEP: STEP_KINDS, FileSection.SINK: SINK_KINDS}


@dataclass(frozen=True, slots=True)
class KeyDescription:
    name: str
    default: str
    """Empty if there is none; "required" if it must be given."""
    doc: str


def kinds() -> Iterator[tuple[FileSection, str, str]]:
    """Section, name and meaning of every kind."""
    for section, by_name in KINDS.items():
        for name, kind in by_name.items():
            yield section, name, " ".join((kind.__doc__ or "").split())


def keys_of_kind(section: FileSection, name: str) -> list[KeyDescription]:
    """The keys of a kind, required keys first. Raises KeyError."""
    if section is FileSection.PIPELINE:
        return list(_key_descriptions(Settings))
    found = [
        *_key_descriptions(KINDS[section][name]),
        *(_key_descriptions(SinkDelivery) if section is FileSection.SINK else ()),
    ]
    return sorted(found, key=lambda key: key.default != "required")


def _key_descriptions(kind: type) -> Iterator[KeyDescription]:
    keys = keys_of(kind)
    for each in fields(kind):
        if each.name in keys:
            key = keys[each.name]
            default = (
                "required" if key.is_required else "" if each.default is MISSING else _shown(key.name, each.default)
            )
            yield KeyDescription(key.name, default, key.doc)


def _shown(name: str, value: object) -> str:
    match value:
        case None | ():
            return ""
        case bool():
            return str(value).lower()
        case Trigger(every_ms=int() as every_ms):
            return format_duration(every_ms)
        case Start(is_earliest=is_earliest):
            return "earliest" if is_earliest else "latest"
        case int() if name == "timeout":
            return format_duration(value)
        case int() if value >= 2**20 and value % 2**20 == 0:
            return f"{value // 2**20}MiB"
        case _:
            return str(value)
