-- leave: gracefully. Everything becomes pending, is drained and handed over; called again when nothing is held, it ends the
-- member. With "remain" (an instance id, everything drained by the caller) what is held is kept for the rejoin grace.
--
-- KEYS     the group's keys (keys.py)
-- ARGV     1-8 as every verb; 9 leave | remain
-- Returns  as heartbeat; results: LEFT | DRAINING
--- @prelude

local wrong = malformed('w')
if wrong then return wrong end

local function holds_nothing() return #lowest_owned(CALLER, ' ', '!', 1) == 0 end

if ARGV[2] ~= PROTOCOL then return refuse('PROTOCOL') end
-- The reply to the leave that ended it was lost. It knows less than those who stay, so it hears that and nothing more: whether this
-- server has their data is for them to find out, before anything is settled here.
local gone = member(CALLER)
if gone and not is_live(gone) and gone.request == REQUEST then
  results[1] = 'LEFT'
  return refuse('OK')
end
local status = admit()
if status ~= 'OK' and status ~= 'REPEAT' then return refusal(status) end
local m = member(CALLER)
if ARGV[FIRST] == 'remain' and m.instance ~= '-' and G.grace_ms > 0 and m.status == 'active' then
  enter_grace(m, 'left')
  results[1] = 'LEFT'
  return reply('OK')
end
if m.status == 'active' then
  journal('leaving', 'member', CALLER)
  reclass(m, function(it) it.status = 'leaving' end)
  put_member(m)
  unelect(CALLER)
  settle()
end
if holds_nothing() then
  end_member(m, 'left', 'left')
  results[1] = 'LEFT'
else
  results[1] = 'DRAINING'
end
return reply('OK')
