-- Commands on keys of any type, strings, the clock and publishing.

local values = require 'values'
local keyspace = require 'keyspace'

local text, integer, fail = values.text, values.integer, values.fail
local floor, format = math.floor, string.format

local generic = { arity = {}, commands = {}, outbox = {}, subscribers = {} }
local commands, arity = generic.commands, generic.arity

arity.TIME = 0
function commands.TIME()
  local now_us = keyspace.now_us
  local seconds = floor(now_us / 1000000)
  return { format('%d', seconds), format('%d', now_us - seconds * 1000000) }
end

arity.GET = 1
function commands.GET(key)
  local entry = keyspace.read(text(key), 'string')
  return entry and entry.text or false
end

arity.SET = -2
function commands.SET(key, value, option)
  key, value = text(key), text(value)
  if option ~= nil then keyspace.refuse('SET: option ' .. text(option) .. ' is not supported') end
  keyspace.find(key)
  keyspace.create(key, { kind = 'string', text = value })
  return { ok = 'OK' }
end

arity.DEL, arity.UNLINK = -1, -1
function commands.DEL(...)
  local keys, size = values.texts(...)
  local deleted = 0
  for i = 1, size do
    if keyspace.find(keys[i]) then
      keyspace.delete(keys[i])
      deleted = deleted + 1
    end
  end
  return deleted
end
commands.UNLINK = commands.DEL

arity.EXISTS = -1
function commands.EXISTS(...)
  local keys, size = values.texts(...)
  local found = 0
  for i = 1, size do
    if keyspace.find(keys[i]) then found = found + 1 end
  end
  return found
end

arity.TYPE = 1
function commands.TYPE(key)
  local entry = keyspace.find(text(key))
  return { ok = entry and entry.kind or 'none' }
end

local function increment(key, by)
  local entry = keyspace.write(key, 'string')
  local sum = (entry and integer(entry.text) or 0) + by
  local written = values.number_text(sum)
  integer(written)
  if entry then entry.text = written else keyspace.create(key, { kind = 'string', text = written }) end
  return sum
end

arity.INCR = 1
function commands.INCR(key)
  return increment(text(key), 1)
end

arity.INCRBY = 2
function commands.INCRBY(key, by)
  return increment(text(key), integer(by))
end

arity.PEXPIRE = -2
function commands.PEXPIRE(key, ttl_ms, option)
  key, ttl_ms = text(key), integer(ttl_ms)
  if option ~= nil then keyspace.refuse('PEXPIRE: option ' .. text(option) .. ' is not supported') end
  local entry = keyspace.write_any(key)
  if not entry then return 0 end
  if ttl_ms <= 0 then keyspace.delete(key) else entry.expires_at_ms = floor(keyspace.now_us / 1000) + ttl_ms end
  return 1
end

arity.PEXPIREAT = -2
function commands.PEXPIREAT(key, at_ms, option)
  key, at_ms = text(key), integer(at_ms)
  if option ~= nil then keyspace.refuse('PEXPIREAT: option ' .. text(option) .. ' is not supported') end
  local entry = keyspace.write_any(key)
  if not entry then return 0 end
  if at_ms <= floor(keyspace.now_us / 1000) then keyspace.delete(key) else entry.expires_at_ms = at_ms end
  return 1
end

arity.PERSIST = 1
function commands.PERSIST(key)
  local entry = keyspace.write_any(text(key))
  if not entry or not entry.expires_at_ms then return 0 end
  entry.expires_at_ms = nil
  return 1
end

arity.PTTL = 1
function commands.PTTL(key)
  local entry = keyspace.find(text(key))
  if not entry then return -2 end
  return entry.expires_at_ms and entry.expires_at_ms - floor(keyspace.now_us / 1000) or -1
end

-- Managed clusters deliver a script's message only on a channel that hashes to the script's own slot.
arity.PUBLISH = 2
function commands.PUBLISH(channel, message)
  channel, message = text(channel), text(message)
  local tag = channel:match('{([^}]+)}') or channel
  if generic.hash_tag and tag ~= generic.hash_tag then
    keyspace.refuse('PUBLISH: the channel ' .. channel .. ' does not carry the hash tag of KEYS')
  end
  local receivers = generic.subscribers[channel] or 0
  if receivers > 0 then
    local outbox = generic.outbox
    outbox[#outbox + 1] = channel
    outbox[#outbox + 1] = message
  end
  return receivers
end

return generic
