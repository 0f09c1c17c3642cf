-- heartbeat: renews the session and brings what changed. Constant work when nothing changed: the part above the prelude.
--
-- KEYS     the group's keys (keys.py)
-- ARGV     1-7 as every verb (_prelude/90_request.lua); 8… resource, token, busy (1 or 0): progress since the last one
-- Returns  status, now, incarnation, version, cursor, session_ms, heartbeat_ms, due, coordinator, more, recovering_ms,
--          changes {hold|revoke|lost, resource, token, deadline, committed}, results {}
local id = ARGV[3]
local s = redis.call('HMGET', KEYS[1], 'server', 'incarnation', 'version', 'due', 'heard', 'skew', 'session_ms',
  'heartbeat_ms', 'coordinator', 'r:' .. id, 'c:' .. id, 'recovering')
if s[10] and (s[12] or '0') == '0' and #ARGV == 7 and ARGV[2] == '1' and (s[1] or '') == ARGV[1] and s[2] == ARGV[5] then
  local time = redis.call('TIME')
  local heard = tonumber(s[5])
  local now = time[1] * 1000 + math.floor(time[2] / 1000) + (s[6] or 0)
  local request, version = tonumber(ARGV[4]), tonumber(s[3])
  if now >= heard and now - heard <= 2 * tonumber(s[8]) and now < tonumber(s[4] or 0) and request >= tonumber(s[10])
    and s[9] and s[9] ~= '' and version >= tonumber(ARGV[6]) and tonumber(s[11] or '0') <= tonumber(ARGV[7]) then
    local fmt = string.format
    redis.call('HSET', KEYS[1], 'heard', fmt('%.0f', now), 'r:' .. id, ARGV[4],
      'x:' .. id, fmt('%.0f', now + tonumber(s[7])))
    return {'OK', now, tonumber(s[2]), version, version, tonumber(s[7]), tonumber(s[8]), tonumber(s[4]),
      s[9] == id and 1 or 0, 0, 0, {}, {}}
  end
end

--- @prelude

local status = admit()
if status ~= 'OK' and status ~= 'REPEAT' then return refusal(status) end
for i = FIRST, #ARGV, 3 do
  local r = resource(ARGV[i])
  local rank = ARGV[i + 2] == '1' and '1' or '2'
  if r and r.owner == CALLER and int(r.token) == ARGV[i + 1] and r.rank ~= '0' and r.rank ~= rank then
    if r.status ~= 'pending' then call('ZREM', OWNED, owned_entry(r)) end
    r.rank = rank
    put_resource(r)
    if r.status ~= 'pending' then call('ZADD', OWNED, '0', owned_entry(r)) end
  end
end
return reply('OK')
