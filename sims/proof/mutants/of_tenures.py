"""Bugs planted in the member's side: the life of a tenure, commits, and leaving."""

from __future__ import annotations

from proof.mutants.mutant import Mutant, python

TENURES: tuple[Mutant, ...] = (
    python(
        "abort-after-deadline",
        "holdings",
        "abort_at = deadline - min(1_000, max(0, deadline - now) // 10)",
        "abort_at = deadline + 600",
        "A holder aborts by its own clock only after it was moved by force.",
        "tiny",
    ),
    python(
        "no-abort",
        "holdings",
        'self._abort(held, "deadline", now)',
        "held.abort_at = None",
        "A holder that cannot finish never gives up by itself.",
        "tiny",
    ),
    python(
        "lost-is-ignored",
        "holdings",
        "        if held is not None and held.token <= change.token:\n            self._lose(held)",
        "        if False and held is not None:\n            self._lose(held)",
        "A member goes on with what it was told is lost.",
        "rival_claims@6..9",
    ),
    python(
        "late-news-of-an-older-tenure",
        "holdings",
        "if held is not None and held.token < change.token:\n            self._lose(held)\n            return None",
        "if False and held is not None:\n            self._lose(held)\n            return None",
        "A member that was given a resource again takes it for the tenure it had before.",
        "2x1-eager",
    ),
    python(
        "revocation-is-ignored",
        "holdings",
        "if held.step(Step.REVOKE) not in (State.DRAINING, State.CLOSING):",
        "if held.step(Step.KEEP) is not None:",
        "A holder that is asked for a resource does not hear it.",
        "tiny",
    ),
    python(
        "cancel-after-begun",
        "holding",
        "        _E.REVOKE: _S.DRAINING,\n        _E.BEGIN: _S.CLOSING,\n        _E.FINISH",
        "        _E.REVOKE: _S.DRAINING,\n        _E.BEGIN: _S.DRAINING,\n        _E.FINISH",
        "A tenure whose on_revoked has run is taken up again.",
        "2x2-begin",
    ),
    python(
        "cancellation-is-ignored",
        "holdings",
        "if held.step(Step.KEEP) is State.HELD and was is State.DRAINING:",
        "if held.step(Step.KEEP) is None:",
        "A holder whose revocation was called off goes on draining.",
        "never_draining@1..4",
    ),
    python(
        "starts-while-leaving",
        "session",
        "            elif self.leaving.asked_at is None:\n                self.holdings.hold(change)",
        "            elif True:\n                self.holdings.hold(change)",
        "A member that leaves begins to work what it is given last.",
        "autoscale@1..3",
        "bad_network@7..7",
    ),
    python(
        "goes-on-while-leaving",
        "session",
        "            elif self.leaving.asked_at is None:\n                self.holdings.hold(change)",
        "            elif self.phase is not Phase.LEAVING:\n                self.holdings.hold(change)",
        "A member that leaves goes on with what it claims on all pages but the last.",
        "1x3-pages",
        "forgotten_pages@1..2",
    ),
    python(
        "release-before-drained",
        "holding_index",
        "return held.state is State.ENDED and not held.reason",
        "return held.state in (State.ENDED, State.DRAINING) and not held.reason",
        "A resource is released while it is still drained.",
        "tiny",
    ),
    python(
        "release-before-stopped",
        "holding",
        "        _E.ABORT: _S.ABORTED,\n        _E.STOP: _S.ENDED,\n        _E.LOSE: _S.GONE,\n    },\n    _S.CLOSING: {",
        "        _E.ABORT: _S.ENDED,\n        _E.STOP: _S.ENDED,\n        _E.LOSE: _S.GONE,\n    },\n    _S.CLOSING: {",
        "What was aborted is reported free while its work has not stopped.",
        "stubborn_handlers@1..2",
    ),
    python(
        "released-is-still-known",
        "holdings",
        "            held.step(Step.ANSWER)\n            self._forget(held)\n",
        "",
        "A tenure whose release was answered is not forgotten, and claimed later on.",
        "tiny",
    ),
    python(
        "abandoned-counts-as-finished",
        "holdings",
        "    reason=held.reason,\n",
        '    reason="",\n',
        "What was given up unfinished is released as if it were finished.",
        "never_draining@1..2",
    ),
)

COMMITS: tuple[Mutant, ...] = (
    python(
        "lowest-of-several",
        "offsets",
        "max(it.offset for it in asked)",
        "min(it.offset for it in asked)",
        "Of several commits that travel as one, the lowest offset is stored and all are confirmed.",
        "bad_network@1..3",
        "slow_consumer@1..2",
    ),
    python(
        "commits-not-retried",
        "session",
        "            self.commits.retry()\n",
        "",
        "A commit that was refused because data was lost is never answered.",
        "redis_emptied@1..3",
    ),
    python(
        "commit-confirmed-anyway",
        "offsets",
        'outcome = "REGRESSED" if result == "OK" and asked.offset < highest else result',
        'outcome = "OK"',
        "A commit that was refused is reported as stored.",
        "everything@1..3",
    ),
    python(
        "sent-commits-said-fenced",
        "offsets",
        'CommitDone(asked.ticket, "UNKNOWN")',
        'CommitDone(asked.ticket, "FENCED")',
        "A commit that may have been stored is reported as certainly not stored.",
        "slow_lines@1..5",
        "freezes@1..5",
    ),
    python(
        "grace-without-commit",
        "session",
        "in self.holdings.park() if self._is_parking else []:",
        "in []:",
        "What is kept for the rejoin grace is not committed first.",
        "redeploy_static@1..3",
        "stale_static@1..8",
    ),
)

LEAVING: tuple[Mutant, ...] = (
    python(
        "remains-without-draining",
        "leaving",
        "if holdings.unfinished() or (holdings.any_known() and not self.remain):",
        "if holdings.any_known() and not self.remain:",
        "What is kept for the rejoin grace is still worked when its member is gone.",
        "redeploy_static@1..3",
    ),
    python(
        "releases-before-leaving",
        "leaving",
        "self._due = not self.remain",
        "self._due = False",
        "A member that leaves is given back what it has just released.",
        "2x2-leave",
    ),
)

MUTANTS = TENURES + COMMITS + LEAVING
