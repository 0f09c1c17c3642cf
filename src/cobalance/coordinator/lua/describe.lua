-- describe: what the group looks like now, in pages.
--
-- KEYS     the group's keys (keys.py)
-- ARGV     1-8 as every verb (member "-"); 9 state | members | resources | subscriptions | declared | offsets, 10 cursor ("" begins), 11 page size
-- Returns  as heartbeat; results: next cursor ("" is the end), then rows
--          state      name, value, …; repaired is 1 if this very call has mended what a script left that died
--          members    {id, status, capacity, instance, label, joined, request, expires, kept, pending, quota floor, ceil,
--                     subscription, its report of what it has in flight, and when that came (report.lua)}
--          subscriptions  {subscription, members, version of its list, its hash, whether all of it is known, how many names}
--          declared  {text}: in each line a resource on the list of the subscription that the cursor names
--          offsets  {resource, committed, when it is forgotten} of what was let go of
--          resources  {text}: in each line a name, its record (20_records.lua) and what is committed, which may be empty
-- A cursor is the last entry of its page, not a place in an order: what is there all the time is in one page, whatever comes and goes.
-- One text for a page, since Redis takes longer to reply with many words than to read them.
--- @prelude

local wrong = malformed('wtn')
if wrong then return wrong end

local CURSOR_AT, PAGE = ARGV[FIRST + 1], tonumber(ARGV[FIRST + 2])

local function state_rows()
  results[1] = ''
  for i = 1, #TEXTS do results[#results + 1] = TEXTS[i]; results[#results + 1] = G[TEXTS[i]] end
  for i = 1, #NUMBERS do results[#results + 1] = NUMBERS[i]; results[#results + 1] = int(G[NUMBERS[i]]) end
  results[#results + 1] = 'repaired'
  results[#results + 1] = repaired and '1' or '0'
  local sizes = {'free', FREE, 'members', LOAD, 'owned', OWNED, 'names', NAMES, 'timers', TIMERS}
  for i = 1, #sizes, 2 do
    results[#results + 1] = sizes[i]
    results[#results + 1] = int(call('ZCARD', sizes[i + 1]))
  end
end

local function member_row(id)
  local m = member(id)
  local low, high = quota_of(m)
  local pending = call('ZLEXCOUNT', OWNED, '[' .. id .. ' p', '(' .. id .. ' s')
  local ends = m.status == 'graced' and grace_given_up_at(id) or session_given_up_at(id)
  return {id, m.status, int(m.capacity), m.instance, m.label, int(m.joined), int(last_request(id)), int(ends), int(kept_by(m)),
    int(pending), int(low), int(high), m.subscription, call('HGET', STATE, 'w:' .. id) or ''}
end

local MOST_BYTES = 256 * 1024 -- bytes: what members report may be much longer than all else

-- A page ends early where members have reported much.
local function member_rows()
  local size, ids = 0, call('ZRANGEBYLEX', IDS, CURSOR_AT == '' and '-' or '(' .. CURSOR_AT, '+', 'LIMIT', '0', int(PAGE))
  results[1] = #ids == PAGE and ids[#ids] or ''
  for i = 1, #ids do
    if member(ids[i]) then
      local row = member_row(ids[i])
      results[#results + 1], size = row, size + #row[#row]
      if size > MOST_BYTES then
        if i < #ids then results[1] = ids[i] end
        return
      end
    end
  end
end

local function subscription_rows()
  results[1] = ''
  local all = lists.subscriptions(true)
  for i = 1, #all do
    local id = all[i]
    local l, prefix = lists.of(id), '[' .. id
    results[i + 1] = {id, int(lists.members_of(id)), int(l.version), l.hash, int(l.done),
      int(call('ZLEXCOUNT', DECLARED, prefix .. ' ', '(' .. id .. '!'))}
  end
end

-- The cursor is a subscription, and behind it the name after which to go on.
local function declared_rows()
  local id = string.match(CURSOR_AT, '^%S*')
  local low = id == CURSOR_AT and '[' .. id .. ' ' or '(' .. CURSOR_AT
  local entries = call('ZRANGEBYLEX', DECLARED, low, '(' .. id .. '!', 'LIMIT', '0', int(PAGE))
  results[1] = #entries == PAGE and entries[#entries] or ''
  for i = 1, #entries do entries[i] = last_word(entries[i]) end
  results[2] = {table.concat(entries, '\n')}
end

-- How many timers lie not behind the one that the cursor names, which may be gone, by when it is due. Those due at one moment are
-- in the order of their names.
local function count_up_to_cursor()
  local due, id = string.match(CURSOR_AT, '^(%S+) (.*)$')
  if not due then return 0 end
  local low = tonumber(redis.pcall('ZCOUNT', TIMERS, '-inf', '(' .. due)) or 0 -- somebody's cursor may be none of ours
  local high = tonumber(redis.pcall('ZCOUNT', TIMERS, '-inf', due)) or 0
  while low < high do
    local middle = floor((low + high) / 2)
    if is_before(id, call('ZRANGE', TIMERS, int(middle), int(middle))[1]) then high = middle else low = middle + 1 end
  end
  return low
end

-- Timers of other kinds are passed over, so that a page may be short.
local function offset_rows()
  local from = count_up_to_cursor()
  local found = call('ZRANGE', TIMERS, int(from), int(from + PAGE - 1), 'WITHSCORES')
  results[1] = #found == 2 * PAGE and found[#found] .. ' ' .. found[#found - 1] or ''
  for i = 1, #found, 2 do
    local name = string.match(found[i], '^o:(.*)$')
    local offset = name and offset_of(name)
    if offset then results[#results + 1] = {name, offset, int(min(tonumber(found[i + 1]), TOP))} end
  end
end

-- Captures little, which is quicker than to read a record. resource() raises what is wrong with one that is not of this form.
local RECORD = '^(%l+) %S+ %d+ %d+ %-?%d+ %d [01] %S+ %d+$'

local function resource_rows()
  local low = CURSOR_AT == '' and '-' or '(' .. CURSOR_AT
  local names = call('ZRANGEBYLEX', NAMES, low, '+', 'LIMIT', '0', int(PAGE))
  results[1] = #names == PAGE and names[#names] or ''
  if #names == 0 then return end
  save_resources() -- records that this call has changed
  local records, offsets = call('HMGET', RESOURCES, unpack(names)), call('HMGET', OFFSETS, unpack(names))
  for i = 1, #names do
    if not STATUSES[string.match(records[i] or '', RECORD)] then resource(names[i]) end
    if offsets[i] and not whole(offsets[i]) then unreadable('offsets', names[i]) end
    names[i] = names[i] .. ' ' .. records[i] .. ' ' .. (offsets[i] or '')
  end
  results[2] = {table.concat(names, '\n')}
end

if ARGV[2] ~= PROTOCOL then return refuse('PROTOCOL') end
if G.incarnation == 0 then return refuse('UNKNOWN') end
check_server()
if now >= G.due then settle() end
save_owned()
free.save()
local rows = {state = state_rows, members = member_rows, resources = resource_rows, subscriptions = subscription_rows,
  declared = declared_rows, offsets = offset_rows}
(rows[ARGV[FIRST]] or resource_rows)()
return reply('OK')
