-- Packed records of members and resources, read through a cache. Members are written at once, resources together at the
-- end of the call, since some change twice on the way.
--
-- Resource: status owner token since deadline rank removing avoid ended
--   status    free | granted (held, but no reply has carried it yet) | held | pending (revocation) | halted (its holder cannot
--             get on: nobody works it before an operator resumes it, and it counts in nobody's share)
--   token     of the current tenure, or of the last one when free
--   since     ms at which this status began
--   deadline  ms; 0 until a reply has carried the revocation; negative once a silence has put it off
--   rank      2 idle, 1 busy, 0 pinned: the order in which surplus is picked, from the highest
--   removing  1 once the resource list no longer names it
--   avoid     member@until_ms@tries: who gave it up and is not chosen again before then, and how many did so in a row; of a
--             halted one, why: halted:<word>, or halted:member=reason@until_ms@tries while it is only paused
--   ended     token of the tenure before: the handover_id of the next grant
-- Member: status capacity instance joined incarnation request reason label subscription
--   status    active | leaving | graced (instance id kept for the rejoin grace) | dead (being emptied) | ended
--   request   the last request, kept for the tombstone only
--   reason    whom it succeeds under the same instance id; of one that has ended, why

local resource_cache, member_cache = {}, {}

local STATUSES = {free = true, granted = true, held = true, pending = true, halted = true}
local fetch_resources, fetch_members, resource, member, offset_of
local offsets = {}
do

local MEMBER_STATUSES = {active = true, leaving = true, graced = true, dead = true, ended = true}

local packed_resources, packed_members = {}, {} -- fetched, but not looked at yet; false where there is none

-- Fields of a hash, in as many commands as Lua's stack demands.
local function read_many(key, names, into)
  for from = 1, #names, 2000 do
    local values = call('HMGET', key, unpack(names, from, min(from + 1999, #names)))
    for i = 1, #values do into[names[from + i - 1]] = values[i] end
  end
end

local function fetch(key, packed, cache, names)
  local missing = {}
  for i = 1, #names do
    if not cache[names[i]] then missing[#missing + 1] = names[i] end
  end
  read_many(key, missing, packed)
end

-- For those that will be looked at: one command instead of one each.
function fetch_resources(names) fetch(RESOURCES, packed_resources, resource_cache, names) end

function fetch_members(ids) fetch(MEMBERS, packed_members, member_cache, ids) end

local known = {} -- as fetched or written in this call; false where there is none

function offsets.fetch(names) read_many(OFFSETS, names, known) end

function offset_of(name)
  local offset = known[name]
  if offset == nil then offset = call('HGET', OFFSETS, name) end
  return offset and (whole(offset) and offset or unreadable('offsets', name))
end

function offsets.put(name, offset)
  known[name] = offset
  call('HSET', OFFSETS, name, offset)
end

function resource(name)
  local r = resource_cache[name]
  if r ~= nil then return r end
  local packed = packed_resources[name]
  if packed == nil then packed = call('HGET', RESOURCES, name) end
  if not packed then return nil end
  local status, owner, token, since, deadline, rank, removing, avoid, ended =
    string.match(packed, '^(%l+) (%S+) (%d+) (%d+) (%-?%d+) (%d) ([01]) (%S+) (%d+)$')
  if not STATUSES[status] then unreadable('resources', name) end
  token, since, deadline, ended = number(token), number(since), number(deadline), number(ended)
  if not (token and since and deadline and ended) then unreadable('resources', name) end
  r = {
    name = name, status = status, owner = owner, token = token, since = since, deadline = abs(deadline), postponed = deadline < 0,
    rank = rank, removing = removing == '1', avoid = avoid, ended = ended,
  }
  resource_cache[name], packed_resources[name] = r, nil
  return r
end

function member(id)
  local m = member_cache[id]
  if m ~= nil then return m end
  local packed = packed_members[id] or call('HGET', MEMBERS, id)
  if not packed then return nil end
  local status, capacity, instance, joined, incarnation, request, reason, label, subscription =
    string.match(packed, '^(%l+) (%d+) (%S+) (%d+) (%d+) (%-?%d+) (%S+) (%S+) ?(%S*)$')
  if not MEMBER_STATUSES[status] then unreadable('members', id) end
  capacity, joined, incarnation, request = number(capacity), number(joined), number(incarnation), number(request)
  if not (capacity and joined and incarnation and request) then unreadable('members', id) end
  m = {
    id = id, status = status, capacity = capacity, instance = instance, joined = joined, incarnation = incarnation,
    request = request, reason = reason, label = label,
    subscription = subscription == '' and '-' or subscription,
  }
  member_cache[id], packed_members[id] = m, nil
  return m
end

end

local function drop_resource(name)
  resource_cache[name] = nil
  call('HDEL', RESOURCES, name)
end

-- One command of many words, in as many calls as Lua's stack demands.
local function call_with(command, key, words, option)
  local batch = 2000
  for from = 1, #words, batch do
    local to = min(from + batch - 1, #words)
    if option then call(command, key, option, unpack(words, from, to)) else call(command, key, unpack(words, from, to)) end
  end
end

local put_resource, save_resources
do

local changed, is_changed = {}, {} -- names of resources to be written

function put_resource(r)
  resource_cache[r.name] = r
  if is_changed[r.name] then return end
  is_changed[r.name] = true
  changed[#changed + 1] = r.name
end

function save_resources()
  local out = {}
  for i = 1, #changed do
    local r = resource_cache[changed[i]]
    if r then
      out[#out + 1] = r.name
      local sign = r.postponed and r.deadline > 0 and '-' or ''
      out[#out + 1] = r.status .. ' ' .. r.owner .. ' ' .. int(r.token) .. ' ' .. int(r.since) .. ' ' .. sign
        .. int(r.deadline) .. ' ' .. r.rank .. ' ' .. (r.removing and '1' or '0') .. ' ' .. r.avoid .. ' ' .. int(r.ended)
    end
  end
  changed, is_changed = {}, {}
  call_with('HSET', RESOURCES, out)
end

end

local function put_member(m)
  member_cache[m.id] = m
  call('HSET', MEMBERS, m.id, m.status .. ' ' .. int(m.capacity) .. ' ' .. m.instance .. ' ' .. int(m.joined) .. ' '
    .. int(m.incarnation) .. ' ' .. int(m.request) .. ' ' .. m.reason .. ' ' .. m.label .. ' ' .. m.subscription)
end

-- How often in a row it was given up, as its present holder knows.
local function tries_of(r) return tonumber(string.match(r.avoid, '@(%d+)$') or '0') end

local function is_live(m) return m ~= nil and (m.status == 'active' or m.status == 'leaving') end
