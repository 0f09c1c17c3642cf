-- resume: an administrator's word that halted resources can be worked again.
--
-- KEYS     the group's keys (keys.py)
-- ARGV     1-8 as every verb (member "-"); 9 by whom, for the journal ("-" nobody says); 10… resources
-- Returns  as heartbeat; results: one a resource, OK | NOT_HALTED | UNKNOWN | NEXT (not looked at: ask again from there on)
--- @prelude

local wrong = malformed('w', 'w')
if wrong then return wrong end

local function answer(name)
  if G.budget <= 0 then return 'NEXT' end
  local r = resource(name)
  if not r then return 'UNKNOWN' end
  if r.status ~= 'halted' then return 'NOT_HALTED' end
  G.budget = G.budget - 1
  resume(r, ARGV[FIRST])
  return 'OK'
end

if ARGV[2] ~= PROTOCOL then return refuse('PROTOCOL') end
if G.incarnation == 0 then return refuse('UNKNOWN') end
check_server()
for i = FIRST + 1, #ARGV do results[#results + 1] = answer(ARGV[i]) end
return reply('OK')
