"""Bugs planted in the member's side: its lease, its connection to Redis, its joins and its list."""

from __future__ import annotations

from proof.mutants.mutant import Mutant, python

LEASES: tuple[Mutant, ...] = (
    python(
        "lease-too-long",
        "lease",
        "self._first_sent_at + session_timeout_ms - session_timeout_ms // 10",
        "self._first_sent_at + 2 * session_timeout_ms",
        "A member believes in its session for longer than it lasts.",
        "2x1",
    ),
    python(
        "lease-from-the-reply",
        "session",
        "            self.lease.renewed(reply.session_timeout_ms)\n",
        "            self.lease.renewed(reply.session_timeout_ms)\n"
        "            self.lease.until = self._now + reply.session_timeout_ms\n",
        "The lease counts from when the answer came instead of from before the request went.",
        "slow_lines@1..3",
    ),
    python(
        "lease-from-the-last-send",
        "lease",
        "self._first_sent_at + session_timeout_ms - session_timeout_ms // 10",
        "self._sent_at + session_timeout_ms - session_timeout_ms // 10",
        "The lease counts from the last send instead of the first.",
        "2x1",
        "bad_network@1..3",
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
        "2x1",
    ),
    python(
        "guarded-or-not",
        "holdings",
        "*index.exposed.values(), *(",
        "*(() if keep_guarded else index.exposed.values()), *(",
        "What no broker guards is kept as long as what one does.",
        "cut_off@1..3",
    ),
    python(
        "too-old-an-answer",
        "session",
        "if self.lease.over(self._now):  # too old",
        "if False:  # too old",
        "A member begins work on the strength of an answer that came after its lease.",
        "slow_lines@1..5",
    ),
    python(
        "no-heartbeats",
        "session",
        "if page is None and (self.line.has_news or self._now >= self._heartbeat_at):",
        "if page is None and self.line.has_news:",
        "Members fall silent when nothing happens.",
        "2x1",
    ),
)

LINE: tuple[Mutant, ...] = (
    python(
        "retry-under-a-new-number",
        "session",
        "self._out.append(act.Call(self.line.outstanding))",
        "self._out.append(act.Call(self.line.send(self.line.outstanding.payload)))",
        "A repeat is a new request: what was done is done, and answered, once more.",
        "1x1-lost",
    ),
    python(
        "number-used-again",
        "outstanding",
        "        self._number += 1\n",
        "        self._number = 1\n",
        "A new request looks like a repeat of an old one.",
        "1x1",
    ),
    python(
        "cursor-runs-ahead",
        "outstanding",
        "self._cursor, held)",
        "self._cursor + 1, held)",
        "A member confirms to have heard what it has not.",
        "tiny",
    ),
    python(
        "hints-unheard",
        "outstanding",
        "return self._more or self._resync or self._hinted > self._cursor",
        "return False",
        "Nothing but the next heartbeat brings news, not even the rest of an answer.",
        "2x2-narrow",
    ),
    python(
        "member-id-used-again",
        "outstanding",
        "        self._joins += 1\n",
        "        self._joins = 1\n",
        "A process that joins again does so under its old id.",
        "2x1",
    ),
    python(
        "floor-token-forgotten",
        "session",
        "self.line.previous, self.holdings.highest_token, ",
        "self.line.previous, 0, ",
        "A member does not say which tokens it has seen, when Redis has lost them.",
        "amnesia@1..3",
    ),
)

JOINS: tuple[Mutant, ...] = (
    python(
        "rejoins-without-claims",
        "session",
        "            self._rejoin(self.holdings.claims())\n",
        "            self._rejoin([])\n",
        "A member goes on with what it held, and does not claim it.",
        "2x1",
    ),
    python(
        "claims-what-was-aborted",
        "holdings",
        "it.on_record = it.state is not State.ABORTED",
        "it.on_record = True",
        "A member that fenced itself claims the tenure all the same.",
        "1x1-lost",
    ),
    python(
        "aborted-while-joining",
        "session",
        "        if self.phase is Phase.JOINING:  # what was aborted is not claimed",
        "        if False:  # what was aborted is not claimed",
        "A join under way claims what was aborted since.",
        "1x1-lost",
    ),
    python(
        "refused-claim-is-kept",
        "session",
        'if result != "KEPT":',
        "if False:",
        "A member goes on with what its claim was refused for.",
        "rival_claims@1..5",
        "2x1",
    ),
    python(
        "keeps-on-ended",
        "session",
        "            self.holdings.lose_all()\n            self._out += self.commits.drop_all()\n            self.lease.forget()",
        "            self._out += self.commits.drop_all()\n            self.lease.forget()",
        "A member whose session has ended does not let go of what it held.",
        "redis_outage@1..3",
        "rival_claims@6..9",
    ),
    python(
        "a-join-is-a-renewal",
        "joining",
        "(self.incarnation, self.member) == (reply.incarnation, reply.owner)",
        "self.incarnation == reply.incarnation",
        "Restarts that die one after another pass for a live process with the same instance id.",
        "tests/member/test_session_leave.py::test_a_restart_that_overtakes_it_and_dies_makes_nobody_alive",
    ),
    python(
        "overtaken-while-it-pauses",
        "session",
        "self._now, reply.session_timeout_ms, ends_at)",
        "self._now, reply.session_timeout_ms)",
        "Who waits for an instance id does not ask again when its owner's session ends.",
        "tests/member/test_session_leave.py::test_it_asks_again_when_the_owner_s_session_ends",
    ),
    python(
        "list-not-declared-again",
        "session",
        "        self.declaration.rejoined(is_looked_for=self.joining.is_looked_for)\n",
        "",
        "After a loss of data the group knows only what was claimed.",
        "1x1-lost",
    ),
    python(
        "list-done-while-recovering",
        "declaration",
        'if result == "RECOVERING":',
        "if False:",
        "A list that could not be compared while the group recovered is never compared.",
        "1x2-lists",
    ),
)

MUTANTS = LEASES + LINE + JOINS
