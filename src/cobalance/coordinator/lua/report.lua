-- report: what members have in flight, for people. A question goes to all of them, and each answers. Nothing depends on it: it
-- renews no session and settles nothing, and an answer that is lost leaves something unknown.
--
-- KEYS     the group's keys (keys.py)
-- ARGV     1-8 as every verb (member "-" asks); 9 ask | tell, 10 what the member tells (in_flight.py), "" asks
-- Returns  as heartbeat, without changes
--- @prelude

local wrong = malformed('wt')
if wrong then return wrong end

local ASKED = -2 -- where a hint has its version

if ARGV[2] ~= PROTOCOL then return refuse('PROTOCOL') end
if G.incarnation == 0 then return refuse('UNKNOWN') end
if ARGV[FIRST] == 'ask' then
  publish('-', ASKED)
elseif is_live(member(CALLER)) then
  redis.call('HSET', STATE, 'w:' .. CALLER, int(now) .. ' ' .. ARGV[FIRST + 1]) -- one write, which leaves no halves
end
return refuse('OK')
