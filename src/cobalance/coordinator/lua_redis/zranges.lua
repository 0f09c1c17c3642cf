-- Sorted sets: everything that means a range, by rank, by score or by member.
--
-- Each kind of range becomes a pair of positions, from and up to but not including; reading, counting and removing are
-- then the same for all three.

local values = require 'values'
local keyspace = require 'keyspace'
local sorted = require 'sorted'
local zsets = require 'zsets'

local text, integer, fail, reading = values.text, values.integer, values.fail, zsets.reading

local zranges = { arity = {}, commands = {} }
local commands, arity = zranges.commands, zranges.arity

local function score_bound(value)
  value = text(value)
  local exclusive = value:sub(1, 1) == '('
  return { score = values.score(exclusive and value:sub(2) or value, 'ERR min or max is not a float'), exclusive = exclusive }
end

local function lex_bound(value)
  value = text(value)
  local sign = value:sub(1, 1)
  if value == '-' or value == '+' then return { edge = value } end
  if sign ~= '[' and sign ~= '(' then fail('ERR min or max not valid string range item') end
  return { member = value:sub(2), exclusive = sign == '(' }
end

-- The position where a range begins (is_end false) or, exclusively, ends.
local function place(set, bound, is_end)
  if bound.edge == '-' then return 1, 1 end
  if bound.edge == '+' then return #set.chunks + 1, 1 end
  return sorted.seek(set, bound.score, bound.member, bound.exclusive ~= is_end)
end

local function between(set, low, high)
  local c1, i1 = place(set, low, false)
  local c2, i2 = place(set, high, true)
  return c1, i1, sorted.distance(set, c1, i1, c2, i2), c2, i2
end

-- Members from low to high (bounds made by score_bound or lex_bound), or from high to low.
local function slice(set, low, high, reverse, offset, count, score_text)
  if not set or offset < 0 then return {} end
  local c1, i1 = place(set, low, false)
  local c2, i2 = place(set, high, true)
  local length = sorted.distance(set, c1, i1, c2, i2) - offset
  if count >= 0 and count < length then length = count end
  if length <= 0 then return {} end
  if offset > 0 then
    local skipped = reverse and -offset or offset
    c1, i1 = sorted.at(set, sorted.index(set, c1, i1) + skipped)
    c2, i2 = sorted.at(set, sorted.index(set, c2, i2) + skipped)
  end
  if reverse then return sorted.backward(set, c2, i2, length, score_text) end
  return sorted.forward(set, c1, i1, length, score_text)
end

local function slice_by_rank(set, start, stop, score_text)
  if not set then return {} end
  local size = set.size
  if start < 0 then start = math.max(start + size, 0) end
  if stop < 0 then stop = stop + size end
  local length = math.min(stop, size - 1) - start + 1
  if length <= 0 then return {} end
  local c, i = sorted.at(set, start)
  return sorted.forward(set, c, i, length, score_text)
end

-- What follows a range: LIMIT offset count, and WITHSCORES.
local function tail(allowed, ...)
  local words, size = values.texts(...)
  local options, at = { offset = 0, count = -1 }, 1
  while at <= size do
    local word = words[at]
    if not allowed[word] then
      keyspace.refuse('a range: option ' .. word .. ' is not supported')
    elseif word == 'LIMIT' and at + 2 <= size then
      options.offset, options.count = integer(words[at + 1]), integer(words[at + 2])
      at = at + 3
    elseif word == 'WITHSCORES' then
      options.score_text, at = values.number_text, at + 1
    else
      fail('ERR syntax error')
    end
  end
  return options
end

local BY_SCORE_WORDS = { LIMIT = true, WITHSCORES = true }
local BY_LEX_WORDS = { LIMIT = true }
local BY_RANK_WORDS = { WITHSCORES = true }

local function by_bounds(key, make_bound, low, high, reverse, options)
  low, high = make_bound(low), make_bound(high)
  return slice(reading(key), low, high, reverse, options.offset, options.count, options.score_text)
end

arity.ZRANGE = -3
function commands.ZRANGE(key, start, stop, ...)
  local score_text = select('#', ...) > 0 and tail(BY_RANK_WORDS, ...).score_text or nil
  start, stop = integer(start), integer(stop)
  return slice_by_rank(reading(key), start, stop, score_text)
end

arity.ZRANGEBYSCORE = -3
function commands.ZRANGEBYSCORE(key, low, high, ...)
  return by_bounds(key, score_bound, low, high, false, tail(BY_SCORE_WORDS, ...))
end

arity.ZREVRANGEBYSCORE = -3
function commands.ZREVRANGEBYSCORE(key, high, low, ...)
  return by_bounds(key, score_bound, low, high, true, tail(BY_SCORE_WORDS, ...))
end

arity.ZRANGEBYLEX = -3
function commands.ZRANGEBYLEX(key, low, high, ...)
  return by_bounds(key, lex_bound, low, high, false, tail(BY_LEX_WORDS, ...))
end

arity.ZREVRANGEBYLEX = -3
function commands.ZREVRANGEBYLEX(key, high, low, ...)
  return by_bounds(key, lex_bound, low, high, true, tail(BY_LEX_WORDS, ...))
end

local function count(key, low, high)
  local set = reading(key)
  if not set then return 0 end
  local _, _, length = between(set, low, high)
  return math.max(length, 0)
end

arity.ZCOUNT = 3
function commands.ZCOUNT(key, low, high)
  return count(key, score_bound(low), score_bound(high))
end

arity.ZLEXCOUNT = 3
function commands.ZLEXCOUNT(key, low, high)
  return count(key, lex_bound(low), lex_bound(high))
end

arity.ZREMRANGEBYLEX = 3
function commands.ZREMRANGEBYLEX(key, low, high)
  key, low, high = text(key), lex_bound(low), lex_bound(high)
  return zsets.remove_all(key, slice(reading(key), low, high, false, 0, -1))
end

return zranges
