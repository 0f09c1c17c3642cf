"""Bugs planted in the coordinator: how one resource goes from one holder to the next."""

from __future__ import annotations

from cobalance_sims.mutants.mutant import Mutant, lua

TELLING: tuple[Mutant, ...] = (
    lua(
        "early-grant",
        "50_moves",
        "if r.status == 'granted' then -- nobody has heard of this grant",
        "if r.status ~= 'free' then",
        "What is held is given to the next before its holder has let go.",
        "tiny",
        "everything@1",
    ),
    lua(
        "revocation-not-told",
        "50_moves",
        "'leaving' or 'rebalance'))\n  tell(m.id, r.name)",
        "'leaving' or 'rebalance'))",
        "A holder never hears that it has to let go.",
        "tiny",
        "freezes@1..3",
    ),
    lua(
        "grant-not-told",
        "50_moves",
        "'handover_id', int(r.ended))\n  tell(m.id, r.name)",
        "'handover_id', int(r.ended))",
        "A member never hears of what it was given.",
        "2x1",
    ),
    lua(
        "cancel-not-told",
        "50_moves",
        "  attach(r, m, 'held')\n  tell(m.id, r.name)",
        "  attach(r, m, 'held')",
        "A holder whose revocation was cancelled is not told, and goes on draining.",
        "never_draining@1..4",
        "slow_consumer@1..3",
    ),
    lua(
        "forced-not-told",
        "50_moves",
        "  tell(owner, r.name)",
        "",
        "A holder does not hear that it was too late.",
        "2x1",
        equivalent="Whoever has heard of the revocation aborts by its own clock before the deadline; whoever has not heard anything "
        "since has fenced itself by then, for the revocation timeout is not below the session timeout. Either way the member ends "
        "the tenure itself, and its release is refused as FENCED: nothing waits for being told that it is lost.",
    ),
    lua(
        "loser-not-told",
        "join",
        "if loser ~= '-' then tell(loser, name) end",
        "",
        "Who loses something to a better claim does not hear of it.",
        "rival_claims@6..9",
    ),
    lua(
        "page-skips",
        "30_feed",
        "if page < #entries then reached = ",
        "if false then reached = ",
        "What does not fit on a page of changes is never told.",
        "2x2-narrow",
    ),
    lua(
        "cursor-forgets",
        "30_feed",
        "'[' .. prefix, after)",
        "'[' .. prefix, high)",
        "What waits to be told is thrown away instead of what was heard.",
        "2x1",
    ),
)

ENDING: tuple[Mutant, ...] = (
    lua(
        "no-arming",
        "30_feed",
        "if r.deadline > 0 then return end",
        "if true then return end",
        "A revocation is told without a deadline, so its holder aborts at once.",
        "tiny",
    ),
    lua(
        "deadline-set-for-nobody",
        "30_feed",
        "  call('ZADD', DEADLINES, int(r.deadline), r.name)\n",
        "",
        "A deadline is told to its holder, but nobody acts on it.",
        "tiny",
    ),
    lua(
        "deadline-told-late",
        "30_feed",
        "return {'revoke', name, r.token, r.deadline, false}",
        "return {'revoke', name, r.token, r.deadline + 900, false}",
        "The holder believes it has longer than it has.",
        "tiny",
        "never_draining@1..3",
    ),
    lua(
        "deadline-outlives-release",
        "50_moves",
        "if r.deadline > 0 then call('ZREM', DEADLINES, r.name) end",
        "",
        "The deadline of a drain that has ended strikes the next holder.",
        "tiny",
    ),
    lua(
        "no-cancellation",
        "80_settle",
        "    while c.class > 0 and G.budget > 0 do\n      local low = lowest(REVOKING",
        "    while false do\n      local low = lowest(REVOKING",
        "Revocations that became needless are carried out all the same.",
        "tiny",
        "flapping_member@1..2",
    ),
    lua(
        "leave-at-once",
        "leave",
        "if holds_nothing() then",
        "if true then",
        "A member that leaves is ended while it still drains.",
        "autoscale@1..2",
    ),
    lua(
        "avoidance-forgotten",
        "80_settle",
        "if id and now < tonumber(till) and is_live(member(id)) then return id end",
        "",
        "What was given up unfinished goes back to whoever gave it up.",
        "never_draining@1..3",
    ),
    lua(
        "removed-at-once",
        "set_resources",
        "if is_live(m) then revoke(r) else end_tenure(r, 'expired', 'removed') end",
        "end_tenure(r, 'expired', 'removed')",
        "A removed resource is taken from its holder without asking.",
        "2x2-relist",
    ),
    lua(
        "re-adding-clears-the-holder",
        "set_resources",
        "  flag(r, false)\n",
        "  flag(r, false)\n  if r.status ~= 'free' then end_tenure(r, 'expired', 'added') end\n",
        "A resource that is added again is free although somebody still holds it (a bug of Rebalanser's).",
        "2x2-relist",
    ),
    lua(
        "re-added-uncounted",
        "set_resources",
        "'member', r.owner, 'token', int(r.token))\n  count_total(1)",
        "'member', r.owner, 'token', int(r.token))",
        "A resource that is added again does not count for the shares.",
        "2x2-relist",
    ),
)

MUTANTS = TELLING + ENDING
