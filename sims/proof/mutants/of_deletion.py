"""Bugs planted where a group ends: an administrator deletes it, or it expires after long disuse."""

from __future__ import annotations

from proof.mutants.mutant import Mutant, lua

DELETION: tuple[Mutant, ...] = (
    lua(
        "deleted-under-its-members",
        "delete",
        "  if tonumber(call('ZCARD', LOAD)) + tonumber(call('ZCARD', OWNED)) > 0 then return 'ACTIVE' end\n"
        "  if call_all() > 0 then return 'HEARD' end\n",
        "",
        "A group is deleted although it has members and nobody said that it must go by force.",
        "group_deleted@1..3",
    ),
    lua(
        "half-deleted",
        "delete",
        "redis.call('UNLINK', unpack(KEYS))",
        "redis.call('UNLINK', unpack(KEYS, 2))",
        "A deleted group keeps its scalars: it passes for one that lost nothing.",
        "group_deleted@1..3",
    ),
    lua(
        "records-outlive-their-group",
        "delete",
        "redis.call('UNLINK', unpack(KEYS))",
        "redis.call('UNLINK', KEYS[1])",
        "A deleted group keeps its records, which the next group of that name takes for its own.",
        "group_deleted@1..3",
    ),
)

EXPIRY: tuple[Mutant, ...] = (
    lua(
        "expires-under-its-members",
        "87_expiry",
        "  if call('ZCARD', LOAD) == 0 then\n",
        "  if true then\n",
        "Members do not put off the end of their group.",
        "days_away@1..3",
    ),
    lua(
        "end-never-put-off",
        "87_expiry",
        "  elseif G.expires < at + MARGIN_MS - DAY_MS then\n",
        "  elseif G.expires == 0 then\n",
        "The end of a group is set when its first member comes, and stays where it is.",
        "days_away@1..3",
    ),
    lua(
        "a-day-is-enough",
        "87_expiry",
        "DAY_MS, MARGIN_MS = 86400000, 604800000",
        "DAY_MS, MARGIN_MS = 86400000, 86400000",
        "A group whose members are cut off from Redis for days has lost its offsets.",
        "days_away@1..3",
    ),
)

MUTANTS = DELETION + EXPIRY
