-- What is due. Timers are "kind:id"; sessions are renewed without touching theirs, which is set again when it fires.

local session_given_up_at, grace_given_up_at, end_session, fire_timers
do

local fire = {}

-- When somebody who is waited for until `ends` is given up. A silence that contains the moment `left` ms before that puts it off to
-- half a session timeout after the silence, and a recovery to its end, if that is later. Nothing else puts it off.
--
-- An innocent member, last heard within half a session before a silence, so has half a session to be heard after it, and tries
-- again within a third. A dead one has that once: a second silence begins half a session or more after the first, when less than
-- the other half is left. So it is gone with the first call after half a session, that silence, and another half: after two session
-- timeouts, whatever silences there are, unless one of them alone is longer than a session timeout.
local function given_up_at(ends, left)
  local is_put_off = ends - left >= G.gap_from and ends - left <= G.gap_at
  return max(ends, is_put_off and G.gap_at + G.session_ms / 2 or 0, G.recovering)
end

function session_given_up_at(id)
  local _, ends = vitals(id)
  return given_up_at(ends, G.session_ms / 2)
end

-- The one with the instance id of one that is kept, if it works.
local function heir_of(m)
  local heir = member(call('HGET', MEMBERS, '=' .. m.instance) or '')
  return heir and heir.status == 'active' and heir or nil
end

-- Whose heir has come is kept for a session timeout more: the heir says within it what it can work, if it can.
function grace_given_up_at(id)
  return given_up_at(grace_end(id), 0) + (heir_of(member(id)) and G.session_ms or 0)
end

-- Its process is gone, or seems to be.
function end_session(m, reason)
  if m.instance ~= '-' and G.grace_ms > 0 and m.status == 'active' then
    enter_grace(m, reason)
  else
    end_member(m, 'expired_member', reason)
  end
end

-- Of somebody who is not on record: if it was, as what else there is of it says, the next call repairs. True when no news is left.
local function forget(id)
  if last_request(id) >= 0 or call('ZSCORE', LOAD, id) or #lowest_owned(id, ' ', '!', 1) > 0 then G.is_gone = true end
  forget_request(id)
  call('HDEL', STATE, 'g:' .. id)
  return trim_feed({id = id})
end

-- Session.
function fire.s(id)
  local m = member(id)
  if not m then return forget(id) end
  if not is_live(m) then return true end
  local expires = session_given_up_at(id)
  if now < expires then set_timer('s:' .. id, expires) return false end
  end_session(m, 'expired')
  return true
end

-- Rejoin grace is over.
function fire.g(id)
  local m = member(id)
  if not m then return forget(id) end
  if m.status ~= 'graced' then return true end
  local expires = grace_given_up_at(id)
  if now < expires then set_timer('g:' .. id, expires) return false end
  end_member(m, 'expired_member', 'grace')
  return true
end

-- A tombstone: a join or request that arrives late, under an id that has ended, makes no ghost.
local function bury(m)
  if m.request < 0 then m.request = last_request(m.id) end
  m.status = 'ended'
  put_member(m)
  forget_request(m.id)
  set_timer('t:' .. m.id, now + TOMBSTONE_MS)
end

-- A dead member is emptied, then buried.
function fire.e(id)
  local m = member(id)
  if not m then return forget(id) end
  if m.status ~= 'dead' then return true end
  if not (empty(m, ' ', '!', m.reason) and trim_feed(m)) then return false end
  bury(m)
  return true
end

-- A graced member has no process left to finish its pending revocations.
function fire.p(id)
  local m = member(id)
  if not m then return forget(id) end
  if m.status ~= 'graced' then return true end
  return empty(m, ' p', ' s', 'grace') and trim_feed(m)
end

-- A graced member's heir, who has its instance id now, takes over what it kept.
function fire.h(id)
  local m = member(id)
  if not m then return forget(id) end
  if m.status ~= 'graced' then return true end
  local heir = heir_of(m)
  if not heir then -- it went before it could inherit: the grace goes on, for the next one
    set_timer('g:' .. id, grace_given_up_at(id))
    return true
  end
  if G.recovering > 0 then -- somebody may yet claim what a stale record says was kept
    keep('g:' .. id, int(max(grace_end(id), G.recovering)))
    set_timer('h:' .. id, G.recovering)
    return false
  end
  if not (lists.common() or lists.is_known(heir.subscription)) then -- what it can work is not known yet
    set_timer('h:' .. id, now + floor(G.heartbeat_ms / 4))
    return false
  end
  if not empty(m, ' k', ' l', heir.id, heir) then return false end
  end_member(m, 'left', 'inherited')
  return true
end

-- Tombstone.
function fire.t(id)
  call('HDEL', MEMBERS, id)
  member_cache[id] = nil
  return true
