-- tick: settles what is due, for any caller: the elected coordinator at the next deadline, or an administrator.
--
-- KEYS     the group's keys (keys.py)
-- ARGV     1-8 as every verb; a member "-" is nobody in particular
-- Returns  as heartbeat
--- @prelude

local wrong = malformed('')
if wrong then return wrong end
if CALLER ~= '-' then
  local status = admit()
  if status ~= 'OK' and status ~= 'REPEAT' then return refusal(status) end
  return reply('OK')
end
if ARGV[2] ~= PROTOCOL then return refuse('PROTOCOL') end
if G.incarnation == 0 then return refuse('UNKNOWN') end
check_server()
return reply('OK')
