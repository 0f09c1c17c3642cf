"""Bugs planted in the member's side."""

from __future__ import annotations

from cobalance_sims.mutants.mutant import Mutant, python

LEASES: tuple[Mutant, ...] = (
    python(
        "lease-too-long",
        "lease",
        "self.until = self._first_sent_at + session_timeout_ms - session_timeout_ms // 10",
        "self.until = self._first_sent_at + 2 * session_timeout_ms",
        "A member believes in its session for longer than it lasts.",
    ),
    python(
        "lease-from-the-answer",
        "lease",
        "self.until = self._first_sent_at + session_timeout_ms",
        "self.until = self._sent_at + session_timeout_ms",
        "The lease counts from the last send instead of the first.",
        "2x1-two",
        "tiny",
        equivalent="An attempt is answered by its own execution only (the engine never hands over the reply to an attempt it has "
        "given up), and each execution, of a repeat too, renews the session from its own time, which is not before that "
        "attempt was sent. Counting from the first send is caution that no promise depends on.",
    ),
    python(
        "no-fencing",
        "session",
        "        if self.lease.over(self._now):\n            self._fence()",
        "        if False:\n            self._fence()",
        "A member that is cut off goes on working.",
    ),
    python(
        "guarded-or-not",
        "holdings",
        "if it.working and not (keep_guarded and it.guarded)]",
        "if it.working and not keep_guarded]",
        "What no broker guards is kept as long as what one does.",
        "2x1",
        "tiny",
    ),
    python(
        "abort-after-deadline",
        "holdings",
        "abort_at = deadline - min(1_000, max(0, deadline - now) // 10)",
        "abort_at = deadline + 600",
        "A holder aborts by its own clock only after it was moved by force.",
    ),
    python(
        "no-abort",
        "holdings",
        "if held.working and held.abort_at is not None and now >= held.abort_at:",
        "if False:",
        "A holder that cannot finish never gives up by itself.",
    ),
)

TENURES: tuple[Mutant, ...] = (
    python(
        "claims-what-was-aborted",
        "holdings",
        "if it.state is not State.ABORTED and not it.reason}",
        "if it.state is not State.ABORTED}",
        "A member that fenced itself claims the tenure all the same.",
        "2x1-two",
    ),
    python(
        "keeps-on-ended",
        "session",
        "            self.holdings.lose_all()\n            self._out += self.commits.drop_all()\n            self.lease.forget()",
        "            self._out += self.commits.drop_all()\n            self.lease.forget()",
        "A member whose session has ended does not let go of what it held.",
        "2x1",
        "tiny",
        "2x1-two",
    ),
    python(
        "lost-is-ignored",
        "holdings",
        "        if held is not None and held.token <= change.token:\n            self._lose(held)",
        "        if False and held is not None:\n            self._lose(held)",
        "A member goes on with what it was told is lost.",
        "2x1",
        "tiny",
        "2x1-two",
    ),
    python(
        "refused-claim-is-kept",
        "session",
        '            if result != "KEPT":\n                self.holdings.lose_token(claim.resource, claim.token)',
        "            pass",
        "A member goes on with what its claim was refused for.",
        "2x1-two",
        "tiny",
    ),
    python(
        "revocation-is-ignored",
        "holdings",
        "if held.step(Step.REVOKE) not in (State.DRAINING, State.CLOSING):",
        "if held.step(Step.KEEP) is not None:",
        "A holder that is asked for a resource does not hear it.",
    ),
    python(
        "cancel-after-begun",
        "holding",
        "        _E.KEEP: _S.CLOSING,\n        _E.REVOKE: _S.CLOSING,",
        "        _E.KEEP: _S.HELD,\n        _E.REVOKE: _S.CLOSING,",
        "A tenure whose on_revoked has run is taken up again.",
        "2x2-begin",
    ),
    python(
        "starts-while-leaving",
        "session",
        "            elif self.phase is not Phase.LEAVING:\n                self.holdings.hold(change)",
        "            elif True:\n                self.holdings.hold(change)",
        "A member that leaves begins to work what it is given last.",
        "2x2-leave",
        "2x2",
    ),
    python(
        "release-before-drained",
        "holdings",
        "if it.state is State.ENDED and not (park and not it.reason)]",
        "if it.state in (State.ENDED, State.DRAINING) and not (park and not it.reason)]",
        "A resource is released while it is still drained.",
    ),
)

LINE: tuple[Mutant, ...] = (
    python(
        "retry-under-a-new-number",
        "session",
        "self._out.append(act.Call(self.line.outstanding))",
        "self._out.append(act.Call(self.line.send(self.line.outstanding.payload)))",
        "A repeat is a new request: what was done is done, and answered, once more.",
        "2x1-commit",
        "2x2-leave",
        "tiny",
    ),
    python(
        "cursor-runs-ahead",
        "line",
        "self._seen, self._cursor)",
        "self._seen, self._cursor + 1)",
        "A member confirms to have heard what it has not.",
    ),
    python(
        "no-heartbeats",
        "session",
        "if self.line.has_news or self._now >= self._heartbeat_at:",
        "if self.line.has_news:",
        "Members fall silent when nothing happens.",
    ),
    python(
        "member-id-used-again",
        "line",
        "        self._joins += 1\n",
        "        self._joins = 1\n",
        "A process that joins again does so under its old id.",
    ),
    python(
        "gives-up-retrying",
        "lease",
        "return self.retry_at is not None and now >= self.retry_at",
        "return self.retry_at is not None and now >= self.retry_at and self._failures < 2",
        "A member stops asking when Redis was unreachable twice.",
    ),
)

MUTANTS = LEASES + TENURES + LINE
