-- Repair, after a script that died between two writes, or on demand: whatever is derived (indices, totals, timers, instance ids)
-- is rebuilt from the records of members, resources and offsets.
--
-- One call does a page, so that Redis is never blocked; how far it has come stands where the group's pulse would be, so that every
-- other verb stops short and does the next page first. A page that dies makes it start over. Nothing is settled meanwhile, and
-- for the clock it is a silence like any other. What the dead script had in the journal and not in the records is taken back,
-- by a line for each resource and member it speaks of, and a last one that says behind which line its own begin. FEED stays: it has all
-- news of what is on record, and to hear more is harmless.

local repair, go_on_repairing, clear_remains

do -- a block of their own: Lua has room for 200 locals in a script

local SHARE = 0.5 -- of the moves that a call may do: as many records
local FIELD, SEEN, GONE = 0.02, 0.1, 0.5 -- what a scalar costs, a record that needs nothing, and one of somebody who is gone, of one that is mended

local function ensure_timer(id, at_ms) return call('ZADD', TIMERS, 'NX', int(at_ms), id) end

local function is_counted(m) return is_live(m) or (m ~= nil and m.status == 'graced') end

-- Of two members with one instance id the living one has it, then the one that came last.
local function mend_instance(m)
  local field = '=' .. m.instance
  local id = call('HGET', MEMBERS, field)
  local other = id and id ~= m.id and member(id)
  if other and other.instance == m.instance and is_counted(other) then
    if is_live(other) and not is_live(m) then return end
    if is_live(other) == is_live(m) and other.joined >= m.joined then return end
  end
  call('HSET', MEMBERS, field, m.id)
end

local mend_member = {}

function mend_member.active(m)
  local _, ends = vitals(m.id)
  if ends == 0 then
    ends = now + G.session_ms
    call('HSET', STATE, 'r:' .. m.id, int(m.request) .. ' ' .. int(ends))
  end
  call('HSET', STATE, 'c:' .. m.id, int(G.version)) -- everybody asks what there is to hear
  keep('k:' .. m.id, '0')
  keep('h:' .. m.id, '')
  ensure_timer('s:' .. m.id, ends)
end

mend_member.leaving = mend_member.active

function mend_member.graced(m)
  if grace_end(m.id) == 0 then call('HSET', STATE, 'g:' .. m.id, int(now + G.grace_ms)) end
  ensure_timer('g:' .. m.id, grace_end(m.id))
  ensure_timer('p:' .. m.id, now)
  ensure_timer('h:' .. m.id, now)
end

function mend_member.dead(m) ensure_timer('e:' .. m.id, now) end

function mend_member.ended(m) ensure_timer('t:' .. m.id, now + TOMBSTONE_MS) end

local mend = {} -- each does one record, and gives its cost if there was something to do: a page may show records again

function mend.member(id)
  if string.sub(id, 1, 1) == '=' then
    local m = member(call('HGET', MEMBERS, id) or '')
    if not is_counted(m) or '=' .. m.instance ~= id then call('HDEL', MEMBERS, id) end
    return false
  end
  if call('ZSCORE', LOAD, id) then return false end
  local m = member(id)
  mend_member[m.status](m)
  if not is_live(m) then forget_request(id) end
  if m.status ~= 'graced' then call('HDEL', STATE, 'g:' .. id) end
  if not is_counted(m) then return GONE end
  call('ZADD', LOAD, load_score(class_of(m), 0), id)
  enter_shares(m)
  if m.instance ~= '-' then mend_instance(m) end
  return 1
end

local function mend_owned(r)
  local m = member(r.owner)
  enter_owned(r)
  add_token(m, r.token)
  if r.deadline > 0 then call('ZADD', DEADLINES, int(r.deadline), r.name) end
  if r.status ~= 'pending' then
    if m.status ~= 'dead' then shift(m, 1) end
  elseif m.status == 'active' and not r.removing then
    enter_revoking(m)
  end
end

