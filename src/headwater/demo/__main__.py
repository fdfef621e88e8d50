"""`make demo`: a shop on Headwater, live. A broker, traffic, a pipeline on Spark, workers of a queue, and a report."""

import argparse
import signal
import sys
import threading
import time
from importlib.metadata import version
from pathlib import Path
from types import FrameType

MAX_SECONDS = 3_600.0
EXIT_AT_ONCE = 130


def main() -> int:
    """The exit code: 0 after the time and after Ctrl-C, 1 for what a person can repair."""
    arguments = _arguments()
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return _problem('The demo needs PySpark. Install it with `pip install "headwater[spark]"`, or run `make demo`.')
    from headwater.cli.output import CommandFailed
    from headwater.demo.report import report
    from headwater.demo.run import DemoPlan, demo_broker, run_demo
    from headwater.demo.view import demo_view, summary
    from headwater.pipelines.jvm.java import NoJava, find_java
    from headwater.pipelines.run.problems import PipelineFailed

    stop_requested = _stop_on_signals()
    try:
        java = find_java()
        plan = DemoPlan(arguments.seconds, sessions_per_s=arguments.sessions)
        with demo_broker() as broker, demo_view(broker.bootstrap) as show:
            history = run_demo(broker, plan, stop_requested, show)
    except (NoJava, PipelineFailed, CommandFailed) as error:
        return _problem(str(error))
    made = f"Made {time.strftime('%Y-%m-%d %H:%M %Z')} with Headwater {version('headwater')}"
    page = report(history, f"{made}, PySpark {version('pyspark')}, {java} and Python {sys.version.split()[0]}.")
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    arguments.report.write_text(page, encoding="utf-8")
    lines = (
        summary(history[-1]),
        history[-1].left_over,
        f"Everything has stopped. Report: {arguments.report.resolve()}",
    )
    sys.stdout.write("".join(f"{line}\n" for line in lines if line))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m headwater.demo", description=__doc__)
    parser.add_argument("--seconds", type=_seconds, default=60.0, help="how long people come to the shop (60)")
    parser.add_argument("--sessions", type=_rate, default=40.0, help="how many come each second (40)")
    parser.add_argument("--report", type=Path, default=Path("demo-report.html"), help="the file to write")
    return parser.parse_args()


def _seconds(text: str) -> float:
    return _number(text, 1.0, MAX_SECONDS)


def _rate(text: str) -> float:
    return _number(text, 0.1, 1_000.0)


def _number(text: str, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"{text} is no number from {low:g} to {high:g}")
    return value


def _stop_on_signals() -> threading.Event:
    """The first signal ends the run in order; a second one at once, and what was started ends with this process."""
    stop_requested = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop_requested.is_set():
            raise SystemExit(EXIT_AT_ONCE)
        stop_requested.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    return stop_requested


def _problem(what: str) -> int:
    sys.stderr.write(f"demo: {what}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
