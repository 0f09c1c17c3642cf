-- Settling: expiries → cancellations → deadlines → surplus → grants, at most G.budget moves a call. A fixed point: doing
-- it again when nothing changed changes nothing.

local settle, next_due
do

local function lowest(key, from, to, ...)
  save_loads()
  return call('ZRANGEBYSCORE', key, from, to, ...)
end

local function highest(key, from, to, count)
  save_loads()
  return call('ZREVRANGEBYSCORE', key, to, from, 'WITHSCORES', 'LIMIT', '0', int(count))
end

-- How many more may keep the ceil of their share; below 0, too many do.
local function ceilings_left()
  save_loads()
  return ceilings() - call('ZCOUNT', LOAD, '(' .. level(), '(' .. int(TOP))
end

-- Who has a revocation that is no longer surplus, and how many of them: up to the floor, else one, up to the ceil.
local function needless()
  save_loads()
  if call('ZCARD', REVOKING) == 0 then return end
  local low = highest(REVOKING, '-' .. level(), '(0', 1)[1]
  if low then
    local m = member(string.sub(low, 2))
    return m, quota_of(m) - kept_by(m)
  end
  local next = ceilings_left() > 0 and lowest(REVOKING, '0', '(' .. level(), 'LIMIT', '0', '1')[1]
  if next then return member(next), 1 end
end

-- The newest revocation is cancelled first.
local function cancel_needless()
  while G.barrier == 0 and G.budget > 0 do
    local m, count = needless()
    if not m then return end
    local newest = highest_owned(m.id, ' p', ' q', min(count, G.budget))
    local names = last_words(newest)
    fetch_resources(names)
    for n = 1, #names do
      G.budget = G.budget - 1
      cancel(resource(names[n]))
    end
    if #newest == 0 then leave_revoking(m) end -- cannot be; but a script must never loop for ever
  end
end

-- A clock that jumped forward must not overtake a holder who still counts down: after a silence no force for one revocation
-- timeout, but only once, or silences that follow each other would put it off for ever.
local function force_overdue()
  local due = call('ZRANGEBYSCORE', DEADLINES, '-inf', int(now), 'LIMIT', '0', int(max(G.budget, 1)))
  fetch_resources(due)
  for i = 1, #due do
    if G.budget <= 0 then return end
    G.budget = G.budget - 1
    local r = resource(due[i])
    local later = G.gap_at > 0 and G.gap_at + G.revocation_ms or 0
    if not r or r.status ~= 'pending' then
      call('ZREM', DEADLINES, due[i]) -- somebody else's entry
    elseif now < later and not r.postponed then
      r.deadline, r.postponed = later, true
      put_resource(r)
      call('ZADD', DEADLINES, int(r.deadline), r.name)
    else
      force(r)
    end
  end
end

-- Keeps only pinned ones: not looked at again before that may have changed.
local function set_aside(m)
  G.budget = G.budget - 1
  call('ZREM', LESS, m.id)
  call('ZREM', LOOSE, m.id)
end