end

-- A pause ends. Or: the member that gave this resource up may have it again, and it may be moved again; later, that is forgotten.
function fire.a(name)
  local r = resource(name)
  local giver, till, tries = string.match(r and r.avoid or '-', '^(%S+)@(%d+)@(%d+)$')
  if not giver then return true end
  if r.status == 'halted' then
    resume(r)
    avoid(r, string.match(giver, '^halted:([^=]+)'), tonumber(tries))
    return false
  end
  local is_owned, forgets_at = r.status ~= 'free', tries == '0' and 0 or tonumber(till) + MEMORY_MS
  if is_owned then leave_owned(r) end
  if r.rank == '0' then
    r.rank = '2'
    G.uneven = 1
    if is_owned then note_shift(r.owner) end
  end
  if now >= forgets_at then r.avoid = '-' end
  put_resource(r)
  if is_owned then enter_owned(r) end
  if now < forgets_at then set_timer('a:' .. name, forgets_at) end
  return now >= forgets_at
end

-- The committed offset of a resource deleted long ago, and why it was halted. Should the name come back, nobody may take it for a new one.
function fire.o(name)
  if not resource(name) then lists.forget_removal(name) end
  if not resource(name) and call('HDEL', OFFSETS, name) == 1 then G.offsets_known, G.known_to = 0, 0 end
  return true
end

-- A list that nobody has any more, while somebody has another.
function fire.l(id)
  local _, is_forgotten = lists.subscriptions()
  if not is_forgotten or lists.members_of(id) > 0 or not (lists.are_known() or lists.are_too_many()) then return true end
  return lists.let_go(id)
end

-- The day is over, if there are members: 87_expiry.lua puts the end off.
function fire.x()
  if call('ZCARD', LOAD) > 0 then G.expires = 0 end
  return true
end

-- What is on no list.
function fire.u()
  if G.recovering > 0 then
    set_timer('u', G.recovering)
    return false
  end
  return G.sweep == '' or not lists.are_known() or lists.sweep()
end

-- The gathering of changes ends; the settling that follows acts on them.
function fire.q() return true end

-- Nobody has joined who knew the group, and more listen than have joined: they are given the time of a long session to call.
local PATIENCE_MS = 30000

local function awaits_somebody()
  if G.guessed == 0 or now >= G.began + max(PATIENCE_MS, 3 * G.session_ms) then return false end
  return call_all() > tonumber(call('ZCARD', LOAD))
end

-- Recovery ends: what nobody claimed is free from now on.
function fire.r()
  if G.recovering == 0 then return true end
  if now < G.recovering then
    set_timer('r', G.recovering)
    return false
  end
  if awaits_somebody() then
    G.recovering = now + G.heartbeat_ms
    set_timer('r', G.recovering)
    return false
  end
  if G.known_to > 0 and G.unclaimed == 0 then G.offsets_known = 1 end
  G.recovering, G.known_to, G.guessed = 0, 0, 0
  -- Nothing is asked back while those who can work different things say again what: an heir keeps nothing until then.
  if not lists.common() then G.quiet_until = max(G.quiet_until, now + 2 * G.heartbeat_ms) end
  journal('recovered')
  return true
end

-- True when the timer has done its work, or belongs to nobody. A timer of an unknown kind is left to the later release that set it.
local function fire_one(timer)
  local kind, id = string.match(timer, '^(%l):(.+)$')
  kind = kind or string.match(timer, '^%l$')
  if not kind then return true end
  if fire[kind] then return (id == nil) ~= (string.find('qrux', kind, 1, true) ~= nil) or fire[kind](id) end
  set_timer(timer, now + G.session_ms)
  return false
end

function fire_timers()
  -- First of all: timers put off until then come due at the same moment, and would use up a small budget again and again.
  if G.recovering > 0 and now >= G.recovering and fire.r() then call('ZREM', TIMERS, 'r') end
  local due = call('ZRANGEBYSCORE', TIMERS, '-inf', int(now), 'LIMIT', '0', int(max(G.budget, 1)))
  for i = 1, #due do
    if G.budget <= 0 then return end
    local before = G.budget
    if fire_one(due[i]) then call('ZREM', TIMERS, due[i]) end
    if G.budget == before then G.budget = before - 1 end -- one that moved resources has paid already
  end
end

end

-- Changes that follow each other closely are gathered: the first acts at once, the next wait until the window closes,
-- and while they keep coming the window doubles, up to one session timeout.
local function open_gathering()
  if G.gather_ms == 0 then return end
  G.burst = now < G.calm_at and min(G.burst + 1, 16) or 0
  G.quiet_until = now + min(G.gather_ms * 2 ^ G.burst, G.session_ms)
  G.calm_at = G.quiet_until + G.session_ms
end
