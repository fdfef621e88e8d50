"""Run what failed in the last run of the suite once more, alone. Tests that pass now are flakes: they are named loudly,
so that they are mended, and do not stop CI. Failures in more files than the limit are no accident, and are final.

    python tools/flakes.py MOST_FILES
"""

import json
import subprocess
import sys
from pathlib import Path

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main(most_files: int) -> int:
    failed = sorted(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else []
    files = {name.partition("::")[0] for name in failed}
    print("Failed:", *failed, sep="\n  ", flush=True)
    if not failed or len(files) > most_files:
        print(f"Failures in {len(files)} files, and up to {most_files} would be tried again.")
        return 1
    again = [sys.executable, "-m", "pytest", "--last-failed", "--last-failed-no-failures", "none"]
    code = subprocess.run(again, check=False).returncode
    if code == 0:
        print("\n" + "\n".join(f"FLAKE: {name} failed beside other tests and passed alone." for name in failed))
    return code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
