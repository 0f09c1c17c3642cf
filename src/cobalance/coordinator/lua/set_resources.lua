-- set_resources: one page of a versioned, sorted resource list. A page speaks for the names in (from, to]: those missing are
-- added, those it does not name are removed (revoked first where held). Pages are idempotent; a lower version is ignored. One
-- member walks through the list, from its beginning; the others wait, so that it costs as much for a thousand as for one.
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

local function add(name)
  G.budget = G.budget - 1
  put_resource(new_resource(name))
  journal('added', 'resource', name)
  call('ZADD', FREE, int(G.version), name)
end

-- A pending one changes its place among its holder's, and whether it may be cancelled.
local function flag(r, removing)
  if r.status == 'pending' then call('ZREM', OWNED, owned_entry(r)) end
  r.removing = removing
  put_resource(r)
  if r.status == 'pending' then
    call('ZADD', OWNED, '0', owned_entry(r))
    local m = member(r.owner)
    if m.status == 'active' then
      if has_cancellable(m.id) then enter_revoking(m) else leave_revoking(m) end
    end
  end
end

local function restore(r)
  G.budget = G.budget - 1
  flag(r, false)
  if r.status == 'free' then call('ZADD', FREE, int(G.version), r.name) end
  journal('added', 'resource', r.name, 'member', r.owner, 'token', int(r.token))
  count_total(1)
end

local function remove(r)
  G.budget = G.budget - 1
  flag(r, true)
  count_total(-1)
  journal('removing', 'resource', r.name, 'member', r.owner, 'token', int(r.token))
  if r.status == 'free' or r.status == 'halted' then
    delete(r)
  elseif r.status ~= 'pending' then
    local m = member(r.owner)
    if is_live(m) then revoke(r) else end_tenure(r, 'expired', 'removed') end
  end
end

-- Byte by byte, as Redis orders names: `<` on strings would follow the server's locale.
local function is_before(a, b)
  for i = 1, min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

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

-- The page is cut short where it names, or the group knows, more than this call may still move.
local function apply_page()
  local most, cut, count = max(G.budget, 1), nil, #ARGV - NAMES_AT + 1
  if count > most then cut, count = ARGV[NAMES_AT + most - 1], most end
  local known = known_names(cut or TO, most + 1)
  if #known > most then
    known[#known] = nil
    cut = known[#known]
    count = min(count, count_up_to(cut))
  end
  local wanted = {}
  for i = NAMES_AT, NAMES_AT + count - 1 do wanted[ARGV[i]] = true end
  for i = 1, #known do
    local r = resource(known[i])
    if wanted[known[i]] then
      wanted[known[i]] = nil
      if r.removing then restore(r) end
    elseif not r.removing and G.recovering == 0 then
      remove(r)
    end
  end
  for i = NAMES_AT, NAMES_AT + count - 1 do
    if wanted[ARGV[i]] then
      wanted[ARGV[i]] = nil -- a page may name it twice
      add(ARGV[i])
    end
  end
  if cut then return cut end
  if TO ~= '' then return TO end
end

-- A walk that began while recovering has removed nothing yet, even if recovery is over when it ends.
local ADDED, ADDS = 2, 3

local function is_walked_by_another()
  local m = G.walker ~= CALLER and member(G.walker)
  return m and m.status == 'active' and now < G.walk_until
end

local function walk()
  if FROM == '' then
    G.list_version, G.list_hash, G.list_done, G.walker = VERSION, HASH, G.recovering > 0 and ADDS or 0, CALLER
  elseif G.walker ~= CALLER or VERSION ~= G.list_version then
    return 'AGAIN'
  end
  local next = apply_page()
  G.walk_until = now + 2 * G.heartbeat_ms
  if next then return 'NEXT', next end
  G.walker, G.walk_until = '', 0
  if G.list_done == ADDS then
    G.list_done = ADDED
    return 'RECOVERING'
  end
  G.list_done = 1
  return 'DONE'
end

local status = admit()
if status == 'REPEAT' then
  recall()
  return reply('OK')
end
if status ~= 'OK' then return refusal(status) end
if VERSION < G.list_version then
  results[1] = 'IGNORED'
elseif VERSION == G.list_version and HASH ~= G.list_hash then
  results[1] = 'DISAGREE'
elseif VERSION == G.list_version and G.list_done == 1 then
  results[1] = 'CURRENT'
elseif VERSION == G.list_version and G.list_done == ADDED and G.recovering > 0 then
  results[1] = 'RECOVERING'
elseif VERSION == G.list_version and is_walked_by_another() then
  results[1] = 'WAIT'
else
  results[1], results[2] = walk()
end
remember()
return reply('OK')
