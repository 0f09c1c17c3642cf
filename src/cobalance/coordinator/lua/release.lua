-- release: commits and frees, in one step. Refused while something delivered is not committed.
--
-- KEYS     the group's keys (keys.py)
-- ARGV     1-8 as every verb; 9… seven a resource: resource, token, delivered, committed (counts of this tenure, or
--          positions), offset to commit for good ("" keeps the stored one), reason ("" is a finished drain, anything
--          else abandons the resource: the token rises and, but for "fenced", the giver is avoided for a while; the second
--          time in a row it is paused, or, for some troubles of the giver's own, moves nothing else; "halted:" and a word keeps it
--          from everybody, until it is resumed), effort (handled/busy_ms/late_ms for the journal, or "")
-- Returns  as heartbeat; results: one a resource, OK | FENCED | UNCOMMITTED | REGRESSED
--- @prelude

local wrong = malformed('', 'wnnnott')
if wrong then return wrong end

-- Why a giver cannot go on whose resource is as good as any, and how far that counts: not at all where somebody else can do it, or
-- is to; else as far as the second time, from which on nothing moves for it: without a pause it could go round for ever.
local GIVERS_OWN = {unconnected = 0, resigned = 0, deadline = 2, left = 2, blocked = 2}

local function check(r, token, delivered, committed, offset, reason)
  if not r or r.owner ~= CALLER or int(r.token) ~= token then return 'FENCED' end
  if reason == '' and tonumber(delivered) > tonumber(committed) then return 'UNCOMMITTED' end
  if offset ~= '' and tonumber(offset) < tonumber(offset_of(r.name) or '-2') then return 'REGRESSED' end
  return 'OK'
end

-- How often in a row it was given up by then.
local function tries_after(r, reason)
  local tries, most = tries_of(r), GIVERS_OWN[reason]
  if r.status == 'pending' then return tries end
  return most and max(tries, min(tries + 1, most)) or tries + 1
end

local function give_up(r, reason, effort)
  local tries = tries_after(r, reason)
  end_tenure(r, 'abandoned', reason, effort)
  r.token = next_token()
  if string.match(reason, '^halted:%S+$') and not r.removing then return halt(r, reason) end
  if reason == 'fenced' then return put_resource(r) end -- cut off from Redis, nothing wrong with the giver
  if tries > 1 and not (r.removing or GIVERS_OWN[reason]) then pause(r, CALLER, tries, reason) else avoid(r, CALLER, tries) end
end

local function give_back(r, effort)
  r.avoid = string.gsub(r.avoid, '@%d+$', '@0') -- it can be worked after all
  end_tenure(r, 'released', '', effort)
end

local function release(name, token, delivered, committed, offset, reason, effort)
  local r = resource(name)
  local verdict = check(r, token, delivered, committed, offset, reason)
  if verdict ~= 'OK' then
    journal('refused', 'resource', name, 'member', CALLER, 'token', token, 'reason', 'release ' .. verdict)
    return verdict
  end
  if offset ~= '' then offsets.put(name, offset) end
  G.budget = G.budget - 1
  if reason == '' then give_back(r, effort) else give_up(r, reason, effort) end
  return 'OK'
end

local status = admit()
if status == 'REPEAT' then
  recall()
  return reply('OK')
end
if status ~= 'OK' then return refusal(status) end
do
  local names = {}
  for i = FIRST, #ARGV, 7 do names[#names + 1] = ARGV[i] end
  fetch_resources(names)
  offsets.fetch(names)
end
for i = FIRST, #ARGV, 7 do
  results[#results + 1] =
    release(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5], ARGV[i + 6])
end
remember()
return reply('OK')
