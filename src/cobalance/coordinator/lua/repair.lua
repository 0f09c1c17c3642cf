-- repair: an administrator has everything that is derived rebuilt from the records; what a script left that died is mended
-- without being asked.
--
-- KEYS     the group's keys (keys.py)
-- ARGV     1-8 as every verb (member "-")
-- Returns  as heartbeat. Status REPAIRING, of any verb: call again, it goes on page by page (this one would start over: use tick)
--- @prelude

local wrong = malformed('')
if wrong then return wrong end
if ARGV[2] ~= PROTOCOL then return refuse('PROTOCOL') end
if G.incarnation == 0 then return refuse('UNKNOWN') end
if not repaired and not repair('asked', 0, '0') then return refuse('REPAIRING') end
check_server()
return reply('OK')
