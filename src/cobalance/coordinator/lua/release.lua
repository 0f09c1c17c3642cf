-- release: commits and frees, in one step. Refused while something delivered is not committed (design: handover).
--
-- KEYS     the group's keys (keys.py)
-- ARGV     1-7 as every verb; 8… seven a resource: resource, token, delivered, committed (counts of this tenure, or
--          positions), offset to commit for good ("" keeps the stored one), reason ("" is a finished drain, anything
--          else abandons the resource: the token rises and, but for "fenced", the giver is avoided for a while;
--          "halted:" and a word keeps it from everybody, until it is resumed), effort (handled/busy_ms/late_ms for the
--          journal, or "")
-- Returns  as heartbeat; results: one a resource, OK | FENCED | UNCOMMITTED | REGRESSED
--- @prelude

local wrong = malformed('', 'wnnnott')
if wrong then return wrong end
local AVOID_SESSIONS = 3

local function check(r, token, delivered, committed, offset, reason)
  if not r or r.owner ~= CALLER or int(r.token) ~= token then return 'FENCED' end
  if reason == '' and tonumber(delivered) > tonumber(committed) then return 'UNCOMMITTED' end
  if offset ~= '' and tonumber(offset) < tonumber(call('HGET', OFFSETS, r.name) or '-1') then return 'REGRESSED' end
  return 'OK'
end

local function give_up(r, reason, effort)
  end_tenure(r, 'abandoned', reason, effort)
  r.token = next_token()
  if string.match(reason, '^halted:%S+$') and not r.removing then return halt(r, reason) end
  if reason == 'fenced' then return put_resource(r) end -- cut off from Redis, nothing wrong with the giver
  r.avoid = CALLER .. '@' .. int(now + AVOID_SESSIONS * G.session_ms)
  put_resource(r)
  set_timer('a:' .. r.name, now + AVOID_SESSIONS * G.session_ms)
end

local function release(name, token, delivered, committed, offset, reason, effort)
  local r = resource(name)
  local verdict = check(r, token, delivered, committed, offset, reason)
  if verdict ~= 'OK' then
    journal('refused', 'resource', name, 'member', CALLER, 'token', token, 'reason', 'release ' .. verdict)
    return verdict
  end
  if offset ~= '' then call('HSET', OFFSETS, name, offset) end
  G.budget = G.budget - 1
  if reason == '' then end_tenure(r, 'released', '', effort) else give_up(r, reason, effort) end
  return 'OK'
end

local status = admit()
if status == 'REPEAT' then
  recall()
  return reply('OK')
end
if status ~= 'OK' then return refusal(status) end
for i = FIRST, #ARGV, 7 do
  results[#results + 1] =
    release(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5], ARGV[i + 6])
end
remember()
return reply('OK')
