-- commit: stores offsets that outlive their tenure. Only the current token of the current member may, and none falls.
--
-- KEYS     the group's keys (keys.py)
-- ARGV     1-8 as every verb; 9… three a resource: resource, token, offset (-1 is before the first, -2 before it is known which is)
-- Returns  as heartbeat; results: one a resource, OK | FENCED | REGRESSED
--- @prelude

local wrong = malformed('', 'wnn')
if wrong then return wrong end

local function commit(name, token, offset)
  local r = resource(name)
  local verdict = 'OK'
  if not r or r.owner ~= CALLER or int(r.token) ~= token then
    verdict = 'FENCED'
  elseif tonumber(offset) < tonumber(offset_of(name) or '-2') then
    verdict = 'REGRESSED'
  else
    offsets.put(name, offset)
  end
  if verdict ~= 'OK' then
    journal('refused', 'resource', name, 'member', CALLER, 'token', token, 'reason', 'commit ' .. verdict)
  end
  return verdict
end

local status = admit()
if status == 'REPEAT' then
  recall()
  return reply('OK')
end
if status ~= 'OK' then return refusal(status) end
for i = FIRST, #ARGV, 3 do results[#results + 1] = commit(ARGV[i], ARGV[i + 1], ARGV[i + 2]) end
remember()
return reply('OK')
