-- Evenness where members can work different things, while a deployment adds a topic or takes one away: what is free goes to the
-- least loaded of those whose list names it, and something is revoked only if moving it to one of them lessens the difference
-- between the two. Moves are found for the loads that they will lead to, and looked for again when all of them have been made. A call
-- looks at a part of what the most loaded keep.

local even = {}

do

local STUCK = 4503599627370496 -- 2^52; before it FREE holds versions, behind it the rounds in which nobody could work something

-- Who of a subscription would be least loaded with one more, and how much; up to a load, if it is given.
function even.least_loaded(id, count, load)
  save_loads()
  lists.questions = lists.questions + 1
  local line = {}
  local found = call('ZRANGEBYLEX', MORE, '[' .. id .. ' ', '(' .. id .. (load or '') .. '!', 'LIMIT', '0', int(count))
  for i = 1, #found do
    local at, who = string.match(found[i], '^%S+ (%d+) (%S+)$')
    line[i] = {id = who, at = tonumber(at), subscription = id}
  end
  return line
end

-- The least loaded member; `but` only if there is no other.
local function least_of(id, but)
  local line = even.least_loaded(id, 2)
  return line[1] and line[1].id == but and line[2] or line[1]
end

local function is_better(one, other, but)
  if not other or (other.id == but) ~= (one.id == but) then return not other or other.id == but end
  return one.at < other.at
end

local function best_of(ids, but)
  local best
  for i = 1, #ids do
    local it = least_of(ids[i], but)
    if it and is_better(it, best, but) then best = it end
  end
  return best
end

-- What is on trial goes to another than its giver; anything else only if the giver would not be better off with it, or it would move back.
local function taker_of(r, giver, is_on_trial)
  local ids = lists.naming(r.name)
  local other = best_of(ids, giver)
  if is_on_trial or not giver or not other then return other end
  local best = best_of(ids)
  return best.at < other.at and best or other
end

local function first_free()
  free.save()
  return call('ZRANGEBYSCORE', FREE, '-inf', '(' .. int(STUCK + G.round), 'LIMIT', '0', '1')[1]
end

-- Counts a look as one question, beside those that it asked.
local function pay_for_looking()
  lists.questions = lists.questions + 1
  lists.pay()
end

-- Nobody who could work it has a share: looked at again when that may have changed.
local function lay_aside(r)
  pay_for_looking()
  call('ZADD', FREE, int(STUCK + G.round), r.name)
end

local function give(r)
  local giver = avoided(r)
  local on_trial = giver and tries_of(r) < 2
  local best = taker_of(r, giver, on_trial)
  if not best then return lay_aside(r) end
  pay_for_looking()
  G.budget = G.budget - 1
  grant(r, member(best.id), on_trial and best.id ~= giver)
  if G.mode ~= 'eager' then G.changed = 1 end -- a revocation may be of no more use: the next call looks
end

function even.grant()
  while G.budget > 0 do
    local name = first_free()
    local r = name and resource(name)
    if not r then return end
    if r.removing then
      G.budget = G.budget - 1
      delete(r)
    else
      give(r)
    end
  end
end

local function load_of(m, more) return (kept_by(m) + (more or 0)) * SCALE / m.capacity end

