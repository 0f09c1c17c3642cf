"""Bugs planted in the core of a partition: order, acks, its ends, and where a stream goes on."""

from __future__ import annotations

from proof.mutants.mutant import Mutant, partition

HISTORIES = "histories@1..4000"
STREAMS = "streams@1..4000"

ORDER: tuple[Mutant, ...] = (
    partition(
        "drained-and-still-fed",
        "core",
        "        if self.state is not _CONSUMING and self._step(Step.RECEIVE) is not PartitionState.PROVING:\n",
        "        if self._step(Step.RECEIVE) is PartitionState.ENDED:\n",
        "What arrives after a drain is handed out as well.",
        HISTORIES,
    ),
    partition(
        "drain-keeps-its-buffer",
        "core",
        "        if not finish_buffer or self.backlog.paused:\n            self.backlog.clear()\n",
        "",
        "A drain that was to finish only what was taken hands out what has arrived.",
        HISTORIES,
    ),
    partition(
        "end-keeps-its-buffer",
        "core",
        "            self._end = error, error is None or self.state is PartitionState.CLOSING\n            self.backlog.clear()\n",
        "            self._end = error, error is None or self.state is PartitionState.CLOSING\n",
        "After a lost channel, messages are handed out that the next holder gets, too.",
        HISTORIES,
    ),
    partition(
        "youngest-first",
        "backlog",
        "waiting.popleft()",
        "waiting.pop()",
        "Messages that wait are handed out in the wrong order.",
        HISTORIES,
    ),
    partition(
        "taken-uncounted",
        "backlog",
        "        self.acks.deliver(count)\n",
        "        self.acks.deliver(min(count, 1))\n",
        "Of several messages taken at once only one is known to be open.",
        HISTORIES,
    ),
    partition(
        "nobody-is-woken",
        "backlog",
        "        self._armed = not count\n",
        "        self._armed = self._armed and not count\n",
        "Who came in vain does not hear of the next message.",
        HISTORIES,
    ),
)

ACKS: tuple[Mutant, ...] = (
    partition(
        "acks-over-a-gap",
        "acks",
        "        if tag > self.settled + 1:\n",
        "        if tag > self.delivered:\n",
        "A message that finishes ahead of an older one acknowledges both.",
        HISTORIES,
    ),
    partition(
        "kept-means-done",
        "acks",
        "        self._kept.add(tag)\n",
        "        self._given_up.discard(tag)\n        self.done(tag)\n",
        "What could not be sent to the dead letters is acknowledged, and lost.",
        HISTORIES,
    ),
    partition(
        "left-means-done",
        "acks",
        "        self._given_up.add(tag)\n",
        "        self._settle(tag)\n",
        "A message is acknowledged while it is on its way to the dead letters.",
        HISTORIES,
    ),
    partition(
        "close-without-the-last-acks",
        "core",
        "        last = self._flush()\n",
        "        last: Actions = NOTHING\n",
        "What was finished while a partition drained comes again to the next holder.",
        HISTORIES,
    ),
    partition(
        "acks-behind-the-close",
        "core",
        "        return (*last, *CLOSE_CHANNEL)\n",
        "        return (*CLOSE_CHANNEL, *last)\n",
        "The last acks are sent when Channel.Close has been.",
        HISTORIES,
    ),
    partition(
        "no-ticks",
        "core",
        "        return (*self._flush(), *self._tick) if self._ticking else NOTHING\n",
        "        return self._flush() if self._ticking else NOTHING\n",
        "After the first tick, acks wait until there are many.",
        HISTORIES,
    ),
    partition(
        "ticks-only-once",
        "core",
        "        self._ticking = self.state in LIVE and not self.backlog.is_quiet\n",
        "        self._ticking = self.state in LIVE and not self.backlog.is_quiet or self._ticking\n",
        "Ticks never end: they go on, and acks are sent, when the tenure is over.",
        HISTORIES,
    ),
    partition(
        "acks-by-tick-alone",
        "core",
        "            return self.flush_soon() if due and not self._flush_due else NOTHING\n",
        "            return NOTHING\n",
        "With a small prefetch, a partition does nothing but wait for the next tick.",
        HISTORIES,
    ),
    partition(
        "turn-taken-twice",
        "core",
        "        due, self._turn_due = self._turn_due, True\n",
        "        due = self._turn_due\n",
        "Each message that is finished wakes the connection's thread.",
        HISTORIES,
    ),
)

