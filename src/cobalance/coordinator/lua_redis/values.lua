-- How Redis reads the arguments of a command and writes the numbers of a reply.
--
-- Redis and Lua both have "numbers", but not the same ones: Redis counts in 64-bit integers and scores in doubles, Lua
-- 5.1 knows doubles alone. Where the two would differ (past 2^53) we refuse loudly instead of answering nearly right.

local floor, format = math.floor, string.format
local EXACT = 9007199254740992 -- 2^53: every whole number below it is exact as a double.

local FEW = jit and 64 or 0

local values = {}

-- Ends the command with an error reply, as redis.call does: a table {err = text}.
local function fail(text)
  error({ err = text }, 0)
end
values.fail = fail

-- The text Redis makes of a number given to redis.call, and of a score ("%.17g", checked on 7.0.15).
local function number_text(number)
  if number > -EXACT and number < EXACT and number == floor(number) then
    if number == 0 and 1 / number < 0 then return '-0' end
    return format('%d', number)
  end
  return format('%.17g', number)
end
values.number_text = number_text

-- Redis takes strings and numbers as arguments and nothing else.
local function text(value)
  local kind = type(value)
  if kind == 'string' then return value end
  if kind == 'number' then return number_text(value) end
  fail('ERR Lua redis lib command arguments must be strings or integers')
end
values.text = text

-- Any number of arguments as a list. LuaJIT cannot compile `{...}`, which made a heartbeat three times as slow; it can
-- compile `select`, which is quadratic and so only for few. Plain Lua is better off with `{...}` always.
local function list_of(...)
  local size = select('#', ...)
  if size > FEW then return { ... }, size end
  local list = {}
  for i = 1, size do list[i] = (select(i, ...)) end
  return list, size
end
values.list = list_of

-- All arguments of a command of any length, as text, and their number.
function values.texts(...)
  local list, size = list_of(...)
  for i = 1, size do list[i] = text(list[i]) end
  return list, size
end

-- An integer written exactly as Redis writes one: no blank, no plus, no leading zero, no fraction.
function values.integer(value, message)
  value = text(value)
  local number = tonumber(value)
  local exact = number and number > -EXACT and number < EXACT and number == floor(number)
  if exact and number_text(number) == value and value ~= '-0' then return number end
  if value:find('^%-?[1-9]%d*$') then fail('ERR the in-memory store counts exactly only below 2^53: ' .. value) end
  fail(message or 'ERR value is not an integer or out of range')
end

local INFINITIES = {
  inf = 1 / 0, ['+inf'] = 1 / 0, ['-inf'] = -1 / 0,
  infinity = 1 / 0, ['+infinity'] = 1 / 0, ['-infinity'] = -1 / 0,
}

local function unusual_score(value, number, message)
  local infinity = INFINITIES[value:lower()]
  if infinity then return infinity end
  local plain = value:find('^[+-]?[%d.]+$') or value:find('^[+-]?[%d.]+[eE][+-]?%d+$') or value:find('^[+-]?0[xX]%x+$')
  if not plain or not number or number == 1 / 0 or number == -1 / 0 then fail(message) end
  return number + 0
end

-- A score: any finite double, or an infinity by name. Minus zero becomes zero, as it does in Redis's small sets.
function values.score(value, message)
  value = text(value)
  local number = tonumber(value)
  if number and number < EXACT and number > -EXACT and number_text(number) == value then return number + 0 end
  return unusual_score(value, number, message or 'ERR value is not a valid float')
end

function values.wrong_arity()
  fail('ERR Wrong number of args calling Redis command from script')
end

return values
