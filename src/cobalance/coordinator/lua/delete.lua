-- delete: an administrator has Redis forget a group, its offsets and its journal. By force, members do not keep it from that: to
-- them it is a loss of data. Each member that listens is asked to call, joins again with what it holds, and the group recovers, so that
-- nobody is given what somebody else works.
--
-- KEYS     the group's keys (keys.py)
-- ARGV     1-8 as every verb (member "-"); 9 gently | by_force
-- Returns  as heartbeat; results: OK | ACTIVE (somebody is a member, or kept for the rejoin grace) | RECOVERING | HEARD (nobody
--          is a member, but somebody listens)
--- @prelude

local wrong = malformed('w')
if wrong then return wrong end

local function obstacle()
  if ARGV[FIRST] == 'by_force' then return end
  if G.recovering > 0 then return 'RECOVERING' end
  save_owned()
  if tonumber(call('ZCARD', LOAD)) + tonumber(call('ZCARD', OWNED)) > 0 then return 'ACTIVE' end
  if call_all() > 0 then return 'HEARD' end
end

if ARGV[2] ~= PROTOCOL then return refuse('PROTOCOL') end
if G.incarnation == 0 then return refuse('UNKNOWN') end
check_server()
settle()
results[1] = obstacle()
if results[1] then return reply('OK') end
redis.call('UNLINK', unpack(KEYS))
call_all()
local answer = refuse('OK')
answer[13] = {'OK'}
return answer
