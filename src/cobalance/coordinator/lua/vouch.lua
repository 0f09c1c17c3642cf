-- vouch: a member says that a broker guards whatever it holds for as long as one connection lasts, so that its session may end
-- early once it is seen to be dead (suspect.lua); or that this is not so, as it has lost that connection. It counts only where its
-- listener hears this server: one that hears another server, such as the master of before, would look dead here. It renews no
-- session and settles nothing. Its requests are numbered on their own: a late copy of one does not undo what was said after it.
--
-- KEYS     the group's keys (keys.py)
-- ARGV     1-8 as every verb, of which 4 counts only these; 9 the connection, "-" none
-- Returns  as heartbeat, without changes; results: VOUCHED | UNGUARDED | UNHEARD (nobody listens on its channel here, or nobody
--          knows which server this is) | LATE (it has said something since) | GONE
--- @prelude

local wrong = malformed('w')
if wrong then return wrong end

local PRESENT = -4 -- where a hint has its version: only counts who listens

local function vouch()
  if not is_live(member(CALLER)) then return 'GONE' end
  if REQUEST < (tonumber(string.match(call('HGET', STATE, 'v:' .. CALLER) or '', '%d+$')) or 0) then return 'LATE' end
  if ARGV[FIRST] == '-' then return 'UNGUARDED' end
  if IDENTITY == '' or IDENTITY ~= G.server or (heard_by(CALLER, PRESENT) or 0) == 0 then return 'UNHEARD' end
  return 'VOUCHED'
end

if ARGV[2] ~= PROTOCOL then return refuse('PROTOCOL') end
if G.incarnation == 0 then return refuse('UNKNOWN') end
results[1] = vouch()
-- One write, which leaves no halves.
if results[1] == 'VOUCHED' then
  redis.call('HSET', STATE, 'v:' .. CALLER, int(now) .. ' ' .. IDENTITY .. ' ' .. ARGV[FIRST] .. ' ' .. int(REQUEST))
elseif results[1] == 'UNGUARDED' or results[1] == 'UNHEARD' then
  redis.call('HSET', STATE, 'v:' .. CALLER, int(now) .. ' - - ' .. int(REQUEST))
end
return refuse('OK')
