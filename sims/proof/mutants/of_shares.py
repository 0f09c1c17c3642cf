"""Bugs planted in the coordinator: the size of shares, the work of one call, lists, graces and the eager barrier."""

from __future__ import annotations

from proof.mutants.mutant import Mutant, lua

QUOTAS: tuple[Mutant, ...] = (
    lua(
        "uneven-quota",
        "40_shares",
        "add(less, quotient(count - 1, class), id)",
        "add(less, quotient(count - 2, class), id)",
        "A member may keep one more than its share.",
        "tiny",
    ),
    lua(
        "ceilings-for-all",
        "80_settle",
        "return -ceilings_left()",
        "return 0",
        "All may keep the higher of the two quotas, and the last gets what is left.",
        "autoscale@1..2",
    ),
    lua(
        "capacity-ignored",
        "40_shares",
        "G.live + class * delta",
        "G.live + delta",
        "Who has twice the capacity gets no more than the others.",
        "standby@1..3",
    ),
    lua(
        "ceilings-before-floors",
        "80_settle",
        "  if #lines.below > 0 then return take_first(lines.below, but) end\n",
        "",
        "Of unequal members the small one has the ceil of its share before the large one has its floor.",
        "standby@1..5",
    ),
    lua(
        "grants-to-the-fullest",
        "80_settle",
        "lines.below = lines.below or line_below(count + 1)",
        "lines.below = {{id = highest(LOAD, '0', '(' .. int(TOP), 1)[1], at = 0}}",
        "What is free goes to the member with most.",
        "autoscale@1..2",
        "standby@1..2",
    ),
    lua(
        "no-revocations",
        "80_settle",
        "while G.budget > 0 do\n    local count = at_most",
        "while false do\n    local count = at_most",
        "Who comes later gets nothing.",
        "tiny",
    ),
    lua(
        "picks-again-each-time",
        "80_settle",
        "ceilings_left() > 0 and lowest(REVOKING, '0', '(' .. level(), 'LIMIT', '0', '1')[1]",
        "lowest(REVOKING, '0', '+inf', 'LIMIT', '0', '1')[1]",
        "Each settling calls all revocations off and picks again.",
        "tiny",
    ),
    lua(
        "leaver-keeps-class",
        "40_shares",
        "if m.status == 'leaving' then return 0 end",
        "",
        "A member that leaves keeps its share.",
        "2x2-leave",
    ),
    lua(
        "removed-still-counts",
        "55_lists",
        "  count_total(-1)\n",
        "",
        "A resource that is being removed counts for the shares.",
        "2x2-relist",
    ),
)

BUDGETS: tuple[Mutant, ...] = (
    lua(
        "unbounded-revocations",
        "80_settle",
        "highest_owned(m.id, least, ' l', min(count, G.budget))",
        "highest_owned(m.id, least, ' l', count)",
        "One call revokes everything, however much that is.",
        "2x6-narrow",
    ),
    lua(
        "rest-is-forgotten",
        "80_settle",
        "if G.budget <= 0 or G.judged ~= '' and G.recovering == 0 then return 0 end",
        "",
        "What one call had no budget for waits until something else is due.",
        "2x2-narrow",
    ),
)

MEMBERS: tuple[Mutant, ...] = (
    lua(
        "member-without-its-id",
        "40_shares",
        "  call('ZADD', IDS, '0', m.id)\n",
        "",
        "A member is in no list, and its connection is never closed when it has expired.",
        "tests/coordinator/test_describe.py",
    ),
    lua(
        "id-of-who-has-left",
        "40_shares",
        "  call('ZREM', IDS, m.id)\n",
        "",
        "The ids grow with every member that ever was.",
        "2x1",
    ),
    lua(
        "page-begins-where-the-last-one-ended",
        "describe",
        "IDS, CURSOR_AT == '' and '-' or '(' .. CURSOR_AT",
        "IDS, CURSOR_AT == '' and '-' or '[' .. CURSOR_AT",
        "The last member of a page is shown again on the next; pages of one never end.",
        "tests/coordinator/test_describe.py::test_pages_show_everything_once[redis-2]",
    ),
)

MODES: tuple[Mutant, ...] = (
    lua(
        "lower-list-version",
        "set_resources",
        "results[1] = lists.refusal(l, VERSION)",
        "",
        "The last to declare decides, so two lists of a rolling deploy alternate.",
        "2x2-relist",
    ),
    lua(
        "graced-member-is-granted",
        "40_shares",
        "if m.status == 'graced' and m.capacity > 0 then return -m.capacity end",
        "",
        "A member that has gone is given resources, because its instance may return.",
        "2x2-static",
    ),
    lua(
        "grace-never-ends",
        "60_members",
        "  set_timer('g:' .. m.id, now + G.grace_ms)\n",
        "",
        "What is kept for an instance that never returns stays with it.",
        "2x2-static",
    ),
    lua(
        "no-grace",
        "70_timers",
        "if m.instance ~= '-' and G.grace_ms > 0 and m.status == 'active' then",
        "if false then",
        "A crash of a member with an instance id moves everything at once.",
        "redeploy_static@1..3",
    ),
    lua(
        "nothing-is-inherited",
        "70_timers",
        "  if not empty(m, ' k', ' l', heir.id, heir) then return false end\n",
        "",
        "A process that returns under its instance id starts with nothing.",
        "redeploy_static@1..3",
    ),
    lua(
        "barrier-lets-through",
        "80_settle",
        "if G.barrier > 0 or G.live == 0 then return end",
        "if G.live == 0 then return end",
        "In eager mode something is dealt before everything has stopped.",
        "eager@1..5",
    ),
    lua(
        "barrier-stops-nothing",
        "40_shares",
        "return G.barrier > 0 and 0 or G.total - G.graced_kept",
        "return G.total - G.graced_kept",
        "In eager mode nobody has to let go.",
        "2x1-eager",
        "eager@1..2",
    ),
)

MUTANTS = QUOTAS + BUDGETS + MEMBERS + MODES
