"""Bugs planted in the coordinator."""

from __future__ import annotations

from cobalance_sims.mutants.mutant import Mutant, lua

FENCING: tuple[Mutant, ...] = (
    lua(
        "commit-any-token",
        "commit",
        "if not r or r.owner ~= CALLER or int(r.token) ~= token then",
        "if not r or r.owner ~= CALLER then",
        "A commit of an earlier tenure of the same member is accepted.",
        "2x1-commit",
    ),
    lua(
        "commit-any-member",
        "commit",
        "if not r or r.owner ~= CALLER or int(r.token) ~= token then",
        "if not r or int(r.token) ~= token then",
        "A commit is accepted from whoever knows the token.",
        "2x1-commit",
        equivalent="A token is given to one member only, and next_token never gives it again; whoever sends the current token is "
        "its owner, or its former self (which join ends). Since a free resource keeps the last token, only a member whose "
        "tenure has just ended could commit once more, below whatever comes next.",
    ),
    lua(
        "release-any-token",
        "release",
        "if not r or r.owner ~= CALLER or int(r.token) ~= token then",
        "if not r or r.owner ~= CALLER then",
        "A late release of an earlier tenure ends the present one.",
        "2x1-two",
        "tiny",
    ),
    lua(
        "release-any-member",
        "release",
        "if not r or r.owner ~= CALLER or int(r.token) ~= token then",
        "if not r then",
        "A late release frees what another member holds.",
        "2x1-two",
        "tiny",
    ),
    lua(
        "tokens-count-only",
        "10_group",
        "G.token = max(G.token + 1, real_us)",
        "G.token = G.token + 1",
        "Tokens start again when Redis has lost its data.",
    ),
    lua(
        "offsets-may-fall",
        "commit",
        "elseif tonumber(offset) < tonumber(call('HGET', OFFSETS, name) or '-1') then",
        "elseif false then",
        "A commit that arrives late turns an offset back.",
        "2x1-commit",
    ),
    lua(
        "no-stale-check",
        "90_request",
        "if REQUEST < last then return 'STALE' end",
        "",
        "A late request is taken for a new one.",
        "2x1-two",
        "tiny",
    ),
    lua(
        "no-tombstone",
        "join",
        "if m and not is_live(m) then return refusal('ENDED') end",
        "if m and not is_live(m) then m = nil end",
        "A join that arrives late makes a member that nobody is.",
        "2x1-two",
        "tiny",
    ),
)

HANDOVER: tuple[Mutant, ...] = (
    lua(
        "early-grant",
        "50_moves",
        "if r.status == 'granted' then -- nobody has heard of this grant",
        "if r.status ~= 'free' then",
        "What is held is given to the next before its holder has let go.",
    ),
    lua(
        "revocation-not-told",
        "50_moves",
        "    'reason', r.removing and 'removed' or (m.status == 'leaving' and 'leaving' or 'rebalance'))\n  tell(m.id, r.name)",
        "    'reason', r.removing and 'removed' or (m.status == 'leaving' and 'leaving' or 'rebalance'))",
        "A holder never hears that it has to let go.",
    ),
    lua(
        "grant-not-told",
        "50_moves",
        "'handover_id', int(r.ended))\n  tell(m.id, r.name)",
        "'handover_id', int(r.ended))",
        "A member never hears of what it was given.",
    ),
    lua(
        "no-arming",
        "30_feed",
        "if r.deadline > 0 then return end",
        "if true then return end",
        "A revocation has no deadline: whoever never drains keeps it for ever.",
    ),
    lua(
        "deadline-told-late",
        "30_feed",
        "return {'revoke', name, r.token, r.deadline, false}",
        "return {'revoke', name, r.token, r.deadline + 900, false}",
        "The holder believes it has longer than it has.",
    ),
    lua(
        "no-cancellation",
        "80_settle",
        "  local s = get_shares()\n  for i = 1, #classes do\n    local c = classes[i]\n    while c.class > 0 and G.budget > 0 do",
        "  local s = get_shares()\n  for i = 1, 0 do\n    local c = classes[i]\n    while c.class > 0 and G.budget > 0 do",
        "Revocations that became needless are carried out all the same.",
    ),
    lua(
        "cancel-not-told",
        "50_moves",
        "  attach(r, m, 'held')\n  tell(m.id, r.name)",
        "  attach(r, m, 'held')",
        "A holder whose revocation was cancelled is not told, and goes on draining.",
        equivalent="",
    ),
    lua(
        "forced-not-told",
        "50_moves",
        "  r.token = next_token()\n  put_resource(r)\n  tell(owner, r.name)",
        "  r.token = next_token()\n  put_resource(r)",
        "A holder does not hear that it was too late.",
        "tiny",
        "2x1-two",
    ),
    lua(
        "leave-at-once",
        "leave",
        "if holds_nothing() then",
        "if true then",
        "A member that leaves is ended while it still drains.",
        "2x2-leave",
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
        "re-added-uncounted",
        "set_resources",
        "  journal('added', 'resource', r.name, 'member', r.owner, 'token', int(r.token))\n  count_total(1)",
        "  journal('added', 'resource', r.name, 'member', r.owner, 'token', int(r.token))",
        "A resource that is added again does not count for the shares.",
        "2x2-relist",
    ),
)

