-- heartbeat: renews the session and brings what changed. Constant work when nothing changed: the part above the prelude.
--
-- KEYS     the group's keys (keys.py)
-- ARGV     1-8 as every verb (_prelude/90_request.lua); 9… resource, token, busy (1 or 0): progress since the last one
-- Returns  status, now, incarnation, version, cursor, session_ms, heartbeat_ms, due, elected (1 coordinator + 2 head), more, recovering_ms,
--          changes {hold, resource, token, how often in a row it was given up before, committed},
--          {revoke, resource, token, deadline, false} or {lost, resource, token, 0, false}, results {}
local id, sub = ARGV[3], string.sub
local s = redis.call('HMGET', KEYS[1], 'pulse', 'version', 'due', 'heard', 'r:' .. id, 'c:' .. id, 'k:' .. id)
local who = string.match(ARGV[1], '^[^/]*') .. ' ' .. ARGV[5] .. ' ' -- how the pulse begins
if s[1] and s[5] and #ARGV == 8 and ARGV[2] == '2' and sub(s[1], 1, #who) == who then
  local skew, session, beat, coordinator, heads = string.match(s[1], '^(%d+) (%d+) (%d+) (%S+) (.*)$', #who + 1)
  local version, due, seen, cursor = s[2], tonumber(s[3] or 0), ARGV[6], ARGV[7]
  local has_heard = version == seen and version == cursor -- as long as the group is quiet
    or (tonumber(version) or -1) >= tonumber(seen) and (tonumber(s[6] or 0) or 2^53) <= tonumber(cursor)
  if skew and due and tonumber(s[4]) and has_heard and (ARGV[8] == '' or ARGV[8] == (s[7] or '0')) then
    local time = redis.call('TIME')
    local at = time[1] .. sub('00000' .. time[2], -6, -4) -- in ms
    if skew ~= '0' then at = string.format('%.0f', at + skew) end
    local now, last, ends = at + 0, string.match(s[5], '^(%d+) (%d+)$')
    local silence = now - s[4]
    if silence >= 0 and silence <= session / 2 and now < due and due < 2^53 and version + 0 < 2^53 and last and ARGV[4] - last >= 0 then
      redis.call('HSET', KEYS[1], 'heard', at, 'r:' .. id, ARGV[4] .. ' ' .. math.max(now + session, ends + 0))
      version = version + 0
      local elected = coordinator == id and 1 or 0
      if heads ~= '' and string.find(heads, '=' .. id .. ' ', 1, true) then elected = elected + 2 end
      return {'OK', now, ARGV[5] + 0, version, version, session + 0, beat + 0, due, elected, 0, 0, {}, {}}
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
