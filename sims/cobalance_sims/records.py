"""The one schema of events, handovers and outcomes, simulated or real: as data, from which those of Spark, Arrow and
SQL are made.

Every row of these three is built in the order of its columns, since Spark binds the columns of an Arrow batch by
position. Times named ``_at_ms`` or ``at_ms`` are on the group's clock (ms since 1970; a simulated group's began in
2027); all other ``_ms`` are durations. A null means "not known", never zero.
"""

from __future__ import annotations

from typing import Any, Literal

import attrs

Type = Literal["string", "long", "double", "boolean", "map<int,long>", "array<long>"]
"""Spark's type names. ``map<int,long>`` is a histogram (histogram.py): bin → count."""

SIM, JOURNAL = "sim", "journal"
"""Where rows come from: the column ``source``."""

OK, FAILED = "ok", "failed"
"""How a run ended: the column ``status``."""


@attrs.frozen
class Column:
    name: str
    type: Type
    nullable: bool
    meaning: str


@attrs.frozen
class Record:
    """The columns of one kind of row."""

    name: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def row(self, values: dict[str, Any]) -> tuple[Any, ...]:
        """Returns the values in the order of the columns; missing values are null.

        Raises:
            ValueError: a value has no column, or a required column has no value.
        """
        strange = values.keys() - set(self.names)
        missing = [it.name for it in self.columns if not it.nullable and values.get(it.name) is None]
        if strange or missing:
            raise ValueError(f"{self.name}: no column for {sorted(strange)}, no value for {missing}")
        return tuple(values.get(name) for name in self.names)


def _text(name: str, meaning: str) -> Column:
    return Column(name, "string", True, meaning)


def _long(name: str, meaning: str) -> Column:
    return Column(name, "long", True, meaning)


def _flag(name: str, meaning: str) -> Column:
    return Column(name, "boolean", True, meaning)


def _sure(column: Column) -> Column:
    return attrs.evolve(column, nullable=False)


RUN = _sure(_text("run", "the id of the simulated run, or the name of the real group"))
SOURCE = _sure(_text("source", "sim or journal"))

HELD = (
    _long("handled", "messages that the holder's handler finished in this tenure, as it reported at the end"),
    _long("busy_ms", "how long its handler was at work in this tenure, in all"),
    _long(
        "late_ms",
        "the longest time beyond a heartbeat interval without news of the holder, since its last report",
    ),
)
"""What a holder reports at the end of a tenure. The journal has it for released and abandoned."""

EVENT = Record(
    "event",
    (
        RUN,
        SOURCE,
        _text("id", "of the entry in the group's stream; null in the simulator"),
        _sure(_long("seq", "contiguous within a run, but for a jump at kind incarnation: sort by it")),
        _sure(_text("kind", "as in cobalance.journal.JournalEntry")),
        _sure(_long("at_ms", "on the group's clock")),
        _text("resource", "which it is about"),
        _text("member", "which it is about"),
        _long("token", "of the tenure"),
        _long("handover_id", "token of the tenure that ends: the same from revoking to the granted of the successor"),
        _long("deadline_ms", "when the revocation is forced, or the barrier or the grace ends; on the group's clock"),
        _long("drain_ms", "how long the revocation was pending when it ended"),
        _long("committed", "the committed offset at the end of the tenure"),
        _text("reason", "a word or two of the coordinator; empty or null says nothing"),
        *HELD,
        _long(
            "unacked", "sim: messages delivered and not acknowledged when a tenure ended other than by a finished drain"
        ),
        _long(
            "silent_since_ms",
            "sim: since when (group's clock) the member's process was dead or frozen, if it was",
        ),
        _flag("alive", "sim: of expired_member and graced, whether the member's process was alive (false expiry)"),
        _long("capacity", "of joined, where it is known; else it is taken as 1"),
    ),
)

HANDOVER = Record(
    "handover",
    (
        RUN,
        SOURCE,
        _sure(
            _long(
                "handover_id", "token of the tenure that ended; with run and resource, the key unless how is cancelled"
            )
        ),
        _sure(_text("resource", "what was handed over")),
        _text("giver", "the member that held it"),
        _text("taker", "the member that got it next; null when nobody did while observed"),
        _sure(
            _text("how", "released, abandoned, forced, expired, inherited, withdrawn or cancelled (then it was kept)")
        ),
        _text("reason", "of the entry that ended it: deadline, halted:…, grace, expired, …"),
        _long("held_at_ms", "when the giver's tenure began; null when that was before the observation"),
        _long("revoking_at_ms", "when it was asked back; null when it never was"),
        _long("deadline_ms", "when it would have been, or was, forced"),
        _long("ended_at_ms", "when the tenure, or for cancelled the revocation, ended"),
        _long("granted_at_ms", "when the taker got it"),
        _long("drain_ms", "ended - revoking: how long it was pending"),
        _long("gap_ms", "granted - ended: how long nobody owned it"),
        _long("silent_ms", "sim: ended - silent since: how long its owner had been dead or frozen by then"),
        *HELD,
        _long(
            "duplicates_at_risk", "messages that were delivered, not acknowledged and so come again; null in a journal"
        ),
        _flag("false_expiry", "of expired: its owner was alive"),
    ),
)


