-- Streams: append, with a trim from the front, and read a range.
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
  if id:find('*', 1, true) then keyspace.refuse('XADD: the id ' .. id .. ' is not supported') end
  local ms, seq = parse_id(id, 0)
  if ms == 0 and seq == 0 then fail('ERR The ID specified in XADD must be greater than 0-0') end
  return ms, seq
end

local function trim(stream, limit, most)
  local excess = math.min(math.max(stream.last - stream.first + 1 - limit, 0), most)
  excess = excess - excess % NODE
  for i = stream.first, stream.first + excess - 1 do
    stream.ms[i], stream.seq[i], stream.pairs[i] = nil, nil, nil
  end
  stream.first = stream.first + excess
end

-- Reads MAXLEN ~ limit LIMIT most, the only form of trimming there is; returns the limit, if any, how many entries may be dropped,
-- and the next place of the arguments.
local function trimming(arguments)
  if not arguments[1]:find('^%u') then return nil, nil, 1 end
  if arguments[1] ~= 'MAXLEN' or arguments[2] ~= '~' or arguments[4] ~= 'LIMIT' then
    keyspace.refuse('XADD: nothing but MAXLEN ~ length LIMIT most is supported before the id, not ' .. arguments[1])
  end
  local limit, most = integer(arguments[3]), integer(arguments[5] or fail('ERR syntax error'))
  if limit < 0 then fail('ERR The MAXLEN argument must be >= 0.') end
  if most < 0 then fail('ERR The LIMIT argument must be >= 0.') end
  return limit, most > 0 and most or LAST_SEQ, 6
end

local function new_stream()
  return { kind = 'stream', first = 1, last = 0, ms = {}, seq = {}, pairs = {}, last_ms = 0, last_seq = 0 }
end

arity.XADD = -4
function commands.XADD(key, ...)
  key = text(key)
  local arguments, size = values.texts(...)
  local limit, most, at = trimming(arguments)
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
