"""``python -m proof.bench.peers REPORT...`` prints the table of reports' stories, taken together, in Markdown."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from proof.bench.peers.results import markdown, read

if __name__ == "__main__":
    reports = [json.loads(Path(path).read_text(encoding="utf-8")) for path in sys.argv[1:]]
    sys.stdout.write(markdown([it for report in reports for it in read(report)]) + "\n")
