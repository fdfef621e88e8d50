"""What a pipeline file says, before anybody asks whether it makes sense: names, values, and where each stands.

Both surfaces, TOML and Python modules, become declarations; one reader turns them into a pipeline.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.pipelines.spec.mistakes import Location


class FileSection(enum.StrEnum):
    PIPELINE = "pipeline"
    SOURCE = "source"
    STEP = "step"
    SINK = "sink"


@dataclass(frozen=True, slots=True)
class Declaration:
    section: FileSection
    name: str
    values: Mapping[str, object]
    location: Location
    locations: Mapping[str, Location] = field(default_factory=dict)
    """Where the keys stand; those in a table of the part as table.key."""
    value_locations: Mapping[str, Location] = field(default_factory=dict)
    """Where their values begin, as far as that differs: a text of many lines begins below its key."""
    function: Callable[..., Any] | None = None
    """The Python function that this decorates."""

    def location_of(self, key: str) -> Location:
        return self.locations.get(key) or self.locations.get(key.partition(".")[0], self.location)

    def value_location_of(self, key: str) -> Location:
        return self.value_locations.get(key) or self.location_of(key)

    def __str__(self) -> str:
        return f"{self.section} {self.name}" if self.name else f"the {self.section}"
