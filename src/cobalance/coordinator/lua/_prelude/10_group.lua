-- The group as this call sees it: keys, clock, scalars. Loaded once, saved once.
--
-- Lex entries and packed records separate their fields by one blank; names never hold blanks (names.py), and "!" is
-- the character after it, so "[m " .. "(m!" spans exactly what belongs to member m.
local fmt, abs, floor, max, min = string.format, math.abs, math.floor, math.max, math.min
local unpack = table.unpack or unpack

local STATE, MEMBERS, RESOURCES, NAMES, OWNED = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local FEED, LOAD, REVOKING, FREE, TIMERS = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local DEADLINES, OFFSETS, JOURNAL = KEYS[11], KEYS[12], KEYS[13]
local MORE, LESS, LOOSE, DECLARED, IDS = KEYS[14], KEYS[15], KEYS[16], KEYS[17], KEYS[18]

local IDENTITY = string.match(ARGV[1], '^!?([^/]*)') -- the server that the caller's connection belongs to

local TEXTS = {'server', 'mode', 'coordinator', 'list_hash', 'walker', 'classes', 'subscriptions', 'heads', 'scan', 'judged', 'sweep', 'pulse'}
local NUMBERS = {
  'incarnation', 'version', 'due', 'heard', 'skew', 'gap_from', 'gap_at', 'token', 'recovering', 'total', 'graced_kept',
  'list_version', 'list_done', 'list_complete', 'walk_until', 'quiet_until', 'calm_at', 'burst', 'revoked', 'barrier', 'changed',
  'session_ms', 'heartbeat_ms', 'revocation_ms', 'grace_ms', 'gather_ms', 'moves', 'journal_length', 'idle_ms',
  'live', 'graced', 'ceilings', -- capacity of those with a share, of the graced; 40_shares.lua
  'began',   -- when the recovery under way began
  'guessed', -- 1 in a recovery with the settings of a process that is new to the group, and may not know them
  'offsets_known', -- 1 while every offset that was ever committed is certain to be here
  'known_to',      -- while claims may yet prove that: the version at which the server was found to be another; else 0
  'uneven', -- 1 when loads are to be compared where no quota says how many, 2 while they are; 75_evenness.lua
  'judge_again', -- 1 when revocations are to be looked at once more, whether they are of use
  'passed', -- how many of the most loaded have been looked at for that
  'round',  -- how often it has changed who can work what: what nobody could is looked at again
  'expires',       -- when Redis drops the group, on its own clock; 0 never
  'history',       -- while a group is being made: the seq of the last line in the journal that an earlier one left
  'unclaimed',     -- how many of what was on record then have not been claimed as they stood
}

local now, real_us     -- group clock in ms; server clock in µs
local digits = {[0] = '0'} -- of numbers written in this call: most are written several times
local numbers = {}         -- of digits read in this call

-- Numbers reach Redis as plain digits: `..` alone would write 1.7951985684971e+15 for a token.
local function int(n)
  local text = digits[n]
  if not text then
    text = fmt('%.0f', n)
    digits[n] = text
  end
  return text
end

local TOP = 9007199254740992    -- 2^53: Lua counts exactly up to there

-- A number as we write it, or nil: Python reads it, too, and takes neither 10.0 nor 0x10 nor nan.
local function whole(text)
  local n = #text <= 17 and string.find(text, '^%-?%d+$') and tonumber(text)
  if n and abs(n) < TOP then return n end
end

local function number(text)
  local n = numbers[text]
  if not n then
    n = whole(text)
    numbers[text] = n
    if n and string.byte(text) > 48 and not digits[n] then digits[n] = text end -- as it would be written, beginning with no 0 or sign
  end
  return n
end

-- Byte by byte, as Redis orders names: `<` on strings would follow the server's locale.
local function is_before(a, b)
  for i = 1, min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- Fixed width, so that lexical order is numerical order.
local function wide(n) return string.sub('0000000000000000' .. int(n), -16) end

local G = {}       -- the scalars above
local saved = {}   -- the same as they are stored, so that only differences are written

-- Should a script die between two writes (a permission withdrawn, a bug), the next call must notice and repair it (85_repair.lua).
-- So the first write of a call stops the group's pulse, and the last one, save_group, sets it going again. In between, the order
-- is part of the protocol, since records are what a repair believes:
--   the journal has a line before the record changes that it tells of; FEED has the news before the resource's record
--   the records of resources come last but for the scalars, and with the scalars the caller's request number and results: a
--   request that is repeated either finds them, or is executed as if it had never come
local TORN = 'torn 0 0' -- why, and which page a repair does next
local WRITES = {
  HSET = true, HDEL = true, ZADD = true, ZREM = true, ZREMRANGEBYLEX = true, XADD = true, UNLINK = true,
  PEXPIREAT = true, PERSIST = true,
}
local is_writing = false

local call
do

