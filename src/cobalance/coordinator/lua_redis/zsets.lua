-- Sorted sets: the commands that write, and those that look at single members.

local values = require 'values'
local keyspace = require 'keyspace'
local sorted = require 'sorted'

local text, fail, score_of = values.text, values.fail, values.score

local zsets = { arity = {}, commands = {} }
local commands, arity = zsets.commands, zsets.arity

local function reading(key)
  local entry = keyspace.read(text(key), 'zset')
  return entry and entry.sorted
end
zsets.reading = reading

local function writing(key)
  local entry = keyspace.write(key, 'zset') or keyspace.create(key, { kind = 'zset', sorted = sorted.new() })
  return entry.sorted
end

local function drop_if_empty(key, set)
  if set.size == 0 then keyspace.delete(key) end
end

-- Removes the listed members of a key's set and tells how many there were.
function zsets.remove_all(key, members)
  local entry = keyspace.write(key, 'zset')
  if not entry then return 0 end
  local removed = 0
  for i = 1, #members do
    if sorted.remove(entry.sorted, members[i]) then removed = removed + 1 end
  end
  drop_if_empty(key, entry.sorted)
  return removed
end

local function add_many(key, ...)
  local arguments, size = values.texts(...)
  local option, from = arguments[1], 1
  if option == 'NX' or option == 'XX' then from = 2 else option = nil end
  if size < from or (size - from) % 2 == 0 then fail('ERR syntax error') end
  for i = from, size, 2 do arguments[i] = score_of(arguments[i]) end
  local set, added = writing(key), 0
  for i = from, size, 2 do
    local member = arguments[i + 1]
    local is_new = set.scores[member] == nil
    if option == nil or is_new == (option == 'NX') then
      sorted.put(set, arguments[i], member)
      if is_new then added = added + 1 end
    end
  end
  drop_if_empty(key, set)
  return added
end

arity.ZADD = -3
function commands.ZADD(key, score, member, ...)
  key = text(key)
  if select('#', ...) > 0 or score == 'NX' or score == 'XX' then return add_many(key, score, member, ...) end
  score, member = score_of(score), text(member)
  local set = writing(key)
  local is_new = set.scores[member] == nil
  sorted.put(set, score, member)
  return is_new and 1 or 0
end

arity.ZREM = -2
function commands.ZREM(key, ...)
  return zsets.remove_all(text(key), (values.texts(...)))
end

arity.ZSCORE = 2
function commands.ZSCORE(key, member)
  local set = reading(key)
  local score = set and set.scores[text(member)]
  return score and values.number_text(score) or false
end

arity.ZCARD = 1
function commands.ZCARD(key)
  local set = reading(key)
  return set and set.size or 0
end

return zsets
