"""Where this machine keeps what can be made again: class archives, launchers, logs of Spark."""

import os
from pathlib import Path


def cache_directory() -> Path:
    """Of this user: HEADWATER_CACHE, or what XDG says."""
    if given := os.environ.get("HEADWATER_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwater"
