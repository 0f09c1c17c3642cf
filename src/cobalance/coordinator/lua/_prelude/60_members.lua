-- How members end. Emptying one may take several calls: its timer stays due until nothing is left.

local TOMBSTONE_MS = 600000

local function unelect(id)
  if G.coordinator == id then G.coordinator = '' end
  if lists.members_of(member(id).subscription) > 0 then lists.unelect(id) end
end

local function forget_request(id)
  kept['r:' .. id], kept['k:' .. id], kept['h:' .. id], kept['a:' .. id] = nil, nil, nil, nil
  call('HDEL', STATE, 'r:' .. id, 'c:' .. id, 'k:' .. id, 'h:' .. id, 'a:' .. id, 'w:' .. id, 'v:' .. id)
end

-- The last request's number, and when the session ends.
local function vitals(id)
  local field = 'r:' .. id
  local request, ends = string.match(kept[field] or call('HGET', STATE, field) or '-1 0', '^(%S+) (%S+)$')
  request, ends = whole(request or ''), whole(ends or '')
  if not (request and ends) then unreadable('state', field) end
  return request, ends
end

local function last_request(id) return (vitals(id)) end

-- When the rejoin grace of a graced one ends, as recorded; a silence may put that off (70_timers.lua).
local function grace_end(id)
  local field = 'g:' .. id
  return whole(kept[field] or call('HGET', STATE, field) or '0') or unreadable('state', field)
end

local end_member, enter_grace, empty
do

-- The instance id goes back to the one whose heir this was, if it had not inherited yet.
local function release_instance(m)
  if m.instance == '-' or call('HGET', MEMBERS, '=' .. m.instance) ~= m.id then return end
  local before = member(m.reason)
  if before and before.status == 'graced' then
    call('HSET', MEMBERS, '=' .. m.instance, before.id)
  else
    call('HDEL', MEMBERS, '=' .. m.instance)
  end
end

-- From here on the member holds nothing by right; what it held is freed as the budget allows.
function end_member(m, kind, reason)
  if m.status == 'dead' or m.status == 'ended' then return end
  journal(kind, 'member', m.id, 'reason', reason)
  leave_shares(m)
  call('ZREM', TIMERS, 's:' .. m.id, 'g:' .. m.id)
  unelect(m.id)
  release_instance(m)
  local was_graced = m.status == 'graced'
  m.status, m.reason, m.request = 'dead', reason, last_request(m.id)
  put_member(m)
  forget_request(m.id)
  kept['g:' .. m.id] = nil
  if was_graced then call('HDEL', STATE, 'g:' .. m.id) end -- after the record, or a repair would begin the grace again
  set_timer('e:' .. m.id, now)
end

-- With an instance id, a member that stops is kept for the rejoin grace: a rolling restart moves nothing.
function enter_grace(m, reason)
  journal('graced', 'member', m.id, 'reason', reason, 'deadline', int(now + G.grace_ms))
  reclass(m, function(it) it.status = 'graced' end)
  m.request = last_request(m.id)
  put_member(m)
  forget_request(m.id)
  unelect(m.id)
  call('ZREM', TIMERS, 's:' .. m.id)
  keep('g:' .. m.id, int(now + G.grace_ms))
  set_timer('g:' .. m.id, now + G.grace_ms)
  set_timer('p:' .. m.id, now)
end

local function entries_of(m, from, to) return lowest_owned(m.id, from, to, max(G.budget, 1)) end

-- Frees (or, with an heir that can work it, hands on) what lies between two prefixes of a member's OWNED entries. True when none is left.
-- In eager mode nothing is handed on: an heir's coming stops everybody, and then everything is dealt.
function empty(m, from, to, reason, heir)
  local entries = entries_of(m, from, to)
  local names = last_words(entries)
  fetch_resources(names)
  offsets.fetch(names)
  for i = 1, #entries do
    if G.budget <= 0 then return false end
    G.budget = G.budget - 1
    local r = resource(names[i])
    end_tenure(r, heir and 'inherited' or 'expired', reason)
    local is_handed_on = heir and G.mode ~= 'eager' and not r.removing and (lists.common() or lists.can_work(heir, r.name))
    if is_handed_on then grant(r, heir, false) end
  end
  return #entries_of(m, from, to) == 0
end

end

local function trim_feed(m)
  save_feed()
  local entries = call('ZRANGEBYLEX', FEED, '[' .. m.id .. ' ', '(' .. m.id .. '!', 'LIMIT', '0', int(G.moves))
  if #entries > 0 then call('ZREM', FEED, unpack(entries)) end
  return #entries < G.moves
end
