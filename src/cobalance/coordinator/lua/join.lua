-- join: makes a member, or one more page of its claims. The first one makes the group: an empty Redis cannot tell a new
-- group from a lost one, so it recovers for one session timeout first (unless `configure` created it). Who is out there is called, and
-- brings the settings of before and the length of its lease.
--
-- KEYS     the group's keys (keys.py)
-- ARGV     1-8 as every verb; 9 highest token ever seen, 10 capacity, 11 instance id ("-" none), 12 previous member id of the
--          same process ("-" none), 13 label, 14 more | last (page of claims), 15 mode, 16 session_ms, 17 heartbeat_ms,
--          18 revocation_ms, 19 grace_ms, 20 gather_ms, 21 moves, 22 journal_length, 23 idle_ms (used when the group has no
--          settings yet), 24 subscription; 25… three a claim: resource, token, committed offset ("" none)
-- Returns  as heartbeat; results: one a claim, KEPT | LOST. Status INSTANCE_IN_USE: retry until the other's session has ended,
--          which results has, then the other's id; REJOIN: the pages before this one were lost, start over under another id;
--          SUBSCRIPTIONS: there are too many different ones

-- The connection may be older than a rollback: a new member hears again which server it talks to.
if ARGV[4] == '1' and string.find(ARGV[1], '^[^!/]') then
  return redis.error_reply('IDENTITY read INFO again')
end

--- @prelude

local wrong = malformed('hnwwwwwnnnnnnnnw', 'who')
if wrong then return wrong end

local CAPACITY, INSTANCE, PREVIOUS = tonumber(ARGV[10]), ARGV[11], ARGV[12]
local LABEL, PAGE, SUBSCRIPTION = ARGV[13], ARGV[14], ARGV[24]

local settings = {} -- that the caller brings
do

local SETTINGS = {
  'mode', 'session_ms', 'heartbeat_ms', 'revocation_ms', 'grace_ms', 'gather_ms', 'moves', 'journal_length', 'idle_ms',
}
local SETTINGS_AT = 14 -- before the first of them

function settings.take()
  G.mode = ARGV[SETTINGS_AT + 1]
  for i = 2, #SETTINGS do G[SETTINGS[i]] = tonumber(ARGV[SETTINGS_AT + i]) end
  G.budget = G.moves
end

function settings.journal()
  local words = {}
  for i = 1, #SETTINGS do words[i] = SETTINGS[i] .. ' ' .. ARGV[SETTINGS_AT + i] end
  journal('configured', 'reason', table.concat(words, ' '))
end

-- Of a group that recovers: a process that was a member before knows its settings better than one that is new to it, and leases
-- of that length may run.
function settings.bring()
  if G.recovering == 0 or PREVIOUS == '-' then return end
  if G.guessed == 1 and not member(PREVIOUS) then
    settings.take()
    settings.journal()
    G.guessed = 0
  end
  G.recovering = max(G.recovering, G.began + tonumber(ARGV[16]))
  set_timer('r', G.recovering)
end

end

local namesake
do

-- After a loss of data, the recorded owner of an instance id may be stale: a process whose former id the data do not know had it
-- later. The recorded one, or a newcomer that was quicker, gives way to it, unless that one has come back with claims.
local function gives_way(m)
  if G.recovering == 0 or PREVIOUS == '-' or PREVIOUS == m.id or member(PREVIOUS) then return false end
  return m.incarnation ~= G.incarnation or #lowest_owned(m.id, ' ', '!', 1) == 0
end

-- The member now known under this process's instance id, if its session or grace still runs.
function namesake()
  local id = INSTANCE ~= '-' and call('HGET', MEMBERS, '=' .. INSTANCE)
  if not id or id == CALLER then return nil end
  local m = member(id)
  if not m then G.is_gone = true end -- the next call repairs
  if is_live(m) and gives_way(m) then
    end_member(m, 'left', 'displaced')
    m = member(call('HGET', MEMBERS, '=' .. INSTANCE) or '') -- the one that it was to inherit from
  end
  if m and m.status ~= 'dead' and m.status ~= 'ended' then return m end
end

end

-- All claims are in: what the process's former self still has is freed, or inherited where the instance id is kept.
local function succeed(m)
  local previous, same = member(PREVIOUS), member(m.reason)
  if previous and previous == same and previous.status == 'active' and G.grace_ms > 0 then
    enter_grace(previous, 'replaced')
  elseif previous and (previous ~= same or is_live(previous)) then
    end_member(previous, 'left', 'replaced')
  end
  local seen = {} -- whatever records say, this ends
  while same and same.status == 'graced' and not seen[same.id] do
    seen[same.id] = true
    set_timer('h:' .. same.id, now)
    same = member(same.reason) -- whose heir that one was, but went before it could inherit
  end
end

