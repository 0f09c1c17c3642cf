"""Bugs planted in the repair of what dead scripts leave behind, and in the order of writes that it depends on."""

from __future__ import annotations

from proof.mutants.mutant import Mutant, lua

MUTANTS: tuple[Mutant, ...] = (
    lua(
        "torn-unnoticed",
        "10_group",
        "    redis.call('HSET', STATE, 'pulse', TORN)\n",
        "",
        "A script that died leaves halves that nobody mends.",
        "2x1-die",
    ),
    lua(
        "number-before-the-deed",
        "90_request",
        "  keep('r:' .. CALLER, int(request) .. ' ' .. int(max(ends, now + G.session_ms)))",
        "  call('HSET', STATE, 'r:' .. CALLER, int(request) .. ' ' .. int(max(ends, now + G.session_ms)))",
        "A request whose script died is taken for one that was served when it is repeated.",
        "2x1-die",
    ),
    lua(
        "told-and-not-taken-back",
        "85_repair",
        "  take_back(lines)\n",
        "",
        "The journal keeps telling of what never came to be, and its numbers repeat.",
        "dying_scripts@1..3",
    ),
    lua(
        "tenure-of-nobody",
        "85_repair",
        "if r.owner ~= '-' and (not owner or owner.status == 'ended') then",
        "if false then",
        "What a member had that is buried already belongs to nobody, and is not free.",
        "dying_scripts@1..3",
    ),
    lua(
        "repaired-without-timer",
        "85_repair",
        "  ensure_timer('s:' .. m.id, ends)\n",
        "",
        "Nothing ends the session of a member whose join died half-way.",
        "2x1-die",
    ),
    lua(
        "repaired-without-session",
        "85_repair",
        "  if ends == 0 then\n",
        "  if false then\n",
        "A member whose join died half-way has no session.",
        "2x1-die",
    ),
    lua(
        "nobody-asks-after-a-repair",
        "85_repair",
        "  call('HSET', STATE, 'c:' .. m.id, int(G.version)) -- everybody asks what there is to hear\n",
        "",
        "A member never hears what the script that died had for it.",
        "dying_scripts@1..3",
        "2x2-die",
    ),
    lua(
        "nothing-is-compared-after-a-repair",
        "85_repair",
        "  G.uneven = 1 -- what was to move may have been what the dead script did\n",
        "",
        "Where lists differ, the move that a dead script began is never made.",
        "deploy_torn@2003",
    ),
    lua(
        "repair-of-no-group",
        "85_repair",
        "  if G.incarnation > 0 and is_key_gone() then",
        "  if is_key_gone() then",
        "What is left of a deleted group becomes one whose settings are all 0, which nobody can be granted anything in.",
        "tests/coordinator/test_gone_keys.py",
    ),
    lua(
        "session-of-the-forgotten",
        "85_repair",
        "  if member(id) then return end\n  forget_unrecorded(id)\n",
        "  if member(id) then return end\n",
        "What a member without a record and a timer had asked last stays in Redis for good.",
        "tests/coordinator/test_gone_keys.py",
    ),
    lua(
        "former-journal-trimmed",
        "10_group",
        "G.journal_length > 0 and G.journal_length or TOP - 1",
        "G.journal_length",
        "The journal of a former group is gone when the call that makes the next one dies.",
        "tests/coordinator/test_torn.py",
    ),
)