CLOCKS: tuple[Mutant, ...] = (
    lua(
        "session-ends-early",
        "70_timers",
        "if now < expires then set_timer('s:' .. id, expires) return false end",
        "if now + 300 < expires then set_timer('s:' .. id, expires) return false end",
        "A session ends before its member's lease.",
    ),
    lua(
        "session-renewed-shorter",
        "90_request",
        "int(now + G.session_ms))",
        "int(now + floor(G.session_ms / 2)))",
        "A session is renewed for less than the member was told.",
    ),
    lua(
        "heartbeat-does-not-renew",
        "heartbeat",
        "redis.call('HSET', KEYS[1], 'heard', now, 'r:' .. id, ARGV[4] .. ' ' .. now + session)",
        "redis.call('HSET', KEYS[1], 'heard', now)",
        "The fast heartbeat answers without renewing.",
    ),
    lua(
        "session-never-ends",
        "70_timers",
        "if now < expires then set_timer('s:' .. id, expires) return false end",
        "if true then set_timer('s:' .. id, now + G.session_ms) return false end",
        "A crash is never noticed.",
    ),
    lua(
        "forced-before-deadline",
        "80_settle",
        "local due = call('ZRANGEBYSCORE', DEADLINES, '-inf', int(now), 'LIMIT', '0', int(max(G.budget, 1)))",
        "local due = call('ZRANGEBYSCORE', DEADLINES, '-inf', int(now + 400), 'LIMIT', '0', int(max(G.budget, 1)))",
        "Force comes while the holder still has time by its own clock.",
    ),
    lua(
        "no-deadline-in-due",
        "80_settle",
        "return min(tonumber(timer[2] or '9007199254740991'), tonumber(deadline[2] or '9007199254740991'))",
        "return tonumber(timer[2] or '9007199254740991')",
        "The fast heartbeat does not see that a deadline has come.",
    ),
)

RECOVERY: tuple[Mutant, ...] = (
    lua(
        "no-recovery",
        "90_request",
        "G.recovering, G.gap_at = now + G.session_ms, now",
        "G.recovering, G.gap_at = 0, now",
        "After a loss of data everything is given out at once.",
    ),
    lua(
        "short-recovery",
        "90_request",
        "G.recovering, G.gap_at = now + G.session_ms, now",
        "G.recovering, G.gap_at = now + floor(G.session_ms / 3), now",
        "After a loss of data members with a live lease come too late with their claims.",
        "tiny",
        "2x1-two",
    ),
    lua(
        "settle-while-recovering",
        "80_settle",
        "if G.recovering > 0 then return end",
        "",
        "What nobody has claimed yet is given out.",
    ),
    lua(
        "recovery-never-ends",
        "70_timers",
        "    G.recovering = 0\n    journal('recovered')",
        "    journal('recovered')",
        "A group that recovers never gives anything out again.",
    ),
    lua(
        "any-claim",
        "join",
        "if G.recovering == 0 then return false end",
        "if G.recovering == 0 then return true end",
        "A claim of a tenure that has ended long ago is kept.",
        "2x1-two",
    ),
    lua(
        "claims-refused",
        "join",
        "return token > r.token or (token == r.token and not has_returned(r.owner))",
        "return false",
        "Nobody keeps what it held when the data was lost.",
    ),
)

SHARES: tuple[Mutant, ...] = (
    lua(
        "uneven-quota",
        "40_shares",
        "c.ceil = (amount * weight) % capacity > 0 and c.floor + 1 or c.floor",
        "c.ceil = c.floor + 1",
        "A member may keep one more than its share.",
    ),
    lua(
        "grants-to-the-fullest",
        "80_settle",
        "local low = lowest(LOAD, c.class, avoid and 2 or 1)",
        "local low = call('ZREVRANGEBYSCORE', LOAD, score(c.class, CLASS - 1), score(c.class, 0), 'WITHSCORES', "
        "'LIMIT', '0', avoid and '2' or '1')",
        "What is free goes to whoever has most.",
    ),
    lua(
        "no-revocations",
        "80_settle",
        "for i = 1, #classes do revoke_from(classes[i]) end",
        "",
        "Who comes later gets nothing.",
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
        "unbounded-grants",
        "80_settle",
        "local names = call('ZRANGE', FREE, '0', int(max(G.budget, 1) - 1))\n  for i = 1, #names do\n"
        "    if G.budget <= 0 then return end",
        "local names = call('ZRANGE', FREE, '0', '-1')\n  for i = 1, #names do",
        "One call grants everything, however much that is.",
        "2x3-narrow",
    ),
    lua(
        "page-skips",
        "30_feed",
        "if page < #entries then reached = ",
        "if false then reached = ",
        "What does not fit on a page of changes is never told.",
        "2x2-narrow",
    ),
)

MUTANTS = FENCING + HANDOVER + CLOCKS + RECOVERY + SHARES
