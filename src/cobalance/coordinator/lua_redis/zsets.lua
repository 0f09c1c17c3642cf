-- Sorted sets: the commands that write, and those that look at single members.

local values = require 'values'
local keyspace = require 'keyspace'
local sorted = require 'sorted'

local text, fail, score_of = values.text, values.fail, values.score

local zsets = { arity = {}, commands = {} }
local commands, arity = zsets.commands, zsets.arity

local OPTIONS = { NX = true, XX = true, GT = true, LT = true, CH = true, INCR = true }

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

-- The options in front of the first score, and where that score is.
local function options_of(arguments, size)
  local options, at = {}, 1
  while at <= size do
    local option = arguments[at]:upper()
    if not OPTIONS[option] then break end
    options[option], at = true, at + 1
  end
  return options, at
end

local function check_options(options, count)
  if count <= 0 or count % 2 == 1 then fail('ERR syntax error') end
  if options.NX and options.XX then fail('ERR XX and NX options at the same time are not compatible') end
  if (options.NX and (options.GT or options.LT)) or (options.GT and options.LT) then
    fail('ERR GT, LT, and/or NX options at the same time are not compatible')
  end
  if options.INCR and count > 2 then fail('ERR INCR option supports a single increment-element pair') end
end

-- The score a member gets, or nil when an option forbids the change.
local function decided(options, old, score)
  if (options.NX and old) or (options.XX and not old) then return nil end
  if options.INCR then
    score = (old or 0) + score
    if score ~= score then fail('ERR resulting score is not a number (NaN)') end
  end
  if old and ((options.GT and score <= old) or (options.LT and score >= old)) then return nil end
  return score
end

-- Applies every (score, member) pair; returns how many were added, how many changed, and the last score given.
local function apply(set, options, arguments, from, size)
  local added, changed, last = 0, 0, nil
  for i = from, size, 2 do
    local member = arguments[i + 1]
    local old = set.scores[member]
    last = decided(options, old, arguments[i])
    if last and last ~= old then
      if old then changed = changed + 1 else added = added + 1 end
      sorted.put(set, last, member)
    end
  end
  return added, changed, last
end

local function add_many(key, ...)
  local arguments, size = values.texts(...)
  local options, from = options_of(arguments, size)
  check_options(options, size - from + 1)
  for i = from, size, 2 do arguments[i] = score_of(arguments[i]) end
  local set = writing(key)
  local added, changed, last = apply(set, options, arguments, from, size)
  drop_if_empty(key, set)
  if options.INCR then return last and values.number_text(last) or false end
  return options.CH and added + changed or added
end

arity.ZADD = -3
function commands.ZADD(key, score, member, ...)
  key = text(key)
  if select('#', ...) > 0 or OPTIONS[score] then return add_many(key, score, member, ...) end
  score, member = score_of(score), text(member)
  local set = writing(key)
  local is_new = set.scores[member] == nil
  sorted.put(set, score, member)
  return is_new and 1 or 0
end

arity.ZINCRBY = 3
function commands.ZINCRBY(key, by, member)
  return add_many(text(key), 'INCR', by, member)
end

arity.ZREM = -2
function commands.ZREM(key, ...)
  return zsets.remove_all(text(key), (values.texts(...)))
end

local function score_text(set, member)
  local score = set and set.scores[member]
  return score and values.number_text(score) or false
end

arity.ZSCORE = 2
function commands.ZSCORE(key, member)
  return score_text(reading(key), text(member))
end

arity.ZMSCORE = -2
function commands.ZMSCORE(key, ...)
  local set, members, size = reading(key), values.texts(...)
  for i = 1, size do members[i] = score_text(set, members[i]) end
  return members
end

arity.ZCARD = 1
function commands.ZCARD(key)
  local set = reading(key)
  return set and set.size or 0
end

local function rank_of(key, member)
  local set = reading(key)
  local score = set and set.scores[text(member)]
  if not score then return false end
  return sorted.index(set, sorted.seek(set, score, member, false)), set.size
end

arity.ZRANK = 2
function commands.ZRANK(key, member)
  return (rank_of(key, text(member)))
end

arity.ZREVRANK = 2
function commands.ZREVRANK(key, member)
  local rank, size = rank_of(key, text(member))
  return rank and size - 1 - rank
end

local function pop(key, count, lowest)
  key = text(key)
  count = count and values.integer(count) or 1
  if count < 0 then fail('ERR value is out of range, must be positive') end
  local set = reading(key)
  if not set then return {} end
  local list
  if lowest then
    list = sorted.forward(set, 1, 1, count, values.number_text)
  else
    list = sorted.backward(set, #set.chunks + 1, 1, count, values.number_text)
  end
  local members = {}
  for i = 1, #list, 2 do members[#members + 1] = list[i] end
  zsets.remove_all(key, members)
  return list
end

arity.ZPOPMIN, arity.ZPOPMAX = -1, -1
function commands.ZPOPMIN(key, count) return pop(key, count, true) end
function commands.ZPOPMAX(key, count) return pop(key, count, false) end

return zsets
