-- How the group follows its lists: what comes on one is added, what is on none is removed.

do

function lists.add(name)
  G.budget = G.budget - 1
  local r, why = new_resource(name)
  put_resource(r)
  journal('added', 'resource', name)
  free.enter(name, G.version)
  if why then halt(r, why) end
end

-- A pending one changes its place among its holder's, and whether it may be cancelled.
local function flag(r, removing)
  if r.status == 'pending' then leave_owned(r) end
  r.removing = removing
  put_resource(r)
  if r.status == 'pending' then
    enter_owned(r)
    local m = member(r.owner)
    if m.status == 'active' then
      if has_cancellable(m.id) then enter_revoking(m) else leave_revoking(m) end
    end
  end
end

function lists.restore(r)
  G.budget = G.budget - 1
  flag(r, false)
  if r.status == 'free' then free.enter(r.name, G.version) end
  journal('added', 'resource', r.name, 'member', r.owner, 'token', int(r.token))
  count_total(1)
end

-- Taken from a list, or left by all whose lists name it.
function lists.remove(r, is_left)
  G.budget = G.budget - 1
  flag(r, true)
  count_total(-1)
  journal('removing', 'resource', r.name, 'member', r.owner, 'token', int(r.token))
  if r.status == 'free' or r.status == 'halted' then
    delete(r, is_left)
  elseif r.status ~= 'pending' then
    local m = member(r.owner)
    if is_live(m) then revoke(r) else end_tenure(r, 'expired', 'removed') end
  end
end

-- So many questions cost as much as a move.
lists.A_MOVE = 6

local paid = 0

function lists.pay()
  while lists.questions - paid >= lists.A_MOVE do
    paid = paid + lists.A_MOVE
    G.budget = G.budget - 1
  end
end

-- What is on no list is removed, and what is on one again comes back. Only while all lists are known.
local function compare(name)
  local r = resource(name)
  if not r then return end
  local is_named = #lists.naming(name) > 0
  lists.questions = lists.questions + 1 -- for the record
  if is_named and r.removing then
    lists.restore(r)
  elseif not is_named and not r.removing then
    lists.remove(r, true)
  elseif (r.status == 'held' or r.status == 'granted') and is_live(member(r.owner)) and not lists.can_work(member(r.owner), name) then
    G.budget = G.budget - 1 -- it was left to its holder, and is on a list now
    revoke(r)
  end
  lists.pay()
end

-- What was claimed for a list that was never known, was left to it, or was dropped by two lists at a time, may be on none: all are looked at, as
-- soon as all lists are known.
function lists.sweep_later()
  G.sweep = '>'
  set_timer('u', now)
end

-- As far as the budget goes; G.sweep is ">" and the resource looked at last. True when all have been.
function lists.sweep()
  local found = call('ZRANGEBYLEX', NAMES, G.sweep == '>' and '-' or '(' .. string.sub(G.sweep, 2), '+', 'LIMIT', '0', int(max(G.budget, 1)))
  fetch_resources(found)
  for i = 1, #found do
    if i > 1 and G.budget <= 0 then return false end
    compare(found[i])
    G.sweep = '>' .. found[i]
  end
  if #found == 0 then G.sweep = '' end
  return #found == 0
end

-- The names of a list that nobody has any more, as far as the budget goes; what only it names stays until all others are known. True when
-- none is left.
function lists.let_go(id)
  local are_known = lists.are_known()
  local entries = call('ZRANGEBYLEX', DECLARED, '[' .. id .. ' ', '(' .. id .. '!', 'LIMIT', '0', int(max(G.budget, 1)))
  for i = 1, #entries do
    if i > 1 and G.budget <= 0 then return false end
    lists.drop(entries[i])
    if are_known then
      compare(last_word(entries[i]))
    else
      lists.questions = lists.questions + 1
      lists.pay()
    end
  end
  if #entries > 0 and not are_known then lists.sweep_later() end
  if #entries > 0 then return false end
  if id == '-' then lists.sweep_later() end -- what was left to the members without a list may be on no other
  lists.forget(id)
  return true
end

-- A list is known: heirs that waited for it inherit before the kept are asked for what is more than their share. Of
-- thousands, so many at once: the others look by themselves within a quarter of a heartbeat.
function lists.wake_heirs()
  save_loads()
  local graced, words = call('ZRANGEBYSCORE', LOAD, '-inf', '(0', 'LIMIT', '0', '200'), {}
  for i = 1, #graced do
    words[2 * i - 1] = int(now)
    words[2 * i] = 'h:' .. graced[i]
  end
  call_with('ZADD', TIMERS, words, 'XX')
end

end
