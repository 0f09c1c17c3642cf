-- The keys, and the rules that hold for every one of them: declared before use, of one type, gone when expired or empty.
--
-- An entry is one key's value: {kind, expires_at_ms or nil, epoch, ...}. Snapshots share entries with the live keyspace;
-- an entry whose epoch is not the current one may be seen by a snapshot, so it is copied before it is written.

local values = require 'values'
local sorted = require 'sorted'

local fail = values.fail
local WRONGTYPE = 'WRONGTYPE Operation against a key holding the wrong kind of value'

local keyspace = { now_us = 0, refusal = nil }
local entries, declared, epoch = {}, {}, 1

-- Breaking one of our own rules is not an error reply a script could catch: it is kept and ends the whole call.
function keyspace.refuse(reason)
  keyspace.refusal = keyspace.refusal or reason
  error({ err = 'ERR ' .. reason }, 0)
end

function keyspace.begin(declared_keys, now_us)
  declared, keyspace.now_us, keyspace.refusal = declared_keys, now_us, nil
end

local function is_expired(entry)
  return entry.expires_at_ms <= keyspace.now_us / 1000
end

-- The entry of a declared key, of whatever type, or nil.
local function find(key)
  if not declared[key] then keyspace.refuse('the script used a key that is not in KEYS: ' .. tostring(key)) end
  local entry = entries[key]
  if entry and entry.expires_at_ms and is_expired(entry) then
    entries[key] = nil
    return nil
  end
  return entry
end
keyspace.find = find

function keyspace.read(key, kind)
  local entry = find(key)
  if entry and entry.kind ~= kind then fail(WRONGTYPE) end
  return entry
end

local function shallow(map)
  local twin = {}
  for key, value in pairs(map) do twin[key] = value end
  return twin
end

local copy_parts = {
  hash = function(twin) twin.fields = shallow(twin.fields) end,
  zset = function(twin) twin.sorted = sorted.copy(twin.sorted) end,
  stream = function(twin) twin.ms, twin.seq, twin.pairs = shallow(twin.ms), shallow(twin.seq), shallow(twin.pairs) end,
}

-- The entry as the live keyspace's own, which no snapshot sees.
local function own(key, entry)
  if entry.epoch == epoch then return entry end
  local twin = shallow(entry)
  copy_parts[entry.kind](twin)
  twin.epoch = epoch
  entries[key] = twin
  return twin
end

-- Like read, for a command that is about to change the entry.
function keyspace.write(key, kind)
  local entry = find(key)
  if not entry then return nil end
  if entry.kind ~= kind then fail(WRONGTYPE) end
  return own(key, entry)
end

function keyspace.write_any(key)
  local entry = find(key)
  return entry and own(key, entry)
end

function keyspace.create(key, entry)
  entry.epoch = epoch
  entries[key] = entry
  return entry
end

function keyspace.delete(key)
  entries[key] = nil
end

function keyspace.clear()
  entries = {}
end

-- A snapshot costs one table of the keys; it stays valid whatever happens later.
function keyspace.snapshot()
  epoch = epoch + 1
  return shallow(entries)
end

function keyspace.restore(snapshot)
  epoch = epoch + 1
  entries = shallow(snapshot)
end

-- The live entries by key, at a moment.
function keyspace.live(now_us)
  keyspace.now_us = now_us
  local live = {}
  for key, entry in pairs(entries) do
    if not (entry.expires_at_ms and is_expired(entry)) then live[key] = entry end
  end
  return live
end

return keyspace