local function add_member(same)
  local m = {
    id = CALLER, status = 'active', capacity = CAPACITY, instance = INSTANCE, joined = now,
    incarnation = G.incarnation, request = -1, reason = same and same.id or '-', label = LABEL,
    subscription = SUBSCRIPTION,
  }
  journal('joined', 'member', CALLER, 'reason', PREVIOUS, 'label', LABEL, 'instance', INSTANCE, 'capacity', int(CAPACITY))
  put_member(m)
  if PREVIOUS ~= '-' and not member(PREVIOUS) then -- its record is gone
    forget_request(PREVIOUS)
    call('ZREMRANGEBYLEX', FEED, '[' .. PREVIOUS .. ' ', '(' .. PREVIOUS .. '!')
  end
  if INSTANCE ~= '-' then call('HSET', MEMBERS, '=' .. INSTANCE, CALLER) end
  enter_shares(m)
  set_timer('s:' .. CALLER, now + G.session_ms)
  return m
end

local take_claims
do

local CLAIMS = 25 -- where they begin

local function has_returned(id)
  local m = member(id)
  return m ~= nil and m.incarnation == G.incarnation
end

-- A claim continues what the same process held before. While recovering the highest token wins, and an equal one is as
-- good as long as the one on record has not come back.
local function acceptable(r, token)
  if r.token == token and r.status ~= 'free' and (r.owner == CALLER or r.owner == PREVIOUS) then return true end
  if G.recovering == 0 then return false end
  return token > r.token or (token == r.token and not has_returned(r.owner))
end

-- Rejoining does not extend a drain's deadline.
local function go_on_by(r, deadline, postponed)
  r.deadline, r.postponed = deadline, postponed
  if deadline > 0 then call('ZADD', DEADLINES, int(deadline), r.name) end
end

local function claim(name, token, offset)
  local r = resource(name)
  if not r and G.recovering > 0 then r = new_resource(name) end
  if not r or not acceptable(r, token) then
    journal('refused', 'resource', name, 'member', CALLER, 'token', int(token), 'reason', 'claim')
    return 'LOST'
  end
  if r.owner == CALLER and r.token == token then return 'KEPT' end
  local loser, stale, was_held = r.owner, r.token < token, r.token > 0
  local asked_back, deadline, postponed = r.status == 'pending' and G.recovering == 0, r.deadline, r.postponed
  G.budget = G.budget - 1
  detach(r)
  r.token = token
  if r.removing and G.recovering > 0 then -- nothing is removed now; the list, compared again afterwards, decides
    r.removing = false
    count_total(1)
  end
  attach(r, member(CALLER), 'held')
  -- A later tenure may begin at a lower offset, if somebody reset it. Where none is on record, nobody can say which is later.
  if offset ~= '' and (stale and was_held or tonumber(offset) > tonumber(offset_of(name) or '-3')) then
    offsets.put(name, offset)
  end
  G.token = max(G.token, token)
  journal('claimed', 'resource', name, 'member', CALLER, 'token', int(token), 'committed', offset)
  if stale then G.known_to = 0 end
  if G.known_to > 0 and not has_returned(loser) then G.unclaimed = G.unclaimed - 1 end
  if loser ~= '-' then tell(loser, name) end
  local is_foreign = G.recovering == 0 and not lists.common() and lists.is_known(SUBSCRIPTION)
    and not lists.can_work(member(CALLER), name)
  if not (r.removing or asked_back or is_foreign) then
    tell(CALLER, name)
  else
    revoke(r)
    if asked_back then go_on_by(r, deadline, postponed) end
  end
  return 'KEPT'
end

function take_claims()
  local names = {}
  for i = CLAIMS, #ARGV, 3 do names[#names + 1] = ARGV[i] end
  fetch_resources(names)
  for i = CLAIMS, #ARGV, 3 do
    results[#results + 1] = claim(ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2])
  end
end

end

if ARGV[2] ~= PROTOCOL then return refuse('PROTOCOL') end
if G.incarnation == 0 then
  G.is_gone = clear_remains()
  if IDENTITY ~= '' then G.server = IDENTITY end
  settings.take()
  G.guessed = PREVIOUS == '-' and 1 or 0
  start_incarnation()
  settings.journal()
else
  check_server()
end
if REQUEST > 1 and KNOWN ~= G.incarnation then return refusal('REJOIN') end -- the pages before this one are lost
settings.bring()
if now >= G.due then settle() end
G.token = max(G.token, tonumber(ARGV[9])) -- above the highest that the process has seen
local m = member(CALLER)
if m and not is_live(m) then return refusal('ENDED') end
if m and REQUEST < last_request(CALLER) then return refusal('STALE') end
local same = namesake()
if is_live(same) and same.id ~= PREVIOUS then
  local _, ends = vitals(same.id)
  results[1], results[2] = int(ends), same.id
  return refusal('INSTANCE_IN_USE')
end
if not m and lists.has_no_room_for(SUBSCRIPTION) then return refusal('SUBSCRIPTIONS') end
if not m then m = add_member(same) end
renew(REQUEST)
elect()
take_claims()
if PAGE == 'last' then succeed(m) end
return reply('OK')
