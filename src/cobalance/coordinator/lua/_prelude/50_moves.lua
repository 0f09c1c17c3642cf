-- The transitions of one resource. Each updates its record, its place in the indices and the journal, together.
--
--   free → granted → held → pending → free → …   with one token per tenure
--                     └────────┴→ halted → free   by its holder, and by an operator

local function has_cancellable(id) return #lowest_owned(id, ' p', ' q', 1) > 0 end

-- How many are shared. That something is halted or resumed stops nobody in eager mode, as it would again and again.
local function count_shared(delta) G.total, G.ceilings = G.total + delta, 0 end

local function count_total(delta)
  count_shared(delta)
  G.changed = 1
end

-- A resource nobody has held in this incarnation of the list. Its caller puts it somewhere. And why it is halted, if it was
-- when those who named it had gone.
local function new_resource(name)
  call('ZADD', NAMES, '0', name)
  local why
  if call('ZSCORE', TIMERS, 'o:' .. name) then
    why = call('HGET', STATE, 'z:' .. name)
    lists.forget_removal(name)
  end
  count_total(1)
  local r = {
    name = name, status = 'free', owner = '-', token = 0, since = now, deadline = 0, rank = '2', removing = false,
    avoid = '-', ended = 0,
  }
  resource_cache[name] = r
  return r, why
end

-- What a live member has on record, as the sum of its tokens: it says the same of what it holds, or one of the two is of a history
-- that Redis has lost. Modulo 2^52, so that it stays exact.
local SUM = 4503599627370496

local function sum_of(id)
  local field = 'k:' .. id
  local sum = kept[field] or call('HGET', STATE, field) or '0'
  return whole(sum) and sum or unreadable('state', field)
end

local function add_token(m, token)
  if is_live(m) then keep('k:' .. m.id, int((tonumber(sum_of(m.id)) + token % SUM) % SUM)) end
end

-- Takes a resource from wherever it is. Afterwards it is in no index, and counts.
local function detach(r)
  if r.status == 'halted' then
    r.avoid = '-'
    count_shared(1)
    return
  end
  if r.status == 'free' then
    free.leave(r.name)
    return
  end
  local m = member(r.owner)
  leave_owned(r)
  add_token(m, -r.token)
  if r.status == 'pending' then
    if r.deadline > 0 then call('ZREM', DEADLINES, r.name) end
    if m and m.status == 'active' and not has_cancellable(m.id) then leave_revoking(m) end
  elseif m and m.status ~= 'dead' then
    shift(m, -1)
  end
end

local function attach(r, m, status)
  r.status, r.owner, r.since, r.deadline = status, m.id, now, 0
  put_resource(r)
  enter_owned(r)
  add_token(m, r.token)
  shift(m, 1)
end

-- Frees a resource. Those being removed come first, since a grant never takes them: they are deleted.
local function set_free(r)
  detach(r)
  r.status, r.owner, r.since, r.deadline, r.rank = 'free', '-', now, 0, '2'
  put_resource(r)
  free.enter(r.name, r.removing and 0 or G.version)
end

local function drain_ms(r) return int(r.status == 'pending' and now - r.since or 0) end

-- Ends a tenure: released, abandoned, forced, expired or withdrawn. The giver may say what effort it took.
local function end_tenure(r, kind, reason, effort)
  local token = int(r.token)
  journal(kind, 'resource', r.name, 'member', r.owner, 'token', token, 'handover_id', token,
    'deadline', int(r.deadline), 'drain_ms', drain_ms(r), 'committed', offset_of(r.name) or '',
    'reason', reason, 'effort', effort or '')
  local owner = r.owner
  r.ended = r.token
  set_free(r)
  return owner
end

-- The token rises first, so that whatever the late holder still sends is refused as FENCED.
local function force(r)
  local owner = end_tenure(r, 'forced', 'deadline')
  r.token = next_token()
  put_resource(r)
  tell(owner, r.name)
end

