-- What members must hear. FEED holds "member version resource": that something about this resource changed for this
-- member at that version. The reply carries the *present* state, so hearing it twice, or late, does no harm.

local publish, heard_by
do

local database = string.match(ARGV[1], '/.*$') or '' -- Redis has one set of channels for all of them

local function channel(id) return string.sub(STATE, 1, -6) .. 'n:' .. id .. database end -- the state key ends in "state"

-- Not more than a hint: a user who may not publish goes on without.
function publish(id, version) return redis.pcall('PUBLISH', channel(id), int(version)) end

-- The same, and how many listen: in a cluster, on this node only; nil if nobody can tell. PUBLISH counts patterns, too, such as
-- a monitor's PSUBSCRIBE *, so its count is only an upper bound, which has to do where NUMSUB is not permitted.
function heard_by(id, version)
  local most = tonumber(publish(id, version))
  return most and most > 0 and redis.pcall('PUBSUB', 'NUMSUB', channel(id))[2] or most
end

end

-- Asks everybody who listens to call, members of this data or not. How many they are.
local function call_all() return heard_by('-', -1) or 0 end

-- The elected coordinator ticks at the next deadline: it is woken (-1: ask) when that comes sooner than it expects.
local function wake_coordinator(answered)
  local before = tonumber(saved.due or '0')
  if before > 0 and G.due < before and G.coordinator ~= '' and G.coordinator ~= answered then
    publish(G.coordinator, -1)
  end
end

local tell, save_feed, notify, changes_for
do

local notified, notified_order = {}, {}
local news = {} -- scores and entries to be put into FEED

function tell(id, name)
  local m = member(id)
  if not is_live(m) then return end
  local at = #news
  news[at + 1], news[at + 2] = '0', id .. ' ' .. wide(G.version) .. ' ' .. name
  if not notified[id] then notified_order[#notified_order + 1] = id end
  notified[id] = G.version
end

function save_feed()
  call_with('ZADD', FEED, news)
  news = {}
end

-- A hint only: the version in the next reply is the truth, a lost hint costs one heartbeat. Nobody is
-- woken for what the reply itself tells.
function notify(answered)
  local fields = {}
  for i = 1, #notified_order do
    local id = notified_order[i]
    if is_live(member(id)) then
      fields[#fields + 1] = 'c:' .. id
      fields[#fields + 1] = int(notified[id])
      if id ~= answered then publish(id, notified[id]) end
    end
  end
  call_with('HSET', STATE, fields)
end

-- A revocation's deadline runs from the first reply that carries it: nobody is timed before being notified. Should that reply be lost, its
-- holder goes by its lease, which may have begun under longer timeouts, or behind a barrier that is almost over.
local armed = {}

local function arm(r)
  if r.deadline > 0 then return end
  r.postponed = false
  r.deadline = max(G.lease, G.barrier > 0 and max(G.barrier, now + G.heartbeat_ms) or now + G.revocation_ms)
  put_resource(r)
  armed[#armed + 1], armed[#armed + 2] = int(r.deadline), r.name
end

local function present_state(id, name)
  local r = resource(name)
  if not r or r.owner ~= id then return {'lost', name, r and r.token or G.token, 0, false} end
  if r.status == 'pending' then
    arm(r)
    return {'revoke', name, r.token, r.deadline, false}
  end
  if r.status == 'granted' then
    r.status = 'held'
    put_resource(r)
  end
  return {'hold', name, r.token, tries_of(r), offset_of(name)}
end

-- Changes since the member's cursor, at most one page, revocations and losses first; the new cursor; whether more wait.
function changes_for(id, cursor)
  local prefix, high = id .. ' ', '(' .. id .. '!'
  local after = '(' .. prefix .. wide(cursor) .. '!'
  call('ZREMRANGEBYLEX', FEED, '[' .. prefix, after)
  local entries = call('ZRANGEBYLEX', FEED, after, high, 'LIMIT', '0', int(G.moves + 1))
  local urgent, rest, seen, reached = {}, {}, {}, G.version
  local page = min(#entries, G.moves)
  local names = last_words(entries)
  fetch_resources(names)
  offsets.fetch(names)
  for i = 1, page do
    local name = names[i]
    if not seen[name] then
      seen[name] = true
      local change = present_state(id, name)
      local list = change[1] == 'hold' and rest or urgent
      list[#list + 1] = change
    end
  end
  if page < #entries then reached = tonumber(string.match(entries[page], '^%S+ (%d+) ')) end
  call_with('ZADD', DEADLINES, armed)
  for i = 1, #rest do urgent[#urgent + 1] = rest[i] end
  return urgent, reached, page < #entries
end

end