-- Idle ones first, then the most recently acquired (OWNED's order: 25_owned.lua). Pinned ones stay, unless their holder
-- must give up everything.
local function pick_surplus(m, names)
  local _, ceil = quota_of(m)
  local class = class_of(m)
  local count = max(kept_by(m) - ceil, 1) -- one, of a ceil that there is no longer
  local least = (class > 0 and G.barrier == 0) and ' k1' or ' k0'
  local picked = highest_owned(m.id, least, ' l', min(count, G.budget))
  for n = 1, #picked do names[#names + 1] = last_word(picked[n]) end
  G.budget = G.budget - #picked
  if class > 0 then G.revoked = G.revoked + #picked end
  if #picked == 0 then set_aside(m) end
end

local function take(names)
  fetch_resources(names)
  for n = 1, #names do
    local r = resource(names[n])
    if member(r.owner).status == 'graced' then end_tenure(r, 'expired', 'grace') else revoke(r) end
  end
end

local PAGE = 50 -- of members: as many as one command fetches, whatever is left of the budget

-- Found are members and their places in an order. False while changes are gathered: nothing is taken from the living then.
local function take_from(key, found)
  local ids, names, is_gathering = {}, {}, false
  for i = 1, #found, 2 do ids[#ids + 1] = found[i] end
  for i = 1, #ids do
    if G.budget <= 0 or is_gathering then break end
    if i % PAGE == 1 then fetch_members({unpack(ids, i, min(i + PAGE - 1, #ids))}) end
    local m = member(ids[i])
    if not m then -- the next call repairs
      G.is_gone = true
      return false
    end
    learn_kept(m, key, found[2 * i])
    is_gathering = class_of(m) > 0 and G.barrier == 0 and now < G.quiet_until
    if is_gathering then set_timer('q', G.quiet_until) else pick_surplus(m, names) end
  end
  take(names)
  return not is_gathering
end

-- Goes through those who have too many, the most loaded first, until nobody has.
local function revoke_between(key, from, to, at_most)
  while G.budget > 0 do
    local count = at_most and at_most() or G.budget
    local top = count > 0 and highest(key, from, to, min(count, G.budget)) or {}
    if #top == 0 or not take_from(key, top) then return end
  end
end

local function revoke_surplus()
  local function too_many() return -ceilings_left() end
  if G.graced > 0 then
    local graced_level = below_zero(G.total, G.live + G.graced)
    revoke_between(LESS, '-inf', graced_level)
    revoke_between(LOAD, '-inf', '(' .. graced_level, too_many)
  end
  revoke_between(LESS, level(), '+inf')
  revoke_between(G.barrier > 0 and LOAD or LOOSE, '(' .. level(), '(' .. int(TOP), too_many)
  if G.budget <= 0 then return end -- the next call goes on with the same change
  if G.revoked > 0 and G.barrier == 0 then open_gathering() end
  G.revoked = 0
end

-- Those in a range of LOAD, the furthest first, as many as there are resources to give.
local function line_of(from, to, count)
  local found, line = lowest(LOAD, from, to, 'WITHSCORES', 'LIMIT', '0', int(count)), {}
  for i = 1, #found, 2 do line[#line + 1] = {id = found[i], at = tonumber(found[i + 1])} end
  return line
end

-- Those below the floor of their shares.
local function line_below(count) return even.least_loaded(lists.common(), count, ' ' .. fmt('%016.0f', level())) end

local function take_first(line, but) return table.remove(line, line[2] and line[1].id == but and 2 or 1) end

-- The member furthest below the floor of its share; else the least loaded, for while something is free, a ceil is left. Another
-- than one of them, if there is room at another.
local function most_under(lines, count, but)
  lines.below = lines.below or line_below(count + 1)
  if #lines.below > 0 then return take_first(lines.below, but) end
  lines.lesser = lines.lesser or line_of('0', '(' .. level(), count + 1)
  return take_first(lines.lesser, but)
end

-- Who was given a resource and still lacks one stands behind those who lack as much.
local function line_up(line, first)
  local m = member(first.id)
  if kept_by(m) >= quota_of(m) then return end
  first.at = (kept_by(m) + 1) * SCALE / m.capacity
  local at = #line + 1
  while at > 1 and line[at - 1].at > first.at do at = at - 1 end
  table.insert(line, at, first)
end

-- The best of the others, even if it lacks nothing: a giver gets a resource back only if nobody else can take it.
local function best_but(avoid)
  local line = line_below(2)
  if not line[1] or line[1].id == avoid and not line[2] then line = line_of('0', '(' .. int(TOP), 2) end
  return line[1].id == avoid and line[2] or line[1]
end

local function grant_free()
  local lines = {}
  free.save()
  local names = call('ZRANGE', FREE, '0', int(max(G.budget, 1) - 1))
  fetch_resources(names)
  for i = 1, #names do
    if G.budget <= 0 then return end
    local r = resource(names[i])
    if r.removing then
      G.budget = G.budget - 1
      delete(r)
    else
      if G.barrier > 0 or G.live == 0 then return end
      local giver = avoided(r)
      local avoid = tries_of(r) < 2 and giver -- what is on trial goes to a member with room
      local first = avoid and best_but(avoid) or most_under(lines, #names, giver)
      if not first then return end
      G.budget = G.budget - 1
      grant(r, member(first.id), avoid and first.id ~= avoid)
      if avoid then lines = {} else line_up(lines.below, first) end
    end
  end
end

local function set_barrier(at) G.barrier, G.ceilings = at, 0 end

-- Eager mode: a change stops everything behind one barrier, whose deadline later changes do not extend; once nothing is
-- held, everything is dealt.
local function pass_barrier()
  save_owned()
  local holding = call('ZCARD', OWNED) - G.graced_kept
  if G.barrier > 0 and holding == 0 then
    set_barrier(0)
  elseif G.barrier == 0 and G.changed == 1 and holding > 0 then
    set_barrier(now + G.revocation_ms)
    journal('barrier', 'deadline', int(G.barrier))
  end
  G.changed = 0
end

-- Behind a barrier everything is surplus, no matter who can work it.
local function has_quotas() return G.barrier > 0 or lists.common() end

function settle()
  fire_timers()
  if G.recovering > 0 then return end
  if G.mode ~= 'eager' and G.barrier > 0 then set_barrier(0) end
  local has_changed = G.changed == 1
  if G.mode == 'eager' then pass_barrier() else G.changed = 0 end
  if has_quotas() then G.judged, G.judge_again = '', 0 end
  if has_quotas() then cancel_needless() else even.cancel(has_changed) end
  force_overdue()
  if G.mode == 'eager' then pass_barrier() end
  if has_quotas() then
    revoke_surplus()
    grant_free()
  else
    revoke_between(LESS, int(TOP), '+inf') -- of those who leave
    even.grant()
    even.out()
    even.grant() -- what nobody had heard of was taken back at once
  end
end

-- When somebody must call again: at once if the budget ran out, or revocations are still to be looked at, else at the next timer or deadline.
function next_due()
  if G.budget <= 0 or G.judged ~= '' and G.recovering == 0 then return 0 end
  local timer = call('ZRANGE', TIMERS, '0', '0', 'WITHSCORES')
  local deadline = G.recovering > 0 and {} or call('ZRANGE', DEADLINES, '0', '0', 'WITHSCORES')
  return max(min(tonumber(timer[2] or '9007199254740991'), tonumber(deadline[2] or '9007199254740991')), 0)
end

end
