"""Fuzzes the targets with Atheris (`make fuzz`), which mutates inputs by the code that they reach.

Each target runs in processes of its own, which end when the time is up; what was found to reach new code is kept in
.cache/fuzz, and a later run begins with it. A crash is left there, too, and repeated by `--target NAME --input FILE`.
Without Atheris (it is in the extra `fuzz`) nothing runs, and the command says so."""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "fuzz"
MAX_INPUT_BYTES = 8192
ONE_INPUT_S = 10
"""An input that takes longer is a bug."""
MEMORY_MB = 1024
START_S = 120
_DONE = re.compile(r"Done (\d+) runs in (\d+) second")
_COVERED = re.compile(r"cov: (\d+)")


def main() -> None:
    options = argparse.ArgumentParser(prog="tests.fuzz.run", description=__doc__)
    options.add_argument("--seconds", type=int, default=60, help="of each target")
    options.add_argument("--target", action="append", help="these alone (may be repeated)")
    options.add_argument("--jobs", type=int, default=2, help="targets at one time")
    options.add_argument("--input", type=Path, help="run the target on this file alone")
    options.add_argument("--in-process", help=argparse.SUPPRESS)
    chosen, rest = options.parse_known_args()
    if chosen.in_process:
        fuzz(chosen.in_process, rest)
        return
    try:
        import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore] # noqa: F401
    except ImportError:
        sys.exit("Atheris is not installed: pip install -e '.[fuzz]'")
    from tests.fuzz.targets import SEEDS, TARGETS

    names = chosen.target or list(TARGETS)
    if unknown := set(names) - TARGETS.keys():
        sys.exit(f"There is no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    if chosen.input is not None:
        for name in names:
            TARGETS[name](chosen.input.read_bytes())
        return
    for name in names:
        folder = corpus(name)
        for seed in SEEDS[TARGETS[name]]:
            (folder / sha256(seed).hexdigest()[:16]).write_bytes(seed)
    with ThreadPoolExecutor(chosen.jobs) as pool:
        outcomes = list(pool.map(lambda name: fuzzed(name, chosen.seconds), names))
    sys.exit(0 if all(outcomes) else 1)


def corpus(name: str) -> Path:
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def fuzzed(name: str, seconds: int) -> bool:
    """Whether the target held."""
    command = [sys.executable, "-m", "tests.fuzz.run", "--in-process", name, str(corpus(name))]
    command += [f"-max_total_time={seconds}", f"-max_len={MAX_INPUT_BYTES}", f"-timeout={ONE_INPUT_S}"]
    command += [f"-rss_limit_mb={MEMORY_MB}", f"-artifact_prefix={CACHE}/crash-{name}-", "-print_final_stats=1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + START_S, check=False)
    output = done.stdout + done.stderr
    runs, covered = _DONE.search(output), _COVERED.findall(output)
    if done.returncode == 0 and runs is not None:
        print(
            f"{name}: {int(runs[1]):,} executions in {runs[2]} s, {covered[-1] if covered else '?'} branches",
            flush=True,
        )
        return True
    print(f"{name}: FAILED\n{''.join(last_lines(output))}", flush=True)
    return False


def last_lines(output: str) -> Iterator[str]:
    for line in output.splitlines()[-40:]:
        yield f"    {line}\n"


def fuzz(name: str, arguments: list[str]) -> None:
    import atheris

    with atheris.instrument_imports(include=["headwater"]):
        from tests.fuzz.targets import TARGETS
    atheris.Setup([sys.argv[0], *arguments], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
