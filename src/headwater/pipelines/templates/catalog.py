"""The pipelines that come with Headwater: files to run as they are, or to copy and change.

A pipeline is its TOML file; files of the same name with another suffix belong to it: in SQL, the tables that it writes.
The first comment of the file says in a sentence what it does.
"""

from dataclasses import dataclass
from pathlib import Path

from headwater.pipelines.spec.mistakes import name_hint

HOME = Path(__file__).parent
COMPANIONS = (".sql", ".py")


class TemplateError(Exception):
    """There is no such pipeline, or no place for its files. The message says what to do."""


@dataclass(frozen=True, slots=True)
class PipelineTemplate:
    name: str
    summary: str
    files: tuple[Path, ...]
    """The pipeline's own first."""

    @property
    def text(self) -> str:
        return self.files[0].read_text(encoding="utf-8")

    def copy_to(self, directory: Path) -> list[Path]:
        """Put the files there, for their new owner to change. Raises TemplateError rather than replace one."""
        targets = [directory / file.name for file in self.files]
        if existing := [target for target in targets if target.exists()]:
            raise TemplateError(f"{existing[0]} exists already. Choose another directory, or remove it.")
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for file, target in zip(self.files, targets, strict=True):
                target.write_bytes(file.read_bytes())
        except OSError as error:
            raise TemplateError(f"{directory} cannot be written: {error.strerror}.") from error
        return targets


def pipeline_templates() -> list[PipelineTemplate]:
    """All of them, by name."""
    return [_read(file) for file in sorted(HOME.glob("*.toml"))]


def pipeline_template(name: str) -> PipelineTemplate:
    """Raises TemplateError with the name that was probably meant."""
    known = {pipeline.name: pipeline for pipeline in pipeline_templates()}
    spelled = name.removesuffix(".toml").replace("-", "_")
    if spelled not in known:
        raise TemplateError(f"There is no ready pipeline {name}.{name_hint(spelled, known)}")
    return known[spelled]


def _read(file: Path) -> PipelineTemplate:
    first_line = file.read_text(encoding="utf-8").partition("\n")[0]
    beside = [each for suffix in COMPANIONS if (each := file.with_suffix(suffix)).is_file()]
    return PipelineTemplate(file.stem, first_line.removeprefix("#").strip(), (file, *beside))
