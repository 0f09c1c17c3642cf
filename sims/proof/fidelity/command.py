"""``make fidelity``: one story on real servers and processes, and simulated, side by side."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from cobalance.errors import CobalanceError, UsageError
from proof.fidelity import confluent
from proof.fidelity.report import FidelityReport, tell
from proof.fidelity.story import STORIES
from proof.fidelity.table import write

FAILED, USAGE, INTERRUPTED = 1, 2, 130


def main(words: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    try:
        options = _parser().parse_args(words)
    except SystemExit as end:
        return USAGE if end.code else 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that everything started is stopped, as for a Ctrl-C
    try:
        _run(options)
    except KeyboardInterrupt:
        return INTERRUPTED
    except UsageError as error:
        sys.stderr.write(f"error: {error}\n")
        return USAGE
    except CobalanceError as error:
        sys.stderr.write(f"error: {error}\n")
        return FAILED
    return 0


def _run(options: argparse.Namespace) -> None:
    if options.confluent:
        report: confluent.ConfluentReport | FidelityReport = confluent.tell(seeds=min(options.seeds, confluent.SEEDS))
        name = "confluent"
    else:
        report, name = tell(STORIES[options.story], runs=options.runs, seeds=options.seeds), options.story
    text = report.markdown()
    sys.stdout.write(text + "\n")
    if options.json is not None:
        options.json.write_text(json.dumps(report.as_json(), indent=1) + "\n")
    if options.write is not None:
        write(options.write, name, text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make fidelity",
        description="One story of churn, on a private Redis and RabbitMQ with real processes, and simulated with what was measured "
        "of this machine. Run it with `nice -n -5` where others work too.",
    )
    parser.add_argument("--story", choices=sorted(STORIES), default="churn")
    parser.add_argument("--runs", type=_positive, default=3, help="on real servers; each takes as long as the story")
    parser.add_argument("--seeds", type=_positive, default=20, help="simulated, for each of those runs")
    parser.add_argument(
        "--confluent", action="store_true", help="the shape of Confluent's table instead, simulated only"
    )
    parser.add_argument("--json", type=_writable, metavar="FILE", help="everything, for other programs")
    parser.add_argument(
        "--write", type=_existing, metavar="FILE", help="put the tables between the markers of that Markdown file"
    )
    return parser


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of at least 1")
    return int(text)


def _writable(text: str) -> Path:
    path = Path(text)
    if not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: its folder does not exist")
    return path


def _existing(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"{text} is no file")
    return path
