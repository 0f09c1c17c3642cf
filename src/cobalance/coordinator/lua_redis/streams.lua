-- Streams: append, trim from the front, read a range.
--
-- An entry is spread over three lists, ms, seq and pairs, from index `first` to `last`; trimming moves `first`.

local values = require 'values'
local keyspace = require 'keyspace'

local text, integer, fail = values.text, values.integer, values.fail
local floor = math.floor

-- Redis trims "about" a length in whole nodes; we drop as many entries as a full node holds by default.
local NODE = 100
local LAST_SEQ = 9007199254740991 -- 2^53 - 1 stands for the largest sequence number.

local streams = { arity = {}, commands = {} }
local commands, arity = streams.commands, streams.arity

local function id_text(ms, seq)
  return values.number_text(ms) .. '-' .. values.number_text(seq)
end

local function is_before(ms1, seq1, ms2, seq2)
  if ms1 ~= ms2 then return ms1 < ms2 end
  return seq1 < seq2
end

local INVALID_ID = 'ERR Invalid stream ID specified as stream command argument'

local function parse_id(id, missing_seq)
  local ms, seq = id:match('^(%d+)%-(%d+)$')
  ms = ms or id:match('^(%d+)$')
  if not ms then fail(INVALID_ID) end
  return tonumber(ms), seq and tonumber(seq) or missing_seq
end

local function next_id(stream, id)
  if id == '*' then
    local now_ms = floor(keyspace.now_us / 1000)
    if now_ms > stream.last_ms then return now_ms, 0 end
    return stream.last_ms, stream.last_seq + 1
  end
  local open_ms = id:match('^(%d+)%-%*$')
  if not open_ms then
    local ms, seq = parse_id(id, 0)
    if ms == 0 and seq == 0 then fail('ERR The ID specified in XADD must be greater than 0-0') end
    return ms, seq
  end
  open_ms = tonumber(open_ms)
  return open_ms, open_ms == stream.last_ms and stream.last_seq + 1 or 0
end

local function trim(stream, limit, most)
  local length = stream.last - stream.first + 1
  local excess = math.max(length - limit, 0)
  if most then
    excess = math.min(excess, most)
    excess = excess - excess % NODE
  end
  for i = stream.first, stream.first + excess - 1 do
    stream.ms[i], stream.seq[i], stream.pairs[i] = nil, nil, nil
  end
  stream.first = stream.first + excess
  return excess
end

-- Reads LIMIT most at the given place, if that is there; how many entries an approximate trim may drop, and the next place.
local function trim_limit(arguments, at, is_approximate)
  if (arguments[at] or ''):upper() ~= 'LIMIT' then return 100 * NODE, at end
  if not is_approximate then fail('ERR syntax error, LIMIT cannot be used without the special ~ option') end
  local most = integer(arguments[at + 1] or fail('ERR syntax error'))
  if most < 0 then fail('ERR The LIMIT argument must be >= 0.') end
  return most > 0 and most or LAST_SEQ, at + 2
end

-- Reads MAXLEN [= | ~] limit [LIMIT most] at the given place of the arguments; returns the limit, if any, how many entries may be
-- dropped where that is approximate, and the next place.
local function trimming(command, arguments, at)
  local word = arguments[at]:upper()
  if word == 'MINID' or word == 'NOMKSTREAM' then
    keyspace.refuse(command .. ': option ' .. word .. ' is not supported')
  end
  if word ~= 'MAXLEN' then return nil, nil, at end
  local sign = arguments[at + 1]
  local has_sign = sign == '~' or sign == '='
  local limit = integer(arguments[at + (has_sign and 2 or 1)] or fail('ERR syntax error'))
  if limit < 0 then fail('ERR The MAXLEN argument must be >= 0.') end
  local most, behind = trim_limit(arguments, at + (has_sign and 3 or 2), sign == '~')
  return limit, sign == '~' and most or nil, behind
