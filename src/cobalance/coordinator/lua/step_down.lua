-- step_down: the head of a subscription cannot look for what is on its list. The next of the subscription to call is elected: another
-- one, or the same once more. It renews no session and settles nothing.
--
-- KEYS     the group's keys (keys.py)
-- ARGV     1-8 as every verb
-- Returns  as heartbeat, without changes
--- @prelude

local wrong = malformed('')
if wrong then return wrong end

if ARGV[2] ~= PROTOCOL then return refuse('PROTOCOL') end
if G.incarnation == 0 then return refuse('UNKNOWN') end
if is_live(member(CALLER)) and lists.is_head(CALLER) then
  lists.unelect(CALLER)
  redis.call('HSET', STATE, 'heads', G.heads, 'pulse', '') -- one write, which leaves no halves; every heartbeat settles now
end
return refuse('OK')