-- For each subscription who of it would be better off with one of the giver's, least loaded first.
local function receivers_from(giver, more)
  local all, out, load = lists.subscriptions(), {}, load_of(giver, more)
  for i = 1, #all do
    local it = least_of(all[i], giver.id)
    if it and it.id ~= giver.id and it.at < floor(load + 0.5) then out[#out + 1] = it end
  end
  table.sort(out, function(a, b) return a.at < b.at end)
  return out
end

local function receiver_of(name, receivers)
  for i = 1, #receivers do
    if lists.can_work(receivers[i], name) then return member(receivers[i].id) end
  end
end

-- The first that could move, idle ones first, then the most recently acquired.
local function find_movable(giver, receivers)
  local from = string.sub(G.scan, 1, #giver.id + 1) == giver.id .. ' ' and G.scan or giver.id .. ' l'
  while G.budget > 0 do
    local page = highest_owned(giver.id, ' k1', string.sub(from, #giver.id + 1), 20)
    for i = 1, #page do
      pay_for_looking()
      from = page[i]
      local name = last_word(page[i])
      local receiver = receiver_of(name, receivers)
      if receiver then return resource(name), receiver end
    end
    if #page == 0 then return nil end
    G.scan = from
  end
end

-- The most loaded member behind so many; those without a share come before them in LOAD, seen from its end. By rank, which Redis finds at
-- once: a LIMIT that skips members would go through all of them with each look.
local function most_loaded(behind)
  local at = int(-1 - behind - call('ZCOUNT', LOAD, int(TOP), '+inf'))
  local found = call('ZRANGE', LOAD, at, at, 'WITHSCORES')
  return found[1] and tonumber(found[2]) > 0 and member(found[1])
end

-- Goes through the members, the most loaded first. Who has been passed is more loaded than anybody who gives or receives, so that all
-- keep their places. True when nobody is left who could give anything. `moved` grows by those who will have what was revoked, and are
-- compared as if they had it.
local function look(moved)
  while G.budget > 0 do
    save_loads()
    local giver = most_loaded(G.passed)
    local receivers = giver and receivers_from(giver) or {}
    if #receivers == 0 then return true end
    local r, receiver = find_movable(giver, receivers)
    if r then
      G.budget = G.budget - 1
      revoke(r)
      moved[#moved + 1] = receiver
      shift(receiver, 1)
    elseif G.budget > 0 then
      pay_for_looking()
      G.passed, G.scan = G.passed + 1, ''
    end
  end
  return false
end

function even.out()
  if G.uneven == 0 or call('ZCARD', REVOKING) > 0 or first_free() then return end
  local quiet_until = max(G.quiet_until, lists.walked_until()) -- a list that is being sent would change what is found
  if now < quiet_until then return set_timer('q', quiet_until) end
  if G.uneven == 1 then G.passed, G.scan = 0, '' end
  local moved = {}
  local is_over = look(moved)
  for i = 1, #moved do shift(moved[i], -1) end
  G.uneven = #moved > 0 and 1 or is_over and 0 or 2
  G.revoked = G.revoked + #moved
  if not is_over or G.revoked == 0 then return end -- the next call goes on with the same change
  open_gathering()
  G.revoked = 0
end

-- The entry of OWNED behind one: the next revocation of the same member that may be taken back, or where those of the next member begin.
local function behind(entry)
  save_owned()
  lists.questions = lists.questions + 3
  local id = string.match(entry, '^%S*')
  local next = call('ZSCORE', REVOKING, id) and call('ZRANGEBYLEX', OWNED, '(' .. entry, '(' .. id .. ' q', 'LIMIT', '0', '1')[1]
  if next then return next end
  next = call('ZRANGEBYLEX', OWNED, '(' .. id .. '!', '+', 'LIMIT', '0', '1')[1]
  return next and string.match(next, '^%S+') .. ' p' or ''
end

-- Of use is what somebody would be better off with, who then counts as if it had it: what comes after may be of no more use to it.
local function judge(m, name, promised)
  if not lists.can_work(m, name) then return end
  local receiver = receiver_of(name, receivers_from(m, 1 - (promised[m.id] or 0)))
  if receiver then
    promised[#promised + 1] = receiver
    promised[receiver.id] = (promised[receiver.id] or 0) + 1
    shift(receiver, 1)
  else
    G.budget, G.judge_again = G.budget - 1, 1
    cancel(resource(name))
  end
end

-- Takes back revocations that have become of no use, until a round through all finds none. How far one has come stands in G.judged; the
-- next call goes on.
function even.cancel(has_changed)
  if has_changed and G.judged ~= '' then G.judge_again = 1 end
  if has_changed and G.judged == '' then G.judged = ' ' end
  if call('ZCARD', REVOKING) == 0 then G.judged, G.judge_again = '', 0 end
  local enough, promised = floor(G.budget / 2), {}
  while G.judged ~= '' and G.budget > enough do
    G.judged = behind(G.judged)
    local id, name = string.match(G.judged, '^(%S+) p%d+ (.+)$')
    if id then judge(member(id), name, promised) end
    lists.pay()
  end
  for i = 1, #promised do shift(promised[i], -1) end
  if G.judged == '' and G.judge_again == 1 then G.judged, G.judge_again = ' ', 0 end
end

end
