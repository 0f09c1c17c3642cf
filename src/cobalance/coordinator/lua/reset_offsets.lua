-- reset_offsets: an administrator moves committed offsets, downwards too, in a group that nobody is a member of; those of halted
-- resources at any time. The tokens of the resources rise: a member that held one before
-- can neither commit nor claim. What was halted is resumed: it was halted over its offset, or the one who moves that has seen why.
--
-- KEYS     the group's keys (keys.py)
-- ARGV     1-8 as every verb (member "-"); 9 by whom, for the journal ("-" nobody says); 10… two a resource: resource,
--          offset (-1 is before the first)
-- Returns  as heartbeat; results: ACTIVE (somebody is a member, or kept for the rejoin grace) | RECOVERING, or one a resource:
--          OK | RESUMED (it was halted)
--- @prelude

local wrong = malformed('w', 'wn')
if wrong then return wrong end
-- Whether nobody works any of them, or may believe so.
local function all_idle()
  save_owned()
  if tonumber(call('ZCARD', LOAD)) + tonumber(call('ZCARD', OWNED)) == 0 then return true end
  for i = FIRST + 1, #ARGV, 2 do
    local r = resource(ARGV[i])
    if not r or r.status ~= 'halted' then return false end
  end
  return true
end

local function reset(name, offset)
  local r, before = resource(name), offset_of(name)
  local is_halted = call('HDEL', STATE, 'z:' .. name) == 1 or (r and r.status == 'halted')
  if r then
    r.token = next_token()
    if r.status == 'halted' then resume(r, ARGV[FIRST]) else put_resource(r) end
  else
    set_timer('o:' .. name, now + OFFSET_RETENTION_MS)
  end
  offsets.put(name, offset)
  journal('reset', 'resource', name, 'token', int(r and r.token or 0), 'committed', offset, 'reason', 'was ' .. (before or '-'),
    'by', ARGV[FIRST])
  return is_halted and 'RESUMED' or 'OK'
end

if ARGV[2] ~= PROTOCOL then return refuse('PROTOCOL') end
if G.incarnation == 0 then return refuse('UNKNOWN') end
check_server()
settle()
if G.recovering > 0 then
  results[1] = 'RECOVERING'
elseif not all_idle() then
  results[1] = 'ACTIVE'
else
  for i = FIRST + 1, #ARGV, 2 do results[#results + 1] = reset(ARGV[i], ARGV[i + 1]) end
end
return reply('OK')
