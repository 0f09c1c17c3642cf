-- What members can work. A member names one subscription when it joins: a list of resources, which it has in common with all whose
-- declaration is the same. "-" is the group's own list, of those who leave it to somebody else; until there is one, what no list names
-- is theirs.
--
-- DECLARED holds "subscription resource". While all members have one subscription, everything in the group is on its list, and
-- quotas say who should have how many (40_shares.lua); otherwise the lists are asked (75_evenness.lua).
--
-- A list is replaced by one of a higher version. How far that is, is the group's own in the scalars list_… and walk…, of any other in
-- the field u:<subscription>: version hash done walker complete walk_until; complete is the highest version that was known as a whole.

-- What done says: 0 or one of these. Not all of it is known | all is | all was added while recovering, when nothing is removed | the walk
-- began then.
local lists = {KNOWN = 1, ADDED = 2, ADDS = 3}

do

local named, how_many -- subscriptions in the order they came; how many members each has
local present, remembered -- those that somebody has, and all; made of the former when they are asked for
local known = {}

-- Of the members with one subscription that begins with ~ one is elected, its head, to look for what is on the list. G.heads has
-- "subscription=member " for each, with - for the member while there is none; then every heartbeat settles, and the next one is it.
function lists.is_head(id) return string.find(G.heads, '=' .. id .. ' ', 1, true) end

-- The head of a subscription, and what G.heads has of the others.
local function head_of(id)
  local head, others = nil, ''
  for subscription, it in string.gmatch(G.heads, '([^ =]+)=(%S+) ') do
    if subscription == id then head = it else others = others .. subscription .. '=' .. it .. ' ' end
  end
  return head, others
end

local function set_head(id, head)
  local _, others = head_of(id)
  G.heads = head and others .. id .. '=' .. head .. ' ' or others
end

function lists.elect(m)
  if string.sub(m.subscription, 1, 1) ~= '~' then return end
  local head = head_of(m.subscription)
  if not head or not is_live(member(head)) then set_head(m.subscription, m.id) end
end

function lists.unelect(id)
  if lists.is_head(id) then set_head(member(id).subscription, '-') end
end