-- Somebody may work on what is not on record any more: nobody is given anything before all have said what they hold.
local function recover()
  if G.recovering >= now + G.session_ms then return end
  G.incarnation = max(G.incarnation + 1, real_us)
  G.began, G.recovering = now, now + G.session_ms
  set_timer('r', G.recovering)
  lists.forget_walks()
  call_all()
end

-- The member's record is gone, the members' key or a field of it.
local function forget_unrecorded(id)
  forget_request(id)
  call('HDEL', STATE, 'g:' .. id)
  call('ZREMRANGEBYLEX', FEED, '[' .. id .. ' ', '(' .. id .. '!')
end

function mend.resource(name)
  if call('ZADD', NAMES, '0', name) == 0 then return false end
  local r = resource(name)
  local owner, until_ms = member(r.owner), string.match(r.avoid, '@(%d+)@%d+$')
  if r.owner ~= '-' and (not owner or owner.status == 'ended') then
    if not owner then
      forget_unrecorded(r.owner)
      recover()
    end
    r.status, r.owner, r.since, r.deadline, r.rank = 'free', '-', now, 0, '2'
    put_resource(r)
  end
  if until_ms then ensure_timer('a:' .. name, until_ms) end
  if r.status ~= 'halted' and not r.removing then G.total = G.total + 1 end
  G.token = max(G.token, r.token)
  if r.owner ~= '-' then
    mend_owned(r)
  elseif r.status == 'free' then
    call('ZADD', FREE, r.removing and '0' or int(G.version), name)
  end
  return 1
end

function mend.offset(name)
  return call('HEXISTS', RESOURCES, name) == 0 and ensure_timer('o:' .. name, now + OFFSET_RETENTION_MS) == 1 and 1
end

-- Of one that had nothing: its timer may be gone, too.
function mend.field(field)
  local id = string.match(field, '^[rg]:(.+)$')
  if not id then return FIELD end
  if member(id) then return end
  forget_unrecorded(id)
  return GONE
end

local PAGES = {{MEMBERS, mend.member}, {RESOURCES, mend.resource}, {OFFSETS, mend.offset}, {STATE, mend.field}}

