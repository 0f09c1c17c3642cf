-- Settling: expiries → cancellations → deadlines → surplus → grants, at most G.budget moves a call. A fixed point: doing
-- it again when nothing changed changes nothing.

local function lowest(key, class, count, offset)
  return call('ZRANGEBYSCORE', key, score(class, 0), score(class, CLASS - 1), 'WITHSCORES',
    'LIMIT', int(offset or 0), int(count))
end

-- Revocations that are no longer surplus: up to the floor, then up to the ceil while ceilings are left. Newest first.
local function cancel_needless()
  if G.barrier > 0 then return end
  local s = get_shares()
  for i = 1, #classes do
    local c = classes[i]
    while c.class > 0 and G.budget > 0 do
      local low = lowest(REVOKING, c.class, 1)
      if #low == 0 then break end
      local id, kept = low[1], tonumber(low[2]) - c.class * CLASS
      local room = c.floor - kept
      if room <= 0 then room = (kept == c.floor and c.ceil > c.floor and s.above < s.extras) and 1 or 0 end
      if room <= 0 then break end
      local newest = call('ZREVRANGEBYLEX', OWNED, '(' .. id .. ' q', '[' .. id .. ' p', 'LIMIT', '0',
        int(min(room, G.budget)))
      for n = 1, #newest do
        G.budget = G.budget - 1
        cancel(resource(last_word(newest[n])))
      end
      if #newest == 0 then call('ZREM', REVOKING, id) end -- cannot be; but a script must never turn in circles
    end
  end
end

-- A clock that jumped forward must not overtake a holder who still counts down: no force for one revocation timeout.
local function force_overdue()
  local due = call('ZRANGEBYSCORE', DEADLINES, '-inf', int(now), 'LIMIT', '0', int(max(G.budget, 1)))
  for i = 1, #due do
    if G.budget <= 0 then return end
    G.budget = G.budget - 1
    local r = resource(due[i])
    if G.gap_at > 0 and now < G.gap_at + G.revocation_ms then
      r.deadline = G.gap_at + G.revocation_ms
      put_resource(r)
      call('ZADD', DEADLINES, int(r.deadline), r.name)
    else
      force(r)
    end
  end
end

-- How many a member keeping `kept` has too many.
local function surplus_of(c, kept)
  if kept > c.ceil then return kept - c.ceil end
  if c.ceil > c.floor and kept == c.ceil and shares.above > shares.extras then return 1 end
  return 0
end

-- Changes that follow each other closely are gathered: the first acts at once, the next wait until the window closes,
-- and while they keep coming the window doubles, up to one session timeout.
local function open_gathering()
  if G.gather_ms == 0 then return end
  G.burst = now < G.calm_at and min(G.burst + 1, 16) or 0
  G.quiet_until = now + min(G.gather_ms * 2 ^ G.burst, G.session_ms)
  G.calm_at = G.quiet_until + G.session_ms
end

-- Idle ones first, then the most recently acquired. Pinned ones stay, unless their holder must give up everything.
local function take_surplus(c, id, count)
  local least = (c.class > 0 and G.barrier == 0) and ' k1' or ' k0'
  local picked = call('ZREVRANGEBYLEX', OWNED, '(' .. id .. ' l', '[' .. id .. least, 'LIMIT', '0',
    int(min(count, G.budget)))
  for n = 1, #picked do
    G.budget = G.budget - 1
    local r = resource(last_word(picked[n]))
    if c.class < 0 then end_tenure(r, 'expired', 'grace') else revoke(r) end
  end
  return #picked
end

-- Goes through those of a class who have too many, the most loaded first, until nobody has. Who keeps only pinned ones is
-- passed over.
local function revoke_from(c)
  local passed = 0
  while G.budget > 0 do
    local top = call('ZREVRANGEBYSCORE', LOAD, score(c.class, CLASS - 1), score(c.class, 0), 'WITHSCORES',
      'LIMIT', int(passed), int(G.budget))
    local taken, is_over = 0, #top == 0
    for i = 1, #top, 2 do
      get_shares()
      local count = surplus_of(c, tonumber(top[i + 1]) - c.class * CLASS)
      is_over = count == 0
      if is_over or G.budget <= 0 then break end
      if c.class > 0 and G.barrier == 0 and now < G.quiet_until then
        set_timer('q', G.quiet_until)
        return
      end
      taken = taken + take_surplus(c, top[i], count)
    end
    if c.class > 0 then G.revoked = G.revoked + taken end
    if taken > 0 then passed = 0 elseif is_over then return else passed = passed + #top / 2 end
  end
end

local function revoke_surplus()
  get_shares()
  for i = 1, #classes do revoke_from(classes[i]) end
  if G.budget <= 0 then return end -- the next call goes on with the same change
  if G.revoked > 0 and G.barrier == 0 then open_gathering() end
  G.revoked = 0
end

-- The member furthest below its quota, or, when someone must be avoided, the best of the others.
local function most_under(avoid)
  local best, best_deficit
  for i = 1, #classes do
    local c = classes[i]
    if c.class > 0 then
      local low = lowest(LOAD, c.class, avoid and 2 or 1)
      local at = (avoid and low[1] == avoid) and 3 or 1
      if low[at] then
        local kept = tonumber(low[at + 1]) - c.class * CLASS
        local deficit = c.floor - kept
        if deficit == 0 and c.ceil > c.floor and shares.above < shares.extras then deficit = 0.5 end
        if not best or deficit > best_deficit then best, best_deficit = low[at], deficit end
      end
    end
  end
  if avoid then return best or avoid, best ~= nil end
  if best and best_deficit > 0 then return best, false end
end

local function avoided(r)
  local id, till = string.match(r.avoid, '^(%S+)@(%d+)$')
  if id and now < tonumber(till) and is_live(member(id)) then return id end
end

local function grant_free()
  local names = call('ZRANGE', FREE, '0', int(max(G.budget, 1) - 1))
  for i = 1, #names do
    if G.budget <= 0 then return end
    local r = resource(names[i])
    if r.removing then
      G.budget = G.budget - 1
      delete(r)
    else
      if G.barrier > 0 or get_shares().live == 0 then return end
      local id, pinned = most_under(avoided(r))
      if not id then return end
      G.budget = G.budget - 1
      grant(r, member(id), pinned)
    end
  end
end

-- Eager mode: a change stops everything behind one barrier, whose deadline later changes do not extend; once nothing is
-- held, everything is dealt.
local function pass_barrier()
  local holding = call('ZCARD', OWNED) - G.graced_kept
  if G.barrier > 0 and holding == 0 then
    G.barrier, shares = 0, nil
  elseif G.barrier == 0 and G.changed == 1 and holding > 0 then
    G.barrier, shares = now + G.revocation_ms, nil
    journal('barrier', 'deadline', int(G.barrier))
  end
  G.changed = 0
end

local function settle()
  fire_timers()
  if G.recovering > 0 then return end
  if G.mode == 'eager' then pass_barrier() else G.changed, G.barrier = 0, 0 end
  cancel_needless()
  force_overdue()
  if G.mode == 'eager' then pass_barrier() end
  revoke_surplus()
  grant_free()
end

-- When somebody must call again: at once if the budget ran out, else at the next timer or deadline.
local function next_due()
  if G.budget <= 0 then return 0 end
  local timer = call('ZRANGE', TIMERS, '0', '0', 'WITHSCORES')
  local deadline = G.recovering > 0 and {} or call('ZRANGE', DEADLINES, '0', '0', 'WITHSCORES')
  return min(tonumber(timer[2] or '9007199254740991'), tonumber(deadline[2] or '9007199254740991'))
end
