-- set_resources: one page of the versioned, sorted list of the caller's subscription. A page speaks for the names in (from, to]: those
-- missing are added, those it does not name, nor any other list, are removed (revoked first where held). Pages are idempotent. A lower
-- version is ignored, unless who began the higher one has gone half-way, or takes it back. One member walks through the list, from its
-- beginning; the others wait, so that it costs as much for a thousand as for one. So do those with a higher version: lists that are
-- replaced faster than they are walked through would never be known.
--
-- KEYS     the group's keys (keys.py)
-- ARGV     1-8 as every verb; 9 list version, 10 list hash, 11 from ("" is the beginning), 12 to ("" is the end), 13… names
-- Returns  as heartbeat; results: CURRENT | IGNORED | DISAGREE | DONE | RECOVERING (all are added; send the list again when
--          recovering_ms is over, nothing is removed before) | NEXT and the name to go on after | WAIT (another one walks: send the
--          list again a little later) | AGAIN (another one has walked meanwhile: begin again)
--- @prelude

local wrong = malformed('nwtt', 'w')
if wrong then return wrong end

local VERSION, HASH, FROM, TO, NAMES_AT = tonumber(ARGV[9]), ARGV[10], ARGV[11], ARGV[12], 13

local l, subscription -- the list of the caller's subscription

-- How many of the names lie not behind a cut. They are sorted.
local function count_up_to(cut)
  local low, high = NAMES_AT, #ARGV + 1
  while low < high do
    local middle = floor((low + high) / 2)
    if is_before(cut, ARGV[middle]) then high = middle else low = middle + 1 end
  end
  return low - NAMES_AT
end

-- What is known in (FROM, to].
local function known_names(to, most)
  local low, high = FROM == '' and '-' or '(' .. FROM, to == '' and '+' or '[' .. to
  return call('ZRANGEBYLEX', NAMES, low, high, 'LIMIT', '0', int(most))
end

-- This list does not name it: if no other one does, it is removed; else its holder must be able to work it.
local function strike(r)
  lists.strike(subscription, r.name)
  if r.removing then return end
  if #lists.naming(r.name) == 0 then
    if lists.are_known(subscription) then lists.remove(r) else lists.sweep_later() end
  elseif r.status ~= 'pending' and is_live(member(r.owner)) and not lists.can_work(member(r.owner), r.name) then
    G.budget = G.budget - 1
    revoke(r)
  end
end

-- The page is cut short where it names, or the group knows, more than this call may still move, or ask the lists about.
local function apply_page()
  local asked = (#lists.subscriptions() - 1) / lists.A_MOVE
  local most, cut, count = max(floor(G.budget / (1 + asked)), 1), nil, #ARGV - NAMES_AT + 1
  if count > most then cut, count = ARGV[NAMES_AT + most - 1], most end
  local known = known_names(cut or TO, most + 1)
  if #known > most then
    known[#known] = nil
    cut = known[#known]
    count = min(count, count_up_to(cut))
  end
  local wanted, words = {}, {}
  for i = NAMES_AT, NAMES_AT + count - 1 do
    wanted[ARGV[i]] = true
    words[#words + 1] = '0'
    words[#words + 1] = subscription .. ' ' .. ARGV[i]
  end
  call_with('ZADD', DECLARED, words)
  fetch_resources(known)
  for i = 1, #known do
    local r = resource(known[i])
    if wanted[known[i]] then
      wanted[known[i]] = nil
      if r.removing then lists.restore(r) end
    elseif G.recovering == 0 then
      strike(r)
    end
  end
  for i = NAMES_AT, NAMES_AT + count - 1 do
    if wanted[ARGV[i]] then
      wanted[ARGV[i]] = nil -- a page may name it twice
      lists.add(ARGV[i])
    end
  end
  if cut then return cut end
  if TO ~= '' then return TO end
end


local function is_walked_by_another()
  local m = l.walker ~= CALLER and member(l.walker)
  return m and m.status == 'active' and now < l.walk_until
end

local function walk()
  if FROM == '' then
    if l.done == lists.KNOWN then l.complete = l.version end -- an earlier release did not note it
    l.version, l.hash, l.done, l.walker = VERSION, HASH, G.recovering > 0 and lists.ADDS or 0, CALLER
    lists.put(subscription, l)
  elseif l.walker ~= CALLER or VERSION ~= l.version then
    return 'AGAIN'
  end
  local next = apply_page()
  lists.pay()
  l.walk_until = now + 2 * G.heartbeat_ms
  if next then return 'NEXT', next end
  l.walk_until = 0
  G.uneven, G.round = 1, G.round + 1
  if l.done == lists.ADDS then -- nothing was removed, even if recovery is over by now: its walker is to send it again
    l.done = lists.ADDED
    return 'RECOVERING'
  end
  l.walker, l.done, l.complete = '', lists.KNOWN, VERSION
  return 'DONE'
end

-- What else there is to do may not use up what a call may do: the list would come to its end a name at a time.
local HALF = floor(G.moves / 2)
G.budget = G.moves - HALF
local status = admit()
G.budget = max(G.budget, 0) + HALF
if status == 'REPEAT' then
  recall()
  return reply('OK')
end
if status ~= 'OK' then return refusal(status) end
subscription = member(CALLER).subscription
l = lists.of(subscription)
results[1] = lists.refusal(l, VERSION)
if results[1] then -- that is all
elseif VERSION == l.version and HASH ~= l.hash then
  results[1] = 'DISAGREE'
elseif VERSION == l.version and l.done == lists.KNOWN then
  results[1] = 'CURRENT'
elseif VERSION == l.version and l.done == lists.ADDED and G.recovering > 0 then
  results[1] = 'RECOVERING'
elseif is_walked_by_another() then
  results[1] = 'WAIT'
else
  results[1], results[2] = walk()
  lists.put(subscription, l)
  if results[1] == 'DONE' then
    if G.list_version == 0 and lists.members_of('-') > 0 then lists.sweep_later() end -- what was left to them may be named now
    lists.let_go_later()
    lists.wake_heirs()
  end
end
remember()
return reply('OK')
