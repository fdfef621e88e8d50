"""The pipelines that come with Headwater: files to run as they are, or to copy and change.

A pipeline is its TOML file; files of the same name with another suffix belong to it: in SQL, the tables that it writes.
The first comment of the file says in a sentence what it does.
"""

from dataclasses import dataclass
from pathlib import Path

from headwater.pipelines.spec.mistakes import nearest

HOME = Path(__file__).parent
COMPANIONS = (".sql", ".py")


class NotReady(Exception):
    """There is no such pipeline, or no place for its files. The message says what to do."""


@dataclass(frozen=True, slots=True)
class ReadyPipeline:
    name: str
    summary: str
    files: tuple[Path, ...]
    """The pipeline's own first."""

    @property
    def text(self) -> str:
        return self.files[0].read_text(encoding="utf-8")

    def copy_to(self, directory: Path) -> list[Path]:
        """Put the files there, for their new owner to change. Raises NotReady rather than replace one."""
        targets = [directory / file.name for file in self.files]
        if existing := [target for target in targets if target.exists()]:
            raise NotReady(f"{existing[0]} exists already. Choose another directory, or remove it.")
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for file, target in zip(self.files, targets, strict=True):
                target.write_bytes(file.read_bytes())
        except OSError as error:
            raise NotReady(f"{directory} cannot be written: {error.strerror}.") from error
        return targets


def ready_pipelines() -> list[ReadyPipeline]:
    """All of them, by name."""
    return [_read(file) for file in sorted(HOME.glob("*.toml"))]


def ready_pipeline(name: str) -> ReadyPipeline:
    """Raises NotReady with the name that was probably meant."""
    known = {pipeline.name: pipeline for pipeline in ready_pipelines()}
    spelled = name.removesuffix(".toml").replace("-", "_")
    if spelled not in known:
        raise NotReady(f"There is no ready pipeline {name}.{nearest(spelled, known)}")
    return known[spelled]


def _read(file: Path) -> ReadyPipeline:
    first_line = file.read_text(encoding="utf-8").partition("\n")[0]
    beside = [each for suffix in COMPANIONS if (each := file.with_suffix(suffix)).is_file()]
    return ReadyPipeline(file.stem, first_line.removeprefix("#").strip(), (file, *beside))
