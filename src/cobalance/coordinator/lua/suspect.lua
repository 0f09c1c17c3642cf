-- suspect: somebody heard from the broker that a connection is gone, and perhaps the member's process. This looks whether the member shows a sign of life:
-- whether its listener is connected (which is asked to call, so a living process does that at once), and whether it has called since
-- an earlier look. A session ends early only if the member vouched, on this server, for this very connection, which a living process
-- takes back when it has lost it; and if it was silent at each look of a row whose pauses were short: in a long one, Redis or the
-- caller stood still, and perhaps the member.
--
-- KEYS     the group's keys (keys.py)
-- ARGV     1-8 as every verb (member "-"); 9 member, 10 its connection, 11 what the first look of the row saw ("" begins one), 12 when
--          the last look was, in group time (0 begins), 13 how many ms ago that may be for this look to end the session (0: it only looks)
-- Returns  as heartbeat; results: GONE (it is no member) | UNVOUCHED | RECOVERING | ALIVE | SILENT and what was seen | ENDED
--- @prelude

local wrong = malformed('wwtnn')
if wrong then return wrong end

local SUSPECT, CONNECTION, SEEN_BEFORE, LAST_LOOK, WITHIN = ARGV[9], ARGV[10], ARGV[11], tonumber(ARGV[12]), tonumber(ARGV[13])
local ASK = -1 -- where a hint has its version

-- Its vouch, if that is for this connection, on this server.
local function vouched()
  local vouch = call('HGET', STATE, 'v:' .. SUSPECT)
  local server, connection = string.match(vouch or '', '^%d+ (%S+) (%S+) %d+$')
  return IDENTITY ~= '' and IDENTITY == G.server and server == IDENTITY and connection == CONNECTION and vouch
end

local function look(m)
  if not is_live(m) then return 'GONE' end
  if G.recovering > 0 then return 'RECOVERING' end
  local vouch = vouched()
  if not vouch then return 'UNVOUCHED' end
  if heard_by(SUSPECT, ASK) ~= 0 then return 'ALIVE' end -- or nobody can tell
  local request, ends = vitals(SUSPECT)
  local seen = int(request) .. '/' .. int(ends) .. '/' .. vouch
  if SEEN_BEFORE ~= '' and seen ~= SEEN_BEFORE then return 'ALIVE' end
  return 'SILENT', seen
end

if ARGV[2] ~= PROTOCOL then return refuse('PROTOCOL') end
if G.incarnation == 0 then return refuse('UNKNOWN') end
local m = member(SUSPECT)
results[1], results[2] = look(m)
local is_last = results[1] == 'SILENT' and SEEN_BEFORE ~= '' and WITHIN > 0 and now - LAST_LOOK <= WITHIN
if not is_last then return refuse('OK') end
check_server()
end_session(m, 'crashed')
results[1], results[2] = 'ENDED', nil
return reply('OK')
