"""Bugs planted in the coordinator where members' lists differ: who is granted what, what is dropped, what is even."""

from __future__ import annotations

from proof.mutants.mutant import Mutant, lua, python

LISTS: tuple[Mutant, ...] = (
    lua(
        "granted-unasked",
        "75_evenness",
        "local ids = lists.naming(r.name)",
        "local ids = lists.subscriptions()",
        "What is free goes to the least loaded, whether its code names it or not.",
        "deploy_adds@1..3",
    ),
    lua(
        "one-list-for-all",
        "35_subscriptions",
        "if #all == 1 and not is_forgotten and",
        "if #all >= 1 and",
        "The first list counts as everybody's.",
        "deploy_adds@1..3",
    ),
    lua(
        "inherited-unasked",
        "60_members",
        "not r.removing and (lists.common() or lists.can_work(heir, r.name))\n",
        "not r.removing\n",
        "Who restarts with another list has again what only its former one named.",
        "deploy_static@1..5",
    ),
    lua(
        "let-go-of-what-another-names",
        "55_lists",
        "  local is_named = #lists.naming(name) > 0\n",
        "  local is_named = false\n",
        "What the last old process named is taken from the new ones, who name it, too.",
        "deploy_drops@1..3",
    ),
    lua(
        "struck-although-another-names-it",
        "set_resources",
        "  if #lists.naming(r.name) == 0 then\n",
        "  if true then\n",
        "A new list removes what it does not name, although the old processes go on naming it.",
        "deploy_drops@1..3",
    ),
    lua(
        "begun-by-every-newer-list",
        "set_resources",
        "elseif is_walked_by_another() then",
        "elseif VERSION == l.version and is_walked_by_another() then",
        "Lists that members replace faster than they are walked through are never known.",
        "tests/coordinator/test_resource_list.py",
    ),
    python(
        "newer-list-begins-at-once",
        "declaration",
        "if version >= self._declared[0] and (self._is_sent or self._after):",
        "if False:",
        "A list that is replaced faster than it is sent is never known.",
        "tests/member/test_session_calls.py",
    ),
    lua(
        "never-let-go",
        "70_timers",
        "  return lists.let_go(id)\n",
        "  return true\n",
        "What nobody names any more stays for ever.",
        "deploy_drops@1..3",
    ),
    lua(
        "left-lists-stay-known",
        "35_subscriptions",
        "      doubt(named[i])\n",
        "",
        "A member that comes back to a list that nobody had need not send it again, although names on it were removed meanwhile.",
        "deploy_from_nothing@1..3",
    ),
    lua(
        "counted-anew-is-left",
        "85_repair",
        "  lists.are_counted_anew = true -- a list whose members are still to be counted is not one that nobody has\n",
        "",
        "A repair takes lists whose members it has not counted yet for lists that nobody has.",
        "deploy_torn@1..3",
    ),
    lua(
        "own-list-never-let-go",
        "35_subscriptions",
        "is_left_to_others or all[i] == '-' and G.list_version == 0",
        "how_many['-'] and G.list_version == 0",
        "A list of the group's own that nobody has any more passes for one that is left to others.",
        "deploy_to_lists@1..10",
        equivalent="When that list is forgotten, what no other list names is swept away.",
    ),
)

SWEEP: tuple[Mutant, ...] = (
    lua(
        "struck-is-still-named",
        "35_subscriptions",
        "  struck[id .. ' ' .. name] = true\n",
        "",
        "What a list has just dropped counts as named by it, and is not let go of.",
        "deploy_to_lists@1..6",
    ),
    lua(
        "dropped-stays-declared",
        "35_subscriptions",
        "  call_with('ZREM', DECLARED, dropped)\n",
        "",
        "A list never forgets a name: what it dropped is given to its members again.",
        "deploy_to_lists@1..6",
        "deploy_deleted@1..3",
    ),
)

EVENNESS: tuple[Mutant, ...] = (
    lua(
        "moves-for-nothing",
        "75_evenness",
        "it.at < floor(load + 0.5) then",
        "it.at <= floor(load + 0.5) then",
        "Something moves although nobody is better off, and back again.",
        "deploy_adds@1..3",
    ),
    lua(
        "nobody-is-passed",
        "75_evenness",
        "G.passed, G.scan = G.passed + 1, ''\n",
        "return true\n",
        "Where the most loaded can give nothing, nobody is asked.",
        "deploy_canary@1..6",
    ),
    lua(
        "laid-aside-for-ever",
        "75_evenness",
        "call('ZADD', FREE, int(STUCK + G.round), r.name)",
        "call('ZADD', FREE, int(2 * STUCK), r.name)",
        "What nobody could work when it was looked at is never looked at again.",
        "deploy_canary@1..3",
    ),
    lua(
        "cancels-nothing-where-lists-differ",
        "80_settle",
        "else even.cancel(has_changed) end",
        "end",
        "What was to go to somebody who is gone is drained all the same.",
        "deploy_canary@13..16",
    ),
)

MUTANTS = LISTS + SWEEP + EVENNESS