ENDS: tuple[Mutant, ...] = (
    partition(
        "drained-too-early",
        "core",
        "        if self._drained or not self.is_spent or not self.backlog.is_idle:\n",
        "        if self._drained or not self.is_spent:\n",
        "A partition is given to the next holder while a handler works on one of its messages.",
        HISTORIES,
    ),
    partition(
        "drained-twice",
        "core",
        "        self._drained = True\n",
        "",
        "on_revoked runs again.",
        HISTORIES,
    ),
    partition(
        "release-never-closes",
        "core",
        "        closes = self._release_wanted and self.state is PartitionState.DRAINING\n",
        "        closes = False\n",
        "A release whose handler still runs is forgotten: the partition moves only by force.",
        HISTORIES,
    ),
    partition(
        "retries-once",
        "core",
        "        return (act.Waits(error), again) if self._refusals.count == 1 else (again,)\n",
        "        return (act.Waits(error), again) if self._refusals.count == 1 else NOTHING\n",
        "A queue in use is asked for twice, and then nobody consumes it.",
        HISTORIES,
    ),
    partition(
        "retry-after-the-end",
        "core",
        "            return self.start() if self.state is PartitionState.WAITING else NOTHING\n",
        "            return self._open_channel()\n",
        "A tenure that was let go of while it waited consumes all the same.",
        HISTORIES,
    ),
    partition(
        "halts-over-open-messages",
        "core",
        "        return self._end_halt() if self.backlog.is_idle else (act.SetTimer(Timer.UNSETTLED, UNSETTLED_MS),)\n",
        "        return self._end_halt()\n",
        "An unreadable message ends the tenure while older ones wait for their turn.",
        HISTORIES,
    ),
    partition(
        "halt-never-ends",
        "core",
        "            return self.flush_soon() if due or self.backlog.is_idle else NOTHING\n",
        "            return self.flush_soon() if due else NOTHING\n",
        "A partition that halts stays as it is when all that came before is finished.",
        HISTORIES,
    ),
    partition(
        "lock-outlives-its-tenure",
        "core",
        "        if self._lock is not Lock.NONE:\n",
        "        if self._lock is Lock.ASKED:\n",
        "The lock of a stream stays held, and no other member can read it.",
        HISTORIES,
    ),
    partition(
        "channel-before-the-lock",
        "core",
        "        needs_lock = self._locks and self._lock is not Lock.HELD and not self.is_spent\n",
        "        needs_lock = self._locks and self._lock is not Lock.HELD and not self.is_spent and not self._refusals.count\n",
        "A stream is read without its lock once that was refused.",
        HISTORIES,
    ),
    partition(
        "illegal-events-pass",
        "core",
        '        if after is None:\n            raise self._illegal(f"{step.value} cannot happen")\n',
        "        if after is None:\n            return self.state\n",
        "An event that cannot happen is not noticed.",
        HISTORIES,
    ),
)

CONTINUITY: tuple[Mutant, ...] = (
    partition(
        "gaps-are-overlooked",
        "../streams/continuity",
        "        if offset <= seen + most:\n",
        "        if offset >= 0:\n",
        "Messages that the retention took are skipped without a word.",
        STREAMS,
    ),
    partition(
        "position-comes-again",
        "../streams/continuity",
        "        return PASS_OVER if offset <= self._after else ADMIT\n",
        "        return ADMIT\n",
        "The message at the position is handed out again.",
        HISTORIES,
    ),
    partition(
        "held-messages-lost",
        "../streams/continuity",
        "        for message, error in rest:\n",
        "        for message, error in rest[1:]:\n",
        "A message behind a jump is skipped once the jump is judged.",
        STREAMS,
    ),
    partition(
        "another-stream-is-taken-for-the-same",
        "../streams/continuity",
        "        if since == jump.seen:\n",
        "        if since is not None:\n",
        "A stream that was made anew is read from where the old one ended.",
        STREAMS,
    ),
    partition(
        "lost-answer-ends-the-question",
        "../streams/continuity",
        "            return (act.SetTimer(Timer.ASK, BACKOFF_MS.pause(jump.failures)),)\n",
        "            return NOTHING\n",
        "A question whose channel is lost is not asked again: the stream stands still.",
        STREAMS,
    ),
)

MUTANTS = ORDER + ACKS + ENDS + CONTINUITY