end

local function new_stream()
  return { kind = 'stream', first = 1, last = 0, ms = {}, seq = {}, pairs = {}, last_ms = 0, last_seq = 0 }
end

arity.XADD = -4
function commands.XADD(key, ...)
  key = text(key)
  local arguments, size = values.texts(...)
  local limit, most, at = trimming('XADD', arguments, 1)
  if size - at < 2 or (size - at) % 2 == 1 then values.wrong_arity() end
  local existing = keyspace.read(key, 'stream')
  local ms, seq = next_id(existing or new_stream(), arguments[at])
  if existing and not is_before(existing.last_ms, existing.last_seq, ms, seq) then
    fail('ERR The ID specified in XADD is equal or smaller than the target stream top item')
  end
  local fields = {}
  for i = at + 1, size do fields[i - at] = arguments[i] end
  local stream = keyspace.write(key, 'stream') or keyspace.create(key, new_stream())
  local last = stream.last + 1
  stream.last, stream.ms[last], stream.seq[last], stream.pairs[last] = last, ms, seq, fields
  stream.last_ms, stream.last_seq = ms, seq
  if limit then trim(stream, limit, most) end
  return id_text(ms, seq)
end

arity.XTRIM = -3
function commands.XTRIM(key, ...)
  key = text(key)
  local arguments, size = values.texts(...)
  local limit, most, at = trimming('XTRIM', arguments, 1)
  if not limit or at <= size then fail('ERR syntax error') end
  local stream = keyspace.write(key, 'stream')
  return stream and trim(stream, limit, most) or 0
end

arity.XLEN = 1
function commands.XLEN(key)
  local stream = keyspace.read(text(key), 'stream')
  return stream and stream.last - stream.first + 1 or 0
end

-- The index of the first entry not before an id; with `after`, of the first one behind it.
local function seek(stream, ms, seq, after)
  local low, high = stream.first, stream.last + 1
  while low < high do
    local middle = floor((low + high) / 2)
    local m, s = stream.ms[middle], stream.seq[middle]
    if is_before(m, s, ms, seq) or (after and m == ms and s == seq) then low = middle + 1 else high = middle end
  end
  return low
end

-- A bound as {ms, seq, exclusive}. An id without its second part means the whole millisecond.
local function bound(value, missing_seq)
  value = text(value)
  if value == '-' then return { 0, 0, false } end
  if value == '+' then return { LAST_SEQ, LAST_SEQ, false } end
  local exclusive = value:sub(1, 1) == '('
  local ms, seq = parse_id(exclusive and value:sub(2) or value, missing_seq)
  return { ms, seq, exclusive }
end

local function limit_of(word, count)
  if word == nil then return 1 / 0 end
  if text(word):upper() ~= 'COUNT' or count == nil then fail('ERR syntax error') end
  return math.max(integer(count), 0)
end

local function read(key, from, to, word, count, reverse)
  local low, high = bound(from, 0), bound(to, LAST_SEQ)
  local limit = limit_of(word, count)
  local stream = keyspace.read(text(key), 'stream')
  if not stream then return {} end
  if limit == 0 then return false end
  local first = seek(stream, low[1], low[2], low[3])
  local last = seek(stream, high[1], high[2], not high[3]) - 1
  local list, step = {}, reverse and -1 or 1
  for i = reverse and last or first, reverse and first or last, step do
    if #list >= limit then break end
    local fields = {}
    for k, field in ipairs(stream.pairs[i]) do fields[k] = field end
    list[#list + 1] = { id_text(stream.ms[i], stream.seq[i]), fields }
  end
  return list
end

arity.XRANGE, arity.XREVRANGE = -3, -3
function commands.XRANGE(key, from, to, word, count) return read(key, from, to, word, count, false) end
function commands.XREVRANGE(key, to, from, word, count) return read(key, from, to, word, count, true) end

return streams
