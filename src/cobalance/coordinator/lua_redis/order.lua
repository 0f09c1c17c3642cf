-- Byte order of strings, and the one source of chance.

local order = {}

-- PUC Lua compares strings by the process's locale (strcoll); Redis compares bytes. In the C locale, and under LuaJIT
-- always, the two agree and the operator is right. Elsewhere we compare byte by byte.
local function bytewise(a, b)
  local shorter = math.min(#a, #b)
  for i = 1, shorter do
    local x, y = a:byte(i), b:byte(i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

local function by_operator(a, b)
  return a < b
end

local locale = os.setlocale(nil, 'collate')
local operator_is_right = jit ~= nil or locale == 'C' or locale == 'POSIX' or locale == 'C.UTF-8'
order.less = operator_is_right and by_operator or bytewise

local state = 1

-- Park and Miller's generator: exact in doubles, so every Lua engine draws the same numbers from the same seed.
local function draw(limit)
  state = state * 16807 % 2147483647
  return state % limit + 1
end

function order.seed(number)
  state = number % 2147483646 + 1
  for _ = 1, 3 do draw(1) end
end

-- The keys of a table in an order that nobody may rely on: sorted first, so that it depends on the seed alone.
function order.shuffled_keys(map)
  local list, size = {}, 0
  for key in pairs(map) do
    size = size + 1
    list[size] = key
  end
  table.sort(list, order.less)
  for i = size, 2, -1 do
    local j = draw(i)
    list[i], list[j] = list[j], list[i]
  end
  return list, size
end

function order.sorted_keys(map)
  local list = {}
  for key in pairs(map) do list[#list + 1] = key end
  table.sort(list, order.less)
  return list
end

return order
