-- Who calls, whether we may answer, and the answer.
--
-- ARGV of every verb: 1 server identity (as the caller's connection learnt it; with ! in front, as it was read for this very
-- call; then / and the number of the database, unless that is 0), 2 protocol, 3 member, 4 request (an administrator, member "-",
-- says instead until when somebody waits for the answer; 0 is for ever), 5 highest incarnation the caller's process has heard of,
-- 6 highest version it has seen, 7 cursor (how far the member has heard its changes), 8 sum of the tokens it holds by then ("" not
-- said); the verb's own arguments follow.
local PROTOCOL = '2'
local CALLER, REQUEST = ARGV[3], tonumber(ARGV[4])
local KNOWN, SEEN, CURSOR = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local HELD = ARGV[8]
local FIRST = 9 -- of the verb's own arguments

local results = {}

local fits, malformed
do

local HEADER = 'wnhhno' -- the forms of the arguments of every verb, the first two aside

-- Forms of arguments: n a number, o one or nothing, h one that is counted on from, w a word, t any text. Lua counts exactly up to
-- 2^53: the former are below that, the latter below half of it, so that they can rise for as long again.
function fits(form, word)
  if form == 't' or (form == 'o' and word == '') then return true end
  if form == 'w' then return string.find(word, '^%S+$') ~= nil end
  local n = whole(word)
  return n ~= nil and (form ~= 'h' or abs(n) < SUM)
end

