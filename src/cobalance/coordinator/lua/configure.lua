-- configure: an administrator's settings, for everybody at once; or a group that is known to be new ("create"), which then
-- needs no recovery. Validated by settings.py before it comes here, and where settings depend on each other once more: others may
-- have changed since.
--
-- KEYS     the group's keys (keys.py)
-- ARGV     1-8 as every verb (member "-"); 9 create | update; 10 by whom, for the journal ("-" nobody says); 11… pairs:
--          setting, value
-- Returns  as heartbeat; results: OK | EXISTS | HEARD (somebody listens: it is not new) | INVALID setting
--- @prelude

local wrong = malformed('ww', 'ww')
if wrong then return wrong end

local CHANGED = -3 -- where a hint has its version: members read the settings again

local SETTABLE = {
  mode = true, session_ms = true, heartbeat_ms = true, revocation_ms = true, grace_ms = true, gather_ms = true,
  moves = true, journal_length = true, idle_ms = true, offsets_known = true,
}

local function staged()
  local values = {}
  for i = FIRST + 2, #ARGV, 2 do
    if not SETTABLE[ARGV[i]] then return nil, ARGV[i] end
    local is_mode = ARGV[i] == 'mode'
    if not fits(is_mode and 'w' or 'n', ARGV[i + 1]) then return nil, ARGV[i] end
    values[ARGV[i]] = is_mode and ARGV[i + 1] or tonumber(ARGV[i + 1])
  end
  local session, revocation = values.session_ms or G.session_ms, values.revocation_ms or G.revocation_ms
  if revocation < session then return nil, 'revocation_ms' end
  if (values.heartbeat_ms or G.heartbeat_ms) * 3 > session then return nil, 'heartbeat_ms' end
  return values
end

if ARGV[2] ~= PROTOCOL then return refuse('PROTOCOL') end
local creating = ARGV[FIRST] == 'create'
if G.incarnation == 0 and not creating then return refuse('UNKNOWN') end
local values, invalid = staged()
if not values then
  results[1], results[2] = 'INVALID', invalid
elseif G.incarnation > 0 and creating then
  results[1] = 'EXISTS'
elseif creating and call_all() > 0 then
  results[1] = 'HEARD'
end
if results[1] and G.incarnation == 0 then return refuse('OK') end -- a reply would write what there is of the group
if not results[1] then
  if creating then G.is_gone = clear_remains() end
  check_server()
  for i = FIRST + 2, #ARGV, 2 do G[ARGV[i]] = values[ARGV[i]] end
  G.budget, G.ceilings = G.moves, 0
  if values.idle_ms then G.expires = 0 end
  if creating then
    G.incarnation, G.offsets_known = real_us, 1
    journal('incarnation', 'reason', 'created')
  end
  journal('configured', 'reason', table.concat(ARGV, ' ', FIRST + 2), 'by', ARGV[FIRST + 1])
  if not creating then publish('-', CHANGED) end
  results[1] = 'OK'
end
return reply('OK')
