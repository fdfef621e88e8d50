"""Files on whatever Spark writes to, a disk or an object store, through its own file systems."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_TEXT_BYTES = 16 * 1024 * 1024


class HadoopFiles:
    """Paths are relative to a root. Not atomic beyond what the store gives: a rename of one file is."""

    def __init__(self, spark: "SparkSession", root: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._root = jvm.org.apache.hadoop.fs.Path(root)
        session: Any = spark._jsparkSession
        self._files = self._root.getFileSystem(session.sessionState().newHadoopConf())
        self._root = self._files.makeQualified(self._root)

    def url(self, path: str) -> str:
        return str(self._at(path).toString())

    def exists(self, path: str) -> bool:
        return bool(self._files.exists(self._at(path)))

    def walk(self, path: str = "") -> Iterator[tuple[str, int]]:
        """Every file below: its path from the root, and its size. What begins with _ or . is passed over."""
        waiting = [path]
        while waiting:
            directory = waiting.pop()
            if not self.exists(directory):
                continue
            for status in self._files.listStatus(self._at(directory)):
                name = status.getPath().getName()
                below = f"{directory}/{name}" if directory else str(name)
                if name.startswith(("_", ".")):
                    continue
                if status.isDirectory():
                    waiting.append(below)
                else:
                    yield below, int(status.getLen())

    def names(self, path: str) -> list[str]:
        """What lies in a directory; nothing if there is none."""
        if not self.exists(path):
            return []
        return [str(status.getPath().getName()) for status in self._files.listStatus(self._at(path))]

    def rename(self, old: str, new: str) -> None:
        """Replaces what is there."""
        target = self._at(new)
        self._files.mkdirs(target.getParent())
        if self._files.exists(target):
            self._files.delete(target, False)
        if not self._files.rename(self._at(old), target):
            raise OSError(f"{self.url(old)} could not be renamed to {self.url(new)}")

    def delete(self, path: str) -> None:
        self._files.delete(self._at(path), True)

    def read_json(self, path: str) -> Any:
        stream = self._files.open(self._at(path))
        try:
            return json.loads(bytes(stream.readNBytes(MAX_TEXT_BYTES)))
        finally:
            stream.close()

    def write_json(self, path: str, value: object) -> None:
        """Whole or not at all: under another name first."""
        unfinished = f"{path}.unfinished"
        stream = self._files.create(self._at(unfinished), True)
        try:
            stream.write(bytearray(json.dumps(value).encode()))
        finally:
            stream.close()
        self.rename(unfinished, path)

    def _at(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path) if path else self._root
