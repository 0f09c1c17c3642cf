-- Commands on keys of any type, the clock and publishing.

local values = require 'values'
local keyspace = require 'keyspace'

local text, integer = values.text, values.integer
local floor, format = math.floor, string.format

local generic = { arity = {}, commands = {}, outbox = {}, subscribers = {} }
local commands, arity = generic.commands, generic.arity

arity.TIME = 0
function commands.TIME()
  local now_us = keyspace.now_us
  local seconds = floor(now_us / 1000000)
  return { format('%d', seconds), format('%d', now_us - seconds * 1000000) }
end

arity.UNLINK = -1
function commands.UNLINK(...)
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

arity.PEXPIREAT = 2
function commands.PEXPIREAT(key, at_ms)
  key, at_ms = text(key), integer(at_ms)
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

-- Managed clusters deliver a script's message only on a channel that hashes to the script's own slot.
local function listeners(channel)
  local tag = channel:match('{([^}]+)}') or channel
  if generic.hash_tag and tag ~= generic.hash_tag then
    keyspace.refuse('the channel ' .. channel .. ' does not carry the hash tag of KEYS')
  end
  return generic.subscribers[channel] or 0
end

arity.PUBSUB = -1
function commands.PUBSUB(question, ...)
  if text(question):upper() ~= 'NUMSUB' then keyspace.refuse('the in-memory Redis does not know PUBSUB ' .. text(question)) end
  local channels, size = values.texts(...)
  local counts = {}
  for i = 1, size do counts[2 * i - 1], counts[2 * i] = channels[i], listeners(channels[i]) end
  return counts
end

arity.PUBLISH = 2
function commands.PUBLISH(channel, message)
  channel, message = text(channel), text(message)
  local receivers = listeners(channel)
  if receivers > 0 then
    local outbox = generic.outbox
    outbox[#outbox + 1] = channel
    outbox[#outbox + 1] = message
  end
  return receivers
end

return generic