-- A group is made where there may be a journal: its lines are counted on.
local function last_seq()
  local found = redis.pcall('XREVRANGE', JOURNAL, '+', '-', 'COUNT', '1')[1]
  for i = 1, found and #found[2] or 0, 2 do
    if found[2][i] == 'seq' then return whole(found[2][i + 1]) or 0 end
  end
  return 0
end

local function stop_pulse()
  if not saved.pulse then G.history = last_seq() end
  G.version = max(G.version, G.history)
  if G.history > 0 then
    redis.call('HSET', STATE, 'pulse', TORN, 'history', int(G.history))
  else
    redis.call('HSET', STATE, 'pulse', TORN)
  end
  is_writing, saved.pulse, saved.history = true, TORN, int(G.history)
end

function call(command, ...)
  if not is_writing and WRITES[command] then stop_pulse() end
  return redis.call(command, ...)
end

end

local kept, kept_fields = {}, {} -- fields of the state hash that are written with the scalars

local function keep(field, value)
  if not kept[field] then kept_fields[#kept_fields + 1] = field end
  kept[field] = value
end

-- The group's clock is Redis TIME plus an offset that only grows, so a step back neither freezes nor rewinds it.
local function read_clock()
  local time = call('TIME')
  real_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
  local real_ms = floor(real_us / 1000)
  now = real_ms + G.skew
  if now < G.heard then
    G.skew = G.heard - real_ms
    now = G.heard
  end
  -- Half a session in which nobody was heard is an outage, a pause or a step forward: it may have made an innocent member
  -- late, who tries again within a third of a session, and is not held against it (70_timers.lua).
  if G.heard > 0 and now - G.heard > G.session_ms / 2 then G.gap_from, G.gap_at = G.heard, now end
  G.heard = now
end

-- Somebody else has written here (redis/damage.py says so).
local function unreadable(key, field) error('UNREADABLE ' .. key .. ' ' .. field, 0) end

local function load_group()
  local fields = {}
  for i = 1, #TEXTS do fields[i] = TEXTS[i] end
  for i = 1, #NUMBERS do fields[#TEXTS + i] = NUMBERS[i] end
  local values = call('HMGET', STATE, unpack(fields))
  for i = 1, #fields do
    local value = values[i]
    saved[fields[i]] = value
    if i <= #TEXTS then G[fields[i]] = value or '' else G[fields[i]] = whole(value or '0') or unreadable('state', fields[i]) end
  end
  read_clock()
end

-- What the fast heartbeat needs, as one field; empty while every heartbeat has to settle something.
local function pulse()
  if G.recovering > 0 or G.coordinator == '' or string.find(G.heads, '=- ', 1, true) then return '' end
  return G.server .. ' ' .. int(G.incarnation) .. ' ' .. int(G.skew) .. ' ' .. int(G.session_ms) .. ' '
    .. int(G.heartbeat_ms) .. ' ' .. G.coordinator .. ' ' .. G.heads
end

-- All at one moment, those too that this call has made.
local function save_expiry()
  local before = tonumber(saved.expires or '0')
  if G.expires == before and not (is_writing and before > 0) then return end
  for i = 1, #KEYS do
    if G.expires > 0 then call('PEXPIREAT', KEYS[i], int(G.expires)) else call('PERSIST', KEYS[i]) end
  end
end

-- The last write of a call.
local function save_group()
  local out = {}
  local function put(field, value, before)
    if value == before then return end
    out[#out + 1], out[#out + 2] = field, value
    saved[field] = value
  end
  G.history = 0
  G.pulse = G.is_gone and TORN or pulse() -- is_gone: a record that must be there, so the next call repairs
  for i = 1, #TEXTS do put(TEXTS[i], G[TEXTS[i]], saved[TEXTS[i]] or '') end
  for i = 1, #NUMBERS do put(NUMBERS[i], int(G[NUMBERS[i]]), saved[NUMBERS[i]] or '0') end
  for i = 1, #kept_fields do put(kept_fields[i], kept[kept_fields[i]]) end
  if #out > 0 then redis.call('HSET', STATE, unpack(out)) end
  is_writing, kept, kept_fields = false, {}, {}
end

-- Tokens never repeat, even over data loss: above the last one, above what members report, and not below the time.
local function next_token()
  G.token = max(G.token + 1, real_us)
  return G.token
end

local function set_timer(id, at_ms)
  call('ZADD', TIMERS, int(at_ms), id)
end

local journal
do

-- A journal that was made much shorter shrinks over many calls, by this many entries with the first line of each.
local most_trimmed = '2000'

-- One line of the journal, in the same script as the transition. Its seq is also the group's version. Where a group is still to be made,
-- its journal may be a former one's, and nobody has said yet how long it may be.
function journal(kind, ...)
  G.version = G.version + 1
  local length = G.journal_length > 0 and G.journal_length or TOP - 1
  call('XADD', JOURNAL, 'MAXLEN', '~', int(length), 'LIMIT', most_trimmed, '*',
    'seq', int(G.version), 'kind', kind, 'at_ms', int(now), ...)
  most_trimmed = '1'
end

end
