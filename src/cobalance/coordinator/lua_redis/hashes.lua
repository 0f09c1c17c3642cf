-- Hashes. Whatever Redis returns in no promised order comes out shuffled.

local values = require 'values'
local keyspace = require 'keyspace'
local order = require 'order'

local text, integer, fail = values.text, values.integer, values.fail

local hashes = { arity = {}, commands = {} }
local commands, arity = hashes.commands, hashes.arity

local function hash_to_write(key)
  return keyspace.write(key, 'hash') or keyspace.create(key, { kind = 'hash', fields = {}, size = 0 })
end

local function put(entry, field, value)
  local is_new = entry.fields[field] == nil
  entry.fields[field] = value
  if is_new then entry.size = entry.size + 1 end
  return is_new and 1 or 0
end

arity.HGET = 2
function commands.HGET(key, field)
  local entry = keyspace.read(text(key), 'hash')
  return entry and entry.fields[text(field)] or false
end

arity.HSET = -3
function commands.HSET(key, field, value, ...)
  key, field, value = text(key), text(field), text(value)
  if select('#', ...) == 0 then return put(hash_to_write(key), field, value) end
  local more, size = values.texts(...)
  if size % 2 == 1 then values.wrong_arity() end
  local entry = hash_to_write(key)
  local added = put(entry, field, value)
  for i = 1, size, 2 do added = added + put(entry, more[i], more[i + 1]) end
  return added
end

arity.HMGET = -2
function commands.HMGET(key, ...)
  local entry = keyspace.read(text(key), 'hash')
  local fields, size = values.texts(...)
  for i = 1, size do fields[i] = entry and entry.fields[fields[i]] or false end
  return fields
end

arity.HDEL = -2
function commands.HDEL(key, ...)
  key = text(key)
  local names, size = values.texts(...)
  local entry = keyspace.write(key, 'hash')
  if not entry then return 0 end
  local taken, fields = 0, entry.fields
  for i = 1, size do
    if fields[names[i]] ~= nil then
      fields[names[i]] = nil
      taken = taken + 1
    end
  end
  entry.size = entry.size - taken
  if entry.size == 0 then keyspace.delete(key) end -- an empty key is no key
  return taken
end

arity.HEXISTS = 2
function commands.HEXISTS(key, field)
  local entry = keyspace.read(text(key), 'hash')
  return entry and entry.fields[text(field)] ~= nil and 1 or 0
end

-- Fields are visited in the order of a number made of their names, and that number is the cursor: whatever is there all the
-- time is visited, as in Redis. A page holds all fields of one number, so it may be longer than it should. Each server has
-- numbers of its own, so a cursor of another one's is worth nothing.
local PLACES = 65536
local salt = 7

function hashes.salt(number) salt = number % PLACES end

local function place_of(name)
  local place = salt
  for i = 1, #name do place = (place * 31 + name:byte(i)) % PLACES end
  return place + 1
end

local function places_from(fields, cursor)
  local at, list = {}, {}
  for _, name in ipairs(order.sorted_keys(fields)) do
    local place = place_of(name)
    if place >= cursor then
      if not at[place] then
        at[place] = {}
        list[#list + 1] = place
      end
      at[place][#at[place] + 1] = name
    end
  end
  table.sort(list)
  return at, list
end

local function scan(fields, cursor, count)
  local at, places = places_from(fields, cursor)
  local visited, found = {}, 0
  for _, place in ipairs(places) do
    if found >= count then return visited, place end
    for _, name in ipairs(at[place]) do
      visited[name] = true
      found = found + 1
    end
  end
  return visited, 0
end

arity.HSCAN = -2
function commands.HSCAN(key, cursor, option, count)
  key, cursor = text(key), integer(cursor, 'ERR invalid cursor')
  if option ~= nil and text(option):upper() ~= 'COUNT' then
    keyspace.refuse('HSCAN: option ' .. text(option) .. ' is not supported')
  end
  count = option and integer(count) or 10
  if count < 1 then fail('ERR syntax error') end
  local entry = keyspace.read(key, 'hash')
  if not entry then return { '0', {} } end
  local visited, following = scan(entry.fields, cursor, count)
  local list = {}
  for _, name in ipairs((order.shuffled_keys(visited))) do
    list[#list + 1] = name
    list[#list + 1] = entry.fields[name]
  end
  return { values.number_text(following), list }
end

return hashes