-- The journal's lines behind a seq: those of scripts that died.
local function torn_lines(seq)
  local lines, last = {}, '+'
  while true do
    local page = call('XREVRANGE', JOURNAL, last, '-', 'COUNT', '100')
    for i = 1, #page do
      local line = {}
      for n = 1, #page[i][2], 2 do line[page[i][2][n]] = page[i][2][n + 1] end
      local its = whole(line.seq or '') -- nobody else's line has one
      if its and its <= seq then return lines end
      if its then lines[#lines + 1] = line end
    end
    if #page == 0 then return lines end
    last = '(' .. page[#page][1]
  end
end

-- Says it unless the last line about it does: that of a repair that died. True if it is new.
local function tell(last, ...)
  local words, is_new = {...}, last.kind ~= 'repaired'
  for i = 1, #words, 2 do is_new = is_new or last[words[i]] ~= words[i + 1] end
  if is_new then journal('repaired', ...) end
  return is_new
end

local function tell_resource(last)
  local name = last.resource
  local r = resource(name)
  if not r then return tell(last, 'resource', name, 'reason', 'gone') end
  return tell(last, 'resource', name, 'member', r.owner, 'token', int(r.token),
    'reason', r.status .. (r.removing and ' removing' or ''))
end

local function tell_member(last)
  local m = member(last.member)
  return tell(last, 'member', last.member, 'reason', m and m.status or 'gone')
end

local function subject(line) return line.resource or '=' .. (line.member or '') end

-- True if that took any line.
local function take_back(lines)
  local last, is_new = {}, false
  for i = 1, #lines do
    local line = lines[i]
    G.version, G.token = max(G.version, whole(line.seq)), max(G.token, whole(line.token or '') or 0)
    last[subject(line)] = last[subject(line)] or line
  end
  for i = #lines, 1, -1 do
    local line = last[subject(lines[i])] or {}
    last[subject(lines[i])] = nil
    if line.resource then is_new = tell_resource(line) or is_new
    elseif line.member then is_new = tell_member(line) or is_new end
  end
  return is_new
end

local function end_repair(reason, seq)
  if not is_live(member(G.coordinator)) then G.coordinator = '' end
  if G.recovering > 0 then ensure_timer('r', G.recovering) end
  lists.sweep_later() -- a list may have been about to change
  lists.are_counted_anew = false
  lists.let_go_later()
  G.uneven = 1 -- what was to move may have been what the dead script did
  G.version, G.due, G.expires = seq, 0, 0
  saved.expires = '-1' -- some of the keys may expire as the dead script wanted it
  save_expiry() -- what may be refused comes before the journal: each attempt would add to that
  local lines = torn_lines(seq)
  tell(not take_back(lines) and lines[1] or {}, 'reason', reason .. (#lines > 0 and ' after ' .. int(seq) or '')
    .. (G.recovering > 0 and ' recovering' or '') .. (G.barrier > 0 and ' barrier' or ''))
  save_group()
end

-- What a page changes of the group's scalars.
local COUNTED = {'incarnation', 'began', 'recovering', 'list_done', 'total', 'graced_kept', 'live', 'graced', 'token'}

local function pause_repair(reason, page, cursor, server)
  save_expiry()
  for i = 1, #kept_fields do redis.call('HSET', STATE, kept_fields[i], kept[kept_fields[i]]) end
  local out = {'pulse', table.concat({reason, int(page), cursor, server}, ' '), 'classes', G.classes, 'subscriptions', G.subscriptions}
  for i = 1, #COUNTED do out[#out + 1], out[#out + 2] = COUNTED[i], int(G[COUNTED[i]]) end
  redis.call('HSET', STATE, unpack(out))
end

-- Mends records from the cursor on. Gives the next one, or the same when there was more than a call may do, since a small hash is
-- shown as a whole, whatever COUNT says; what is left to do in this call; and whether all records were seen.
local function mend_some(of, cursor, left)
  local found, worked = call('HSCAN', of[1], cursor, 'COUNT', int(max(left, 1))), false
  for i = 1, #found[2], 2 do
    if left <= 0 and worked then return cursor, 0, false end
    local cost = of[2](found[2][i]) or SEEN
    left, worked = left - cost, worked or cost == 1 -- that one needs nothing the next time
  end
  return found[1], left - SEEN, found[1] == '0'
end

-- Somebody else's data under a name of ours, where it is no record.
local function drop_foreign(key, ...)
  local reply = redis.pcall(...)
  if not tonumber(reply) and string.find(reply.err or '', 'WRONGTYPE', 1, true) then call('UNLINK', key) end
end

local function is_empty(hash)
  local found = redis.pcall('HSCAN', hash, '0', 'COUNT', '1')
  return found[1] == '0' and #found[2] == 0
end

local function count(key) return tonumber(redis.pcall('ZCARD', key)) or TOP end -- a key of a wrong type is not gone

-- There were resources, and their records are gone. A script that died may not have written the first ones yet.
local function are_records_lost(reason)
  if not is_empty(RESOURCES) then return false end
  return G.total > 0 or (reason ~= 'torn' and count(NAMES) + count(OWNED) > 0)
end

-- Where a group is made, there may have been one whose scalars are gone. Members at work bring claims; what nobody claims is free. Its
-- offsets and its journal stay. True if there was one: the next call repairs, so that no offset is kept for ever.
function clear_remains()
  local found = call('UNLINK', MEMBERS, RESOURCES, NAMES, OWNED, FEED, LOAD, IDS, MORE, LESS, LOOSE, REVOKING, FREE, TIMERS, DEADLINES, DECLARED)
  return found > 0 or not is_empty(OFFSETS)
end

-- Does a call's share of it. True when it is done.
function repair(reason, page, cursor, server)
  if server == nil or server == '' then server = IDENTITY end
  if IDENTITY ~= '' and IDENTITY ~= server then page, cursor, server = 0, '0', IDENTITY end -- each visits a hash in an order of its own
  local seq, left = max(G.version, G.history), max(SHARE * G.moves, 1)
  lists.are_counted_anew = true -- a list whose members are still to be counted is not one that nobody has
  G.version, G.ceilings = seq + 1, 0 -- later than what anybody has heard
  if page == 0 then
    local are_lost = are_records_lost(reason)
    if G.incarnation == 0 then clear_remains() end -- it was still being made: its maker begins again
    call('UNLINK', NAMES, OWNED, LOAD, IDS, MORE, LESS, LOOSE, REVOKING, FREE, DEADLINES)
    drop_foreign(DECLARED, 'ZCARD', DECLARED)
    lists.forget_members()
    drop_foreign(TIMERS, 'ZCARD', TIMERS)
    local is_list_lost = lists.are_lost()
    if are_lost or (is_list_lost and G.recovering > 0) then
      recover() -- everybody joins, claims and declares again
    elseif is_list_lost then -- what they have is on record: they join and declare again
      G.incarnation = max(G.incarnation + 1, real_us)
      lists.forget_walks()
    end
    drop_foreign(FEED, 'ZCARD', FEED)
    drop_foreign(JOURNAL, 'XREVRANGE', JOURNAL, '+', '-', 'COUNT', '1')
    G.total, G.graced_kept, G.classes, G.live, G.graced, page = 0, 0, '', 0, 0, 1
  end
  while left > 0 and page <= #PAGES do
    local all
    cursor, left, all = mend_some(PAGES[page], cursor, left)
    if all then page = page + 1 end
  end
  save_owned()
  free.save()
  save_resources()
  save_loads()
  save_classes()
  lists.save_subscriptions()
  if page > #PAGES then end_repair(reason, seq) else pause_repair(reason, page, cursor, server) end
  return page > #PAGES
end

-- Keeps something that may be asked back, and is in no order of those who may be asked.
local function is_overlooked()
  local id = redis.pcall('ZREVRANGEBYSCORE', LOAD, '(' .. int(TOP), '(0', 'LIMIT', '0', '1')[1]
  return id ~= nil and #lowest_owned(id, ' k1', ' l', 1) > 0
end

-- There is something that must end: members, what one has that is dead, or what the last answer said is due.
local function is_timed()
  return G.classes ~= '' or count(OWNED) > 0 or (G.due > 0 and G.due < TOP - 1 and count(DEADLINES) == 0)
end

-- Somebody has deleted a key, or Redis has evicted it. While there are members, each has a record, a timer and its places in the orders;
-- what is shared has a name and a record, and is owned or free; and lists have names. A script that needs a key of a wrong type says so.
local function is_key_gone()
  if count(TIMERS) == 0 and is_timed() then return true end
  if count(IDS) ~= count(LOAD) then return true end
  if G.classes == '' then return false end
  if count(LOAD) == 0 or (G.live > 0 and count(MORE) == 0) then return true end
  local someone = G.coordinator ~= '' and G.coordinator or redis.pcall('ZRANGE', LOAD, '0', '0')[1]
  if someone and redis.pcall('HEXISTS', MEMBERS, someone) == 0 then return true end
  local first = redis.pcall('ZRANGE', NAMES, '0', '0')[1]
  if first and redis.pcall('HEXISTS', RESOURCES, first) == 0 then return true end
  local owned = count(OWNED)
  if count(NAMES) == 0 and G.total + owned > 0 or owned + count(FREE) < G.total then return true end
  if count(DECLARED) == 0 and G.total > 0 and lists.are_lost() then return true end
  return (count(LESS) == 0 or count(LOOSE) == 0) and owned > 0 and is_overlooked()
end

-- Nil when there is nothing to repair. Without scalars there is no group, whatever else is left of it: who makes one clears that.
function go_on_repairing()
  local reason, page, cursor, server = string.match(G.pulse, '^(%l+) (%d) (%d+) ?(%S*)$')
  if reason then return repair(reason, tonumber(page), cursor, server) end
  if G.incarnation > 0 and is_key_gone() then return repair('gone', 0, '0') end
end

end