-- Taken out of circulation, already free and under a token that fences its last holder. With `till` only until then.
local function halt(r, why, till)
  free.leave(r.name)
  call('ZREM', TIMERS, 'a:' .. r.name)
  r.status, r.avoid = 'halted', why
  put_resource(r)
  count_shared(-1)
  journal('halted', 'resource', r.name, 'token', int(r.token), 'reason', till and 'paused' or why, 'deadline', int(till or 0))
end

local function resume(r, by)
  detach(r)
  r.status, r.since = 'free', now
  put_resource(r)
  free.enter(r.name, G.version)
  journal('resumed', 'resource', r.name, 'token', int(r.token), 'by', by or '-')
end

-- What cannot be worked anywhere must not go round, moving a healthy one with each step. A member that gives a resource up is avoided for
-- a while, and the next one keeps it (rank 0). If that one gives it up, too, it waits for a session timeout, twice as long each
-- time, in nobody's share; then it goes to a member with room, so that nothing moves for it. How often is remembered for longer
-- than the longest pause, or until somebody gives it back in order.
local MEMORY_MS = 600000

local avoid, pause
do

local AVOID_SESSIONS, PAUSE_MS = 3, 300000

function avoid(r, giver, tries)
  local till = now + AVOID_SESSIONS * G.session_ms
  r.avoid = giver .. '@' .. int(till) .. '@' .. int(tries)
  put_resource(r)
  set_timer('a:' .. r.name, till)
end

function pause(r, giver, tries, reason)
  local why = string.match(reason, '^[%w:_]+$') and '=' .. string.sub(reason, 1, 100) or ''
  local till = now + min(G.session_ms * 2 ^ min(tries - 2, 20), max(G.session_ms, PAUSE_MS))
  halt(r, 'halted:' .. giver .. why .. '@' .. int(till) .. '@' .. int(tries), till)
  set_timer('a:' .. r.name, till)
end

end

-- Who gave it up a while ago, if it may not have it again yet.
local function avoided(r)
  local id, till = string.match(r.avoid, '^(%S+)@(%d+)@')
  if id and now < tonumber(till) and is_live(member(id)) then return id end
end

local function revoke(r)
  if r.status == 'granted' then -- nobody has heard of this grant
    tell(end_tenure(r, 'withdrawn', 'rebalance'), r.name)
    return
  end
  local m = member(r.owner)
  leave_owned(r)
  r.status, r.since, r.deadline = 'pending', now, 0
  put_resource(r)
  enter_owned(r)
  shift(m, -1)
  if m.status == 'active' and not r.removing then enter_revoking(m) end
  local token = int(r.token)
  journal('revoking', 'resource', r.name, 'member', m.id, 'token', token, 'handover_id', token,
    'reason', r.removing and 'removed' or (m.status == 'leaving' and 'leaving' or 'rebalance'))
  tell(m.id, r.name)
end

local function cancel(r)
  local m = member(r.owner)
  journal('cancelled', 'resource', r.name, 'member', m.id, 'token', int(r.token), 'handover_id', int(r.token),
    'drain_ms', drain_ms(r))
  detach(r)
  attach(r, m, 'held')
  tell(m.id, r.name)
end

local function grant(r, m, pinned)
  detach(r)
  r.token, r.rank = next_token(), pinned and '0' or '2'
  attach(r, m, 'granted')
  journal('granted', 'resource', r.name, 'member', m.id, 'token', int(r.token), 'handover_id', int(r.ended))
  tell(m.id, r.name)
end

-- Its committed offset outlives it for a while: a resource removed by mistake resumes where it was. Why it was halted does if those who
-- named it have only gone.
local OFFSET_RETENTION_MS = 604800000

local function delete(r, is_left)
  local why = is_left and r.status == 'halted' and string.match(r.avoid, '^halted:[^@]+$')
  detach(r)
  journal('removed', 'resource', r.name, 'token', int(r.token))
  if why then call('HSET', STATE, 'z:' .. r.name, why) else call('HDEL', STATE, 'z:' .. r.name) end
  if why or call('HEXISTS', OFFSETS, r.name) == 1 then set_timer('o:' .. r.name, now + OFFSET_RETENTION_MS) end
  call('ZREM', NAMES, r.name)
  drop_resource(r.name)
end