local function read_subscriptions()
  if named then return end
  named, how_many = {}, {}
  for id, count in string.gmatch(G.subscriptions, '(%S+)=(%S+)') do
    named[#named + 1], how_many[id] = id, whole(count) or unreadable('state', 'subscriptions')
  end
end

function lists.save_subscriptions()
  if not named then return end
  local out = {}
  for i = 1, #named do
    if how_many[named[i]] then out[#out + 1] = named[i] .. '=' .. int(how_many[named[i]]) end
  end
  G.subscriptions = table.concat(out, ' ')
end

-- Those that somebody has; if nobody is there, or all are asked for, those that are remembered.
function lists.subscriptions(all_of_them)
  read_subscriptions()
  if not present then
    present, remembered = {}, {}
    for i = 1, #named do
      local count = how_many[named[i]]
      if count then remembered[#remembered + 1] = named[i] end
      if count and count > 0 then present[#present + 1] = named[i] end
    end
  end
  return (#present > 0 and not all_of_them) and present or remembered, #present < #remembered and #present > 0
end

-- Each that somebody has costs every grant a question, while there are several.
local MOST = 32

function lists.has_no_room_for(id)
  local all, had = lists.subscriptions(), 0
  for i = 1, #all do
    if how_many[all[i]] > 0 then had = had + 1 end
  end
  return had >= MOST and lists.members_of(id) == 0
end

-- Some that nobody has are let go of before all others are known.
function lists.are_too_many()
  read_subscriptions()
  return #named > MOST
end

-- What only this list names may be removed from now on. Should somebody come back, the walk starts over.
local function doubt(id)
  local l = lists.of(id)
  if l.version == 0 then return end
  if l.done ~= lists.KNOWN then lists.sweep_later() end
  l.version, l.complete, l.done, l.walker = 0, 0, 0, ''
  lists.put(id, l)
end

-- A list that nobody has is let go of, as soon as somebody is there with another, and all of those are known, or there are too many.
-- What could not be removed before is, too.
function lists.let_go_later()
  if G.sweep ~= '' then set_timer('u', now) end
  local _, is_forgotten = lists.subscriptions()
  for i = 1, is_forgotten and #named or 0 do
    if how_many[named[i]] == 0 then
      doubt(named[i])
      set_timer('l:' .. named[i], now)
    end
  end
end

function lists.forget_members()
  read_subscriptions()
  for i = 1, #named do how_many[named[i]] = 0 end
  present = nil
end

function lists.count(id, delta)
  read_subscriptions()
  if not how_many[id] then
    named[#named + 1], how_many[id] = id, 0
  elseif how_many[id] == 0 then
    call('ZREM', TIMERS, 'l:' .. id)
  end
  how_many[id], present = how_many[id] + delta, nil
  if how_many[id] == 0 then set_head(id, nil) end
  G.uneven, G.round = 1, G.round + 1
  if not lists.are_counted_anew then lists.let_go_later() end
end

function lists.of(id)
  if known[id] then return known[id] end
  local l
  if id == '-' then
    l = {
      version = G.list_version, hash = G.list_hash, done = G.list_done, walker = G.walker, walk_until = G.walk_until,
      complete = G.list_complete,
    }
  else
    local field = 'u:' .. id
    local packed = call('HGET', STATE, field) or '0 - 0 - 0 0'
    local version, hash, done, walker, complete, walk_until = string.match(packed, '^(%d+) (%S+) (%d) (%S+) ?(%d*) (%d+)$')
    walker = walker == '-' and '' or walker
    if not version then unreadable('state', field) end
    version, complete, walk_until = whole(version), whole(complete == '' and version or complete), whole(walk_until)
    if not (version and complete and walk_until) then unreadable('state', field) end
    l = {
      version = version, hash = hash, done = tonumber(done), walker = walker, walk_until = walk_until, complete = complete,
    }
  end
  known[id] = l
  return l
end

function lists.put(id, l)
  known[id] = l
  if id == '-' then
    G.list_version, G.list_hash, G.list_done, G.walker, G.walk_until = l.version, l.hash, l.done, l.walker, l.walk_until
    G.list_complete = l.complete
  else
    local walker = l.walker == '' and '-' or l.walker
    keep('u:' .. id, int(l.version) .. ' ' .. l.hash .. ' ' .. int(l.done) .. ' ' .. walker .. ' ' .. int(l.complete) .. ' ' .. int(l.walk_until))
  end
end

function lists.forget_walks()
  local all = lists.subscriptions()
  for i = 1, #all do
    local l = lists.of(all[i])
    l.done = 0
    lists.put(all[i], l)
  end
  G.list_done = 0
end

function lists.is_known(id) return id == '-' and G.list_version == 0 or lists.of(id).done == lists.KNOWN end

-- How a lower version is answered. It counts if the higher one never was known as a whole, and who began that has gone, or is the one who
-- declares the lower one now.
function lists.refusal(l, version)
  if version >= l.version then return end
  if l.done == lists.KNOWN or l.walker == '' or version < l.complete then return 'IGNORED' end
  local walker = l.walker ~= ARGV[3] and member(l.walker)
  if walker and walker.status == 'active' then return 'WAIT' end
end

-- Somebody sends a list: what is on it is not all known yet. Until when that is believed.
function lists.walked_until()
  local all, latest = lists.subscriptions(), 0
  for i = 1, #all do
    local l = lists.of(all[i])
    if l.walker ~= '' then latest = max(latest, l.walk_until) end
  end
  return latest
end

-- All but one, if it is named.
function lists.are_known(but)
  local all = lists.subscriptions()
  for i = 1, #all do
    if all[i] ~= but and not lists.is_known(all[i]) then return false end
  end
  return true
end

-- The one subscription that everybody has, if everything in the group is on its list.
function lists.common()
  local all, is_forgotten = lists.subscriptions()
  if #all == 1 and not is_forgotten and G.sweep == '' and (all[1] == '-' or lists.is_known(all[1])) then return all[1] end
end

function lists.members_of(id)
  read_subscriptions()
  return how_many[id] or 0
end

-- It is no subscription any more.
function lists.forget(id)
  read_subscriptions()
  how_many[id], present = nil, nil
  for i = #named, 1, -1 do
    if named[i] == id then table.remove(named, i) end
  end
  kept['u:' .. id] = nil
  call('HDEL', STATE, 'u:' .. id)
end

local NOTHING = 'e3b0c44298fc1c14' -- the hash of a list without names, as members compute it (declaration.py)

-- Somebody has deleted what we knew.
function lists.are_lost()
  local all = lists.subscriptions(true)
  for i = 1, #all do
    local id = all[i]
    local is_empty = call('ZLEXCOUNT', DECLARED, '[' .. id .. ' ', '(' .. id .. '!') == 0
    if is_empty and lists.of(id).done == lists.KNOWN and lists.of(id).hash ~= NOTHING then return true end
  end
  return false
end

-- What a list does not name any more leaves DECLARED after the records, or what a script had not removed before it died would be on no list.
local struck, dropped, reasons, timers = {}, {}, {}, {}
lists.questions = 0 -- how often DECLARED was asked in this call

function lists.drop(entry) dropped[#dropped + 1] = entry end

function lists.strike(id, name)
  struck[id .. ' ' .. name] = true
  lists.drop(id .. ' ' .. name)
end

-- Why it was halted, and when that will not matter any more, of one that is on a list again.
function lists.forget_removal(name)
  reasons[#reasons + 1], timers[#timers + 1] = 'z:' .. name, 'o:' .. name
end

function lists.save_dropped()
  call_with('ZREM', DECLARED, dropped)
  call_with('HDEL', STATE, reasons)
  call_with('ZREM', TIMERS, timers)
  dropped, reasons, timers = {}, {}, {}
end

local function is_declared(id, name)
  if id == '-' and G.list_version == 0 then return false end -- the rest of a list that is being let go of
  lists.questions = lists.questions + 1
  return not struck[id .. ' ' .. name] and call('ZSCORE', DECLARED, id .. ' ' .. name)
end

-- Those of the subscriptions that name a resource.
function lists.naming(name)
  local all, out, is_left_to_others = lists.subscriptions(), {}, false
  for i = 1, #all do
    if is_declared(all[i], name) then out[#out + 1] = all[i] end
    is_left_to_others = is_left_to_others or all[i] == '-' and G.list_version == 0
  end
  if not out[1] and is_left_to_others then out[1] = '-' end
  return out
end

function lists.can_work(m, name)
  if is_declared(m.subscription, name) then return true end
  return m.subscription == '-' and G.list_version == 0 and lists.naming(name)[1] == '-'
end

end
