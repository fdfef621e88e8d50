"""Which node of ZooKeeper's tree holds which key.

    ROOT/keys/<folder>+/<folder>+/<name>=     the key folder/folder/name
    ROOT/sessions/<id>                        the mark of a living session; ZooKeeper deletes it with the session

A key may be the beginning of another ("b" and "b/2"), but a node that belongs to a session has no children and a folder
is not a key. So each part says by its last character what it is: "+" a folder, "=" a key.
"""

from dataclasses import dataclass

_FOLDER = "+"
_KEY = "="


@dataclass(frozen=True, slots=True)
class ZookeeperPaths:
    root: str

    @property
    def keys(self) -> str:
        return f"{self.root}/keys"

    @property
    def sessions(self) -> str:
        return f"{self.root}/sessions"

    def node(self, key: str) -> str:
        *folders, name = key.split("/")
        return "/".join([self.keys, *(folder + _FOLDER for folder in folders), name + _KEY])

    def folder(self, prefix: str) -> str:
        """Of a prefix that ends in "/"."""
        return "/".join([self.keys, *(part + _FOLDER for part in prefix[:-1].split("/"))])

    def key(self, node: str) -> str:
        """The inverse of `node`."""
        parts = node.removeprefix(f"{self.keys}/").split("/")
        return "/".join(part[:-1] for part in parts)


def parent(path: str) -> str:
    return path.rpartition("/")[0]


def is_folder(path: str) -> bool:
    return path.endswith(_FOLDER)


def is_key(path: str) -> bool:
    """Names that are neither a folder nor a key were put there by other programs."""
    return path.endswith(_KEY)
