"""Bugs planted in the coordinator: who may ask for what, and what a repeat is answered."""

from __future__ import annotations

from cobalance_sims.mutants.mutant import Mutant, lua

FENCING: tuple[Mutant, ...] = (
    lua(
        "commit-any-token",
        "commit",
        "r.owner ~= CALLER or int(r.token) ~= token then",
        "r.owner ~= CALLER then",
        "A commit of an earlier tenure of the same member is accepted.",
        "2x1-commit",
    ),
    lua(
        "commit-any-member",
        "commit",
        "r.owner ~= CALLER or int(r.token) ~= token then",
        "int(r.token) ~= token then",
        "A commit is accepted from whoever knows the token.",
        "1x1",
    ),
    lua(
        "release-any-token",
        "release",
        "r.owner ~= CALLER or int(r.token) ~= token then return 'FENCED'",
        "r.owner ~= CALLER then return 'FENCED'",
        "A late release of an earlier tenure ends the present one.",
        "2x1-eager",
    ),
    lua(
        "release-any-member",
        "release",
        "if not r or r.owner ~= CALLER or int(r.token) ~= token then return 'FENCED'",
        "if not r then return 'FENCED'",
        "A late release frees what another member holds.",
        "stubborn_handlers@1..5",
    ),
    lua(
        "tokens-count-only",
        "10_group",
        "G.token = max(G.token + 1, real_us)",
        "G.token = G.token + 1",
        "Tokens start again when Redis has lost its data.",
        "2x1",
    ),
    lua(
        "reported-tokens-ignored",
        "join",
        "G.token = max(G.token, FLOOR)",
        "",
        "Tokens fall when Redis loses its data while its clock is behind.",
        "amnesia@1..3",
    ),
    lua(
        "offsets-may-fall",
        "commit",
        "elseif tonumber(offset) < tonumber(call('HGET', OFFSETS, name) or '-1') then",
        "elseif false then",
        "A commit that arrives late turns an offset back.",
        "everything@1..3",
    ),
    lua(
        "release-turns-offsets-back",
        "release",
        "if offset ~= '' and tonumber(offset) < tonumber(call('HGET', OFFSETS, r.name) or '-1') then",
        "if false then",
        "A release turns an offset back.",
        "2x2-short",
    ),
    lua(
        "release-uncommitted",
        "release",
        "if reason == '' and tonumber(delivered) > tonumber(committed) then",
        "if false then",
        "A drain counts as finished although something delivered was never committed.",
        "2x2-short",
    ),
    lua(
        "release-forgets-the-offset",
        "release",
        "if offset ~= '' then call('HSET', OFFSETS, name, offset) end",
        "",
        "What a drain committed with its release is not stored.",
        "bad_network@1..3",
    ),
)

REQUESTS: tuple[Mutant, ...] = (
    lua(
        "no-stale-check",
        "90_request",
        "if REQUEST < last then return 'STALE' end",
        "",
        "A late request is taken for a new one.",
        "2x1-late",
    ),
    lua(
        "repeat-not-recognised",
        "90_request",
        "return REQUEST == last and 'REPEAT' or 'OK'",
        "return 'OK'",
        "What was done already is done, and answered, once more.",
        "2x1",
    ),
    lua(
        "stale-join",
        "join",
        "if m and REQUEST < last_request(CALLER) then return refusal('STALE') end",
        "",
        "A join that arrives late turns the number of the last request back.",
        "2x1-late",
    ),
    lua(
        "repeated-join-is-new",
        "join",
        "if not m then m = add_member(same) end",
        "m = add_member(same)",
        "A repeated join makes the member once more.",
        "2x1",
    ),
    lua(
        "no-tombstone",
        "join",
        "if m and not is_live(m) then return refusal('ENDED') end",
        "if m and not is_live(m) then m = nil end",
        "A join that arrives late makes a member that nobody is.",
        "2x1-late",
    ),
    lua(
        "instance-twice",
        "join",
        "if is_live(same) and same.id ~= PREVIOUS then return refusal('INSTANCE_IN_USE') end",
        "",
        "Two live processes are members under one instance id.",
        "redeploy_static@1..3",
    ),
    lua(
        "ended-member-is-served",
        "90_request",
        "if not is_live(m) then return 'ENDED' end",
        "",
        "A member whose session has ended is answered as if it had not.",
        "2x1",
    ),
    lua(
        "incarnation-ignored",
        "90_request",
        "if KNOWN ~= G.incarnation then return 'REJOIN' end",
        "",
        "Members go on as before a loss of data, without claiming what they hold.",
        "stale_replica@1..3",
    ),
)

MUTANTS = FENCING + REQUESTS
