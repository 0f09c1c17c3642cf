"""``cobalance sims``: simulates in virtual time, and tunes timeouts from a journal. Commands are imported on use."""

from __future__ import annotations

from cyclopts import App

COMMANDS = {
    "run": "Show one run of a churn, and check every promise after every step.",
    "day": "Simulate a day with autoscaling, and with fixed numbers of members.",
    "sweep": "Simulate a grid of settings, churn and seeds on Spark.",
    "journal": "Export the journals of groups from Redis to Parquet with Spark.",
    "calibrate": "Fit churn, drain and handler times to what a group did.",
    "tune": "Recommend timeouts for a churn and your preferences.",
    "verify": "Tell whether new settings did what was promised of them.",
    "agent": "Start members of a group for replays, and do to them what a replay orders.",
    "replay": "Replay a churn against a group of yours, and compare what came of it with the prediction.",
    "report": "Draw a sweep, a journal or a recommendation as one HTML page.",
}

app = App(name="sims", help="Simulate in virtual time, and tune timeouts from a journal.")
for _name, _help in COMMANDS.items():
    app.command(f"cobalance.cli.sims.{_name}:app", name=_name, help=_help)
