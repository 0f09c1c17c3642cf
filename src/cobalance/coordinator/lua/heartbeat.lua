-- heartbeat: renews the session and brings what changed. Constant work when nothing changed: the part above the prelude.
--
-- KEYS     the group's keys (keys.py)
-- ARGV     1-8 as every verb (_prelude/90_request.lua); 9… resource, token, busy (1 or 0): progress since the last one
-- Returns  status, now, incarnation, version, cursor, session_ms, heartbeat_ms, due, elected (1 coordinator + 2 head), more, recovering_ms,
--          changes {hold|revoke|lost, resource, token, deadline, committed}, results {}
local id = ARGV[3]
local s = redis.call('HMGET', KEYS[1], 'pulse', 'version', 'due', 'heard', 'r:' .. id, 'c:' .. id, 'k:' .. id)
if s[1] and s[5] and #ARGV == 8 and ARGV[2] == '1' then
  local server, incarnation, skew, session, beat, coordinator, heads =
    string.match(s[1], '^(%S*) (%S+) (%S+) (%S+) (%S+) (%S+) (.*)$')
  if server == ARGV[1] and incarnation == ARGV[5] then
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000) + skew
    local silence, version, last = now - s[4], tonumber(s[2]), string.match(s[5], '^%d+')
    local agrees = ARGV[8] == '' or ARGV[8] == (s[7] or '0')
    if silence >= 0 and silence <= session / 2 and now < tonumber(s[3] or 0) and tonumber(ARGV[4]) >= tonumber(last)
      and version >= tonumber(ARGV[6]) and tonumber(s[6] or 0) <= tonumber(ARGV[7]) and agrees then
      redis.call('HSET', KEYS[1], 'heard', now, 'r:' .. id, ARGV[4] .. ' ' .. now + session)
      return {'OK', now, tonumber(incarnation), version, version, tonumber(session), tonumber(beat), tonumber(s[3]),
        (coordinator == id and 1 or 0) + (string.find(heads, '=' .. id .. ' ', 1, true) and 2 or 0), 0, 0, {}, {}}
    end
  end
end

--- @prelude

local wrong = malformed('', 'wnn')
if wrong then return wrong end
local status = admit()
if status ~= 'OK' and status ~= 'REPEAT' then return refusal(status) end
for i = FIRST, #ARGV, 3 do
  local r = resource(ARGV[i])
  local rank = ARGV[i + 2] == '1' and '1' or '2'
  if r and r.owner == CALLER and int(r.token) == ARGV[i + 1] and r.rank ~= '0' and r.rank ~= rank then
    if r.status ~= 'pending' then leave_owned(r) end
    r.rank = rank
    put_resource(r)
    if r.status ~= 'pending' then enter_owned(r) end
  end
end
return reply('OK')
