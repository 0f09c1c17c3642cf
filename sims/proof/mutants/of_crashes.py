"""Bugs planted where crashes are seen at once: in what a member vouches for, and in the looks at who may be dead."""

from __future__ import annotations

from proof.mutants.mutant import Mutant, lua

VOUCHES: tuple[Mutant, ...] = (
    lua(
        "any-connection-is-vouched-for",
        "suspect",
        "server == IDENTITY and connection == CONNECTION and vouch",
        "server == IDENTITY and connection ~= '-' and vouch",
        "A member that has another connection by now is looked at for the one that it lost.",
        "untrue_witnesses@1..20",
    ),
    lua(
        "vouched-on-any-server",
        "suspect",
        "server == IDENTITY and connection == CONNECTION and vouch",
        "connection == CONNECTION and vouch",
        "After a failover members are looked at whose listeners have not found the new server yet.",
        "witnesses_of_losses@1..10",
        "tests/coordinator/test_suspect.py",
    ),
    lua(
        "unvouched-looks",
        "suspect",
        "  if not vouch then return 'UNVOUCHED' end\n",
        "  vouch = vouch or 'none'\n",
        "What a living process said when it lost the broker counts for nothing.",
        "false_alarms@1..20",
    ),
    lua(
        "nobody-is-asked",
        "suspect",
        "  if heard_by(SUSPECT, ASK) ~= 0 then return 'ALIVE' end -- or nobody can tell\n",
        "",
        "A process that listens is not noticed, and not asked to call.",
        "untrue_witnesses@1..20",
    ),
    lua(
        "calls-are-no-sign-of-life",
        "suspect",
        "  if SEEN_BEFORE ~= '' and seen ~= SEEN_BEFORE then return 'ALIVE' end\n",
        "",
        "A member that calls between two looks is taken for dead all the same.",
        "false_alarms@1..10",
        "tests/coordinator/test_suspect.py",
    ),
    lua(
        "long-pauses-count",
        "suspect",
        "WITHIN > 0 and now - LAST_LOOK <= WITHIN",
        "WITHIN > 0",
        "Who stood still while they looked takes what happened meanwhile for silence.",
        "tests/coordinator/test_suspect.py",
    ),
    lua(
        "ended-in-a-recovery",
        "suspect",
        "  if G.recovering > 0 then return 'RECOVERING' end\n",
        "",
        "A session ends early whose holdings nobody is certain of.",
        "witnesses_of_losses@1..40",
        "tests/coordinator/test_suspect.py",
    ),
    lua(
        "unheard-vouches",
        "vouch",
        " or (heard_by(CALLER, PRESENT) or 0) == 0 then return 'UNHEARD' end",
        " then return 'UNHEARD' end",
        "A member vouches where nobody hears its listener, and looks dead from then on.",
        "false_alarms@1..40",
        "tests/coordinator/test_suspect.py",
    ),
    lua(
        "late-vouches",
        "vouch",
        "  if REQUEST < (tonumber(string.match(call('HGET', STATE, 'v:' .. CALLER) or '', '%d+$')) or 0) then return 'LATE' end\n",
        "",
        "A late copy of a vouch undoes what the member has said since.",
        "untrue_witnesses@1..40",
        "tests/coordinator/test_suspect.py",
    ),
)

LOOKS: tuple[Mutant, ...] = (
    Mutant(
        name="two-looks-are-enough",
        file="rabbitmq/consume/crash_watch.py",
        old="LOOKS, LOOKS_IF_GONE = 4, 2",
        new="LOOKS, LOOKS_IF_GONE = 2, 2",
        breaks="A living process has a quarter of the time to show that it lives.",
        rungs=("false_alarms@1..40", "tests/rabbitmq/consume/test_crash_watch.py"),
    ),
    Mutant(
        name="no-pause-between-looks",
        file="rabbitmq/consume/crash_watch.py",
        old="        return 0 if self._is_gone else LOOK_EVERY_MS\n",
        new="        return 0\n",
        breaks="All looks are made in the moment in which a living process connects again.",
        rungs=("false_alarms@1..40", "tests/rabbitmq/consume/test_crash_watch.py"),
    ),
    Mutant(
        name="vouch-kept-without-the-broker",
        file="group/vouching.py",
        old="        if not self._member or (connection is None and not self._recorded):\n",
        new="        if not self._member or connection is None:\n",
        breaks="A process that has lost the broker does not say so, and is taken for dead.",
        rungs=("false_alarms@1..20",),
    ),
    Mutant(
        name="unanswered-vouches-are-not-repeated",
        file="group/vouching.py",
        old="        self._recorded = self.is_unheard = True  # it",
        new="        self._recorded = True  # it",
        breaks="A process that has lost the broker while Redis did not answer does not say so later, and is taken for dead.",
        rungs=("untrue_witnesses@5073..5073", "tests/group/test_vouching.py"),
    ),
)

MUTANTS = VOUCHES + LOOKS