def _count(name: str, meaning: str) -> Column:
    return _sure(_long(name, meaning))


SETTINGS = (
    _text("mode", "cooperative or eager; the settings are null for a journal unless they were given with it"),
    _long("session_timeout_ms", "setting"),
    _long("heartbeat_interval_ms", "setting"),
    _long("revocation_timeout_ms", "setting"),
    _long("rejoin_grace_ms", "setting"),
    _long("gather_ms", "setting: how long changes are gathered"),
    _long("moves_per_call", "setting"),
)

CHURN = (
    _text("churn", "name of the churn, or of the scenario"),
    _long("seed", "of the run"),
    _long("members", "at first"),
    _long("resources", "at first"),
    _text("params", "all parameters of the run, as JSON: run_row(params) gives this run again"),
    _text("kernel", "version of the kernel that ran it"),
)

_HIST = "histogram of the handovers' "

OUTCOME = Record(
    "outcome",
    (
        RUN,
        SOURCE,
        *CHURN,
        *SETTINGS,
        _sure(_text("status", "ok, or failed: a promise was broken, or the parameters were bad; what was observed still counts")),
        _text("error", "why it failed"),
        _text("replay", "the command that replays a simulated run"),
        _count("observed_ms", "from the first event to the last, or the length of the simulated run"),
        _count("observed_events", "how many there were"),
        _count("missing_events", "events known to be missing from gaps in seq"),
        _sure(Column("member_hours", "double", False, "hours that members were there, added up")),
        _sure(Column("resource_hours", "double", False, "hours that resources were there, from their first owner on")),
        _count("joins", "members that joined as new processes (not those that came back from an expiry)"),
        _count("leaves", "members that left gracefully"),
        _count("handovers", "tenures that ended and were followed by another, back to the same member included"),
        _count("moves", "those of them that went to another member, inherited and withdrawn ones aside"),
        _count("minimum_moves", "the fewest with which each change of members could have been followed at once"),
        _count("forced", "tenures ended by the coordinator at the deadline"),
        _count("abandoned", "tenures given up by their holder with work unfinished"),
        _count("deadline_moves", "forced, and abandoned because of the deadline: drains cut short"),
        _count("cancelled", "revocations called off"),
        _count("withdrawn", "grants taken back before anybody heard of them"),
        _count("inherited", "tenures handed on to the same instance id"),
        _count("halted", "resources taken out of circulation by their holder"),
        _count("refused", "commits, releases and claims that came too late"),
        _count("barriers", "times that eager mode stopped everything"),
        _count("incarnations", "times that Redis had lost data"),
        _count("expiries", "sessions that ended by silence, those of instance ids included"),
        _count("false_expiries", "those of a live process; in a journal: it came back, or was refused something, later"),
        _count("crashes", "sim: processes killed; journal: expiries that were not false"),
        _long("pauses", "sim: processes frozen"),
        Column("heal_ms", "array<long>", False, "a crash each: until all it had is owned again; sim: from the crash, journal: from its expiry"),
        _count("unhealed", "crashes whose resources were not all owned again at the end"),
        Column("unhealed_ms", "array<long>", True, "a crash each of those: for how long by then"),
        _count("unowned_resource_ms", "time that resources had no owner, after their first one and while a member was there"),
        _long("silent_resource_ms", "sim: time that resources had an owner that was dead or frozen"),
        _count("unavailable_resource_ms", "the two together; in a journal a lower bound, since the second is not known"),
        _count("draining_resource_ms", "time that revocations were pending"),
        _long("duplicates_at_risk", "messages delivered and unacknowledged at the end of a tenure; null in a journal: see unclean_ends"),
        _count("unclean_ends", "tenures that did not end by a finished drain, each of which may bring duplicates: forced, abandoned, expired"),
        Column("fairness", "double", True, "1 - time-weighted share of resources that would have to move for evenness (within one); 1 is always even"),
        Column("gap_hist", "map<int,long>", False, _HIST + "gap_ms"),
        Column("drain_hist", "map<int,long>", False, _HIST + "drain_ms, cancelled ones aside"),
        Column("heal_hist", "map<int,long>", False, "histogram of heal_ms"),
        Column("late_hist", "map<int,long>", False, _HIST + "late_ms"),
        Column("cpu_s", "double", True, "sim: CPU seconds that the run took"),
    ),
)  # fmt: skip

RECORDS: tuple[Record, ...] = (EVENT, HANDOVER, OUTCOME)
"""All kinds of rows."""
