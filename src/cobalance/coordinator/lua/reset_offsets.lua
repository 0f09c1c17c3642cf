-- reset_offsets: an administrator moves committed offsets, downwards too, in a group that nobody is a member of; those of halted
-- resources at any time. Absolute values, so repeating it is harmless. The tokens of the resources rise: whoever held one before
-- can neither commit nor claim.
--
-- KEYS     the group's keys (keys.py)
-- ARGV     1-8 as every verb (member "-"); 9… two a resource: resource, offset (-1 is before the first)
-- Returns  as heartbeat; results: OK | ACTIVE (somebody is a member, or kept for the rejoin grace) | RECOVERING
--- @prelude

local wrong = malformed('', 'wn')
if wrong then return wrong end
-- Whether nobody works any of them, or may believe so.
local function all_idle()
  save_owned()
  if tonumber(call('ZCARD', LOAD)) + tonumber(call('ZCARD', OWNED)) == 0 then return true end
  for i = FIRST, #ARGV, 2 do
    local r = resource(ARGV[i])
    if not r or r.status ~= 'halted' then return false end
  end
  return true
end

local function reset(name, offset)
  local r, before = resource(name), offset_of(name)
  if r then
    r.token = next_token()
    put_resource(r)
  else
    set_timer('o:' .. name, now + OFFSET_RETENTION_MS)
  end
  call('HSET', OFFSETS, name, offset)
  journal('reset', 'resource', name, 'token', int(r and r.token or 0), 'committed', offset, 'reason', 'was ' .. (before or '-'))
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
  for i = FIRST, #ARGV, 2 do reset(ARGV[i], ARGV[i + 1]) end
  results[1] = 'OK'
end
return reply('OK')
