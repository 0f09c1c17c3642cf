-- The whole in-memory Redis, as Python sees it: compile, run, dump, load, snapshots.
--
-- Values cross to Python as one flat list, since crossing is what costs: a number or string stands for itself, false for
-- nil, and true announces an array, followed by its length and its elements.

local values = require 'values'
local order = require 'order'
local sorted = require 'sorted'
local keyspace = require 'keyspace'
local generic = require 'generic'
local hashes = require 'hashes'
local sandbox = require 'sandbox'

for _, name in ipairs({ 'generic', 'hashes', 'zsets', 'zranges', 'streams' }) do sandbox.add(require(name)) end

local unpack = table.unpack or unpack
local to_integer = math.tointeger or function(number) return number end

local MOST_RESULTS = 4000 -- Lua's stack holds about 8,000; longer replies cross in pieces.

local store = { restore = keyspace.restore, snapshot = keyspace.snapshot, clear = keyspace.clear, seed = order.seed, salt = hashes.salt }

-- Redis drops the fraction of a number it returns.
local function truncated(number)
  if number ~= number or number >= 2 ^ 63 or number < -2 ^ 63 then
    keyspace.refuse('the script returned a number that is no integer: ' .. tostring(number))
  end
  return to_integer(number >= 0 and math.floor(number) or math.ceil(number))
end

-- Appends a reply to the flat list and returns the list's new size.
local function flatten(value, flat, size)
  local kind = type(value)
  if kind == 'table' then
    if value.err then error({ err = value.err }, 0) end
    if value.ok then return flatten(value.ok, flat, size) end
    local head, count = size + 2, 0
    flat[size + 1], flat[head], size = true, 0, head
    while value[count + 1] ~= nil do
      count = count + 1
      size = flatten(value[count], flat, size)
    end
    flat[head] = count
    return size
  end
  if kind == 'number' then value = truncated(value) end
  if value == true then value = 1 end
  if value == nil or kind == 'function' then value = false end
  flat[size + 1] = value
  return size + 1
end

function store.compile(source)
  local compiled, problem = sandbox.compile(source)
  return compiled or false, problem
end

store.bytecode = string.dump

local function hash_tag(key)
  return key:match('{([^}]+)}') or key
end

-- The keys of a call, prepared once for the many calls that declare the same ones. A cluster serves a script only if all
-- its keys lie in one slot, which their hash tag decides.
function store.declare(...)
  local keys = { list = { ... }, set = {}, size = select('#', ...) }
  keys.tag = keys.list[1] and hash_tag(keys.list[1])
  for _, key in ipairs(keys.list) do
    if hash_tag(key) ~= keys.tag then return false end
    keys.set[key] = true
  end
  return keys
end

local function run(compiled)
  local flat = {}
  return flat, flatten(compiled(), flat, 0)
end

local function problem_text(problem)
  if type(problem) == 'table' then return tostring(problem.err or 'ERR the script raised a table') end
  return 'ERR ' .. tostring(problem)
end

-- Runs a script. Returns how many published messages wait, then the flat reply; or -1 and an error's text; or -2 and the
-- rule of ours that the script broke; or -3, the messages that wait, and the size of a reply to be fetched in pieces.
function store.run(compiled, keys, now_us, ...)
  keyspace.begin(keys.set, now_us)
  generic.hash_tag = keys.tag
  sandbox.set_arguments({ unpack(keys.list, 1, keys.size) }, { ... })
  local fine, flat, size = pcall(run, compiled)
  if keyspace.refusal then return -2, keyspace.refusal end
  if not fine then return -1, problem_text(flat) end
  if size <= MOST_RESULTS then return #generic.outbox, unpack(flat, 1, size) end
  store.pending = flat
  return -3, #generic.outbox, size
end

-- A piece of what was too long to cross at once.
function store.piece(from, to)
  return unpack(store.pending, from, to)
end

-- Takes the published messages, to be fetched in pieces: channel, message, channel, message …; returns their size.
function store.take_outbox()
  store.pending, generic.outbox = generic.outbox, {}
  return #store.pending
end

function store.set_subscribers(channel, count)
  generic.subscribers[channel] = count > 0 and count or nil
end

local function flat_map(map)
  local list = {}
  for _, name in ipairs(order.sorted_keys(map)) do
    list[#list + 1] = name
    list[#list + 1] = map[name]
  end
  return list
end

local contents = {
  hash = function(entry) return flat_map(entry.fields) end,
  zset = function(entry) return sorted.forward(entry.sorted, 1, 1, 1 / 0, values.number_text) end,
  stream = function(entry)
    local list = { values.number_text(entry.last_ms) .. '-' .. values.number_text(entry.last_seq) }
    for i = entry.first, entry.last do
      list[#list + 1] = values.number_text(entry.ms[i]) .. '-' .. values.number_text(entry.seq[i])
      list[#list + 1] = entry.pairs[i]
    end
    return list
  end,
}

-- Prepares the whole state as one flat reply {key, kind, expires_at_ms or false, contents …} in order of the keys, to be
-- fetched in pieces; returns its size.
function store.dump(now_us)
  local live, list = keyspace.live(now_us), {}
  for _, key in ipairs(order.sorted_keys(live)) do
    local entry = live[key]
    list[#list + 1] = { key, entry.kind, entry.expires_at_ms or false, contents[entry.kind](entry) }
  end
  store.pending = {}
  return flatten(list, store.pending, 0)
end

local loaders = {}

function loaders.hash(list)
  local entry = { fields = {}, size = #list / 2 }
  for i = 1, #list, 2 do entry.fields[list[i]] = list[i + 1] end
  return entry
end

function loaders.zset(list)
  local set = sorted.new()
  for i = 1, #list, 2 do sorted.put(set, values.score(list[i + 1]), list[i]) end
  return { sorted = set }
end

local function id_parts(id)
  local ms, seq = id:match('^(%d+)%-(%d+)$')
  return tonumber(ms), tonumber(seq)
end

function loaders.stream(list)
  local entry = { first = 1, last = 0, ms = {}, seq = {}, pairs = {} }
  entry.last_ms, entry.last_seq = id_parts(list[1])
  for i = 2, #list, 2 do
    local last = entry.last + 1
    entry.last, entry.pairs[last] = last, list[i + 1]
    entry.ms[last], entry.seq[last] = id_parts(list[i])
  end
  return entry
end

-- Puts one key of a dump in place.
function store.load(key, kind, expires_at_ms, list)
  local entry = loaders[kind](list)
  entry.kind, entry.expires_at_ms = kind, expires_at_ms or nil
  keyspace.create(key, entry)
end

store.die_at, store.writes = sandbox.die_at, sandbox.writes

return store
