"""What happens to the registry's state, as it is written to its log."""

from dataclasses import dataclass
from typing import TypeAlias

from headwater.schemas.contexts import DEFAULT
from headwater.schemas.levels import Level, Mode
from headwater.schemas.schema import Schema


@dataclass(frozen=True, slots=True)
class SchemaPut:
    """A version of a subject, new or changed: a version that is deleted softly is put again."""

    subject: str
    version: int
    schema_id: int
    schema: Schema
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class SchemaRemoved:
    """For good."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class SubjectDeleted:
    """Softly, up to a version. Written by other registries; this one puts each version."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Config:
    level: Level
    normalize: bool = False


@dataclass(frozen=True, slots=True)
class ConfigPut:
    subject: str | None
    """Of a subject or a context; None: of all in the default context that have none of their own."""
    config: Config | None


@dataclass(frozen=True, slots=True)
class ModePut:
    subject: str | None
    mode: Mode | None


@dataclass(frozen=True, slots=True)
class IdsGiven:
    """The last id of a context when schemas were removed: compaction forgets them, and none may ever be given twice."""

    last_id: int
    context: str = DEFAULT


@dataclass(frozen=True, slots=True)
class ContextPut:
    """A context has got its first subject, or was removed."""

    context: str
    is_there: bool


Event: TypeAlias = SchemaPut | SchemaRemoved | SubjectDeleted | ConfigPut | ModePut | IdsGiven | ContextPut