-- The error for arguments that are not of these forms, those of a group that repeats last. Every verb asks before it writes
-- anything: what it takes for a number and is not one would end it half-way.
function malformed(fixed, repeated)
  if ARGV[2] ~= PROTOCOL then return end
  repeated = repeated or ''
  local rest = #ARGV - FIRST + 1 - #fixed
  if rest < 0 or rest > 0 and (repeated == '' or rest % #repeated > 0) then
    return redis.error_reply('INVALID number of arguments, ' .. int(#ARGV))
  end
  for i = 3, #ARGV do
    local own = i - FIRST + 1
    local group, at = fixed, own
    if own <= 0 then group, at = HEADER, i - 2
    elseif own > #fixed then group, at = repeated, (own - #fixed - 1) % #repeated + 1 end
    local form = string.sub(group, at, at)
    if not fits(form, ARGV[i]) then return redis.error_reply('INVALID argument ' .. int(i) .. ', not of form ' .. form) end
  end
end

end

local start_incarnation, check_server
do

-- Another server may have all the data. It has, as far as anybody can tell, once everything on record was claimed as it stood, and
-- nobody had seen more.
local function doubt_offsets(older)
  local at = G.known_to > 0 and G.known_to or G.version
  G.known_to = (not older and G.offsets_known + G.known_to > 0) and at or 0
  save_owned()
  free.save()
  G.unclaimed = G.known_to > 0 and call('ZCARD', OWNED) + call('ZCARD', FREE) or 0
  G.offsets_known = 0
end

function start_incarnation(older)
  if G.recovering == 0 then call_all() end -- once: servers that are taken for each other would have it go on without an end
  G.incarnation = max(G.incarnation + 1, KNOWN + 1, real_us)
  G.began, G.recovering = now, now + G.session_ms
  doubt_offsets(older)
  G.version = max(G.version, SEEN)
  lists.forget_walks() -- claims may bring back what no list names any more: they are compared again
  set_timer('r', G.recovering)
  journal('incarnation', 'reason', saved.incarnation and 'recovering' or 'created')
end

-- The caller holds something else than it had on record when it was last sent everything, which it has received.
local function contradicts()
  if HELD == '' or REQUEST <= last_request(CALLER) then return false end
  local cursor, sum = string.match(call('HGET', STATE, 'h:' .. CALLER) or '', '^(%d+) (%d+)$')
  return cursor ~= nil and tonumber(cursor) <= CURSOR and sum ~= HELD
end

-- Redis was emptied, is older than what this caller has seen, or is another server: nobody's holdings are certain. A straggler
-- of an earlier incarnation proves no loss but that which is known already; the version only has to pass what it saw.
function check_server()
  local moved = IDENTITY ~= '' and G.server ~= '' and IDENTITY ~= G.server
  if IDENTITY ~= '' then G.server = IDENTITY end
  if G.incarnation == 0 then return end
  local older = KNOWN > G.incarnation or (KNOWN == G.incarnation and (G.version < SEEN or contradicts()))
  if KNOWN < G.incarnation and SEEN > G.known_to then G.known_to = 0 end
  if moved or older then
    start_incarnation(older)
  elseif G.version < SEEN then
    G.version = SEEN
    journal('incarnation', 'reason', 'seen')
  end
end

end

-- When the caller has no group to speak of, or speaks another protocol: nothing was or is written.
local function refuse(status)
  return {status, now, G.incarnation, 0, 0, 0, 0, 0, 0, 0, 0, {}, results}
end

-- Renewing is one field; the session's timer is only looked at when it fires. A session does not end earlier than was said before: if this
-- answer is lost, the caller goes by an earlier one, which may have named a longer session timeout.
local function renew(request)
  local _, ends = vitals(CALLER)
  G.lease = max(G.lease, ends)
  keep('r:' .. CALLER, int(request) .. ' ' .. int(max(ends, now + G.session_ms)))
end

local function elect()
  local m = member(CALLER)
  if m.status ~= 'active' then return end
  lists.elect(m)
  if G.coordinator == '' then
    G.coordinator = CALLER
    journal('coordinator', 'member', CALLER)
  end
end

-- Answers a member's request. Behind it, everything has been settled, the caller's changes are read and armed, the
-- others are notified, the scalars are saved.
local function reply(status, fresh)
  settle()
  local changes, cursor, more = {}, CURSOR, false
  local answered = fresh ~= false and is_live(member(CALLER))
  save_feed()
  if answered then
    changes, cursor, more = changes_for(CALLER, CURSOR)
    keep('h:' .. CALLER, more and '' or int(cursor) .. ' ' .. sum_of(CALLER))
  end
  save_loads()
  save_owned()
  free.save()
  save_resources()
  lists.save_dropped()
  notify(answered and CALLER)
  renew_expiry()
  G.due = next_due()
  wake_coordinator(answered and CALLER)
  save_classes()
  lists.save_subscriptions()
  save_expiry()
  save_group()
  return {
    status, now, G.incarnation, G.version, cursor, G.session_ms, G.heartbeat_ms, G.due,
    (G.coordinator == CALLER and 1 or 0) + (lists.is_head(CALLER) and 2 or 0), (more or G.due <= now) and 1 or 0,
    max(G.recovering - now, 0), changes, results,
  }
end

-- 'OK' or 'REPEAT' when the request may be served; else why not.
local function admit()
  if ARGV[2] ~= PROTOCOL then return 'PROTOCOL' end
  if G.incarnation == 0 then return SEEN > 0 and 'REJOIN' or 'UNKNOWN' end
  check_server()
  if KNOWN ~= G.incarnation then return 'REJOIN' end
  if now >= G.due then settle() end
  local m = member(CALLER)
  if not m then
    G.is_gone = last_request(CALLER) >= 0
    return 'UNKNOWN'
  end
  if not is_live(m) then return 'ENDED' end
  local last = last_request(CALLER)
  if REQUEST < last then return 'STALE' end
  renew(REQUEST)
  elect()
  return REQUEST == last and 'REPEAT' or 'OK'
end

-- Refusals still save what was settled on the way.
local function refusal(status)
  if G.incarnation == 0 or status == 'PROTOCOL' then return refuse(status) end
  return reply(status, false)
end

-- A repeat gets the results of the first time; they are kept only where they cannot be derived.
local function remember() keep('a:' .. CALLER, table.concat(results, ' ')) end

local function recall()
  for word in string.gmatch(call('HGET', STATE, 'a:' .. CALLER) or '', '%S+') do results[#results + 1] = word end
end

load_group()
-- An administrator's call has no number by which its repeat is known. A copy that comes late would undo what was done since.
if CALLER == '-' and REQUEST > 0 and now > REQUEST then return refuse('LATE') end
-- A server may become another one under an open connection (demoted, overwritten, promoted): a caller that contradicts the group looks
-- again before it is believed, or old and new connections would start incarnations in turn.
-- So does a caller that contradicts a repair, which would start over with each of them.
do
  local repairing = string.match(G.pulse, '^%l+ %d %d+ (%S+)$') or G.server
  local contradicts = G.server ~= '' and IDENTITY ~= G.server or repairing ~= '' and IDENTITY ~= repairing
  if contradicts and IDENTITY ~= '' and string.sub(ARGV[1], 1, 1) ~= '!' then return redis.error_reply('IDENTITY read INFO again') end
end
G.budget, G.lease = G.moves, 0 -- the latter: until when the caller may work what it has, if it never hears this answer
local repaired
if ARGV[2] == PROTOCOL then repaired = go_on_repairing() end
if repaired == false then return refuse('REPAIRING') end
