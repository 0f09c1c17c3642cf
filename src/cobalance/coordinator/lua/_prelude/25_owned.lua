-- What members hold, in order: "member k<rank><token> resource" kept, p<since> pending, r<since> pending and being removed. Kept ones
-- sort by rank and token, pending ones (p cancellable) by age. Changes are written together, before the member's entries are read.

local enter_owned, leave_owned, save_owned, lowest_owned, highest_owned
do

local added, removed, has_unsaved = {}, {}, {} -- scores and entries; entries; by member
local batch = 1

local function entry_of(r)
  has_unsaved[r.owner] = true
  if r.status == 'pending' then
    return r.owner .. (r.removing and ' r' or ' p') .. wide(r.since) .. ' ' .. r.name
  end
  return r.owner .. ' k' .. r.rank .. wide(r.token) .. ' ' .. r.name
end

-- A function that counts OWNED has it called first.
function save_owned()
  call_with('ZREM', OWNED, removed)
  call_with('ZADD', OWNED, added)
  added, removed, has_unsaved, batch = {}, {}, {}, batch + 1
end

function enter_owned(r)
  local at = #added
  added[at + 1], added[at + 2], r.entered = '0', entry_of(r), batch
end

function leave_owned(r)
  if r.entered == batch then save_owned() end -- those that leave are written before those that enter
  removed[#removed + 1] = entry_of(r)
end

-- A member's entries between two prefixes, the first ones, or the last ones from behind.
function lowest_owned(id, from, to, count)
  if has_unsaved[id] then save_owned() end
  return call('ZRANGEBYLEX', OWNED, '[' .. id .. from, '(' .. id .. to, 'LIMIT', '0', int(count))
end

function highest_owned(id, from, to, count)
  if has_unsaved[id] then save_owned() end
  return call('ZREVRANGEBYLEX', OWNED, '(' .. id .. to, '[' .. id .. from, 'LIMIT', '0', int(count))
end

end

-- What is free, and since when. Changes are written together; a function that reads or counts FREE has it called first.
local free = {}
do

local scores, order = {}, {} -- by name, false for those that leave

local function note(name, score)
  if scores[name] == nil then order[#order + 1] = name end
  scores[name] = score
end

function free.enter(name, at) note(name, int(at)) end

function free.leave(name) note(name, false) end

function free.save()
  local entering, leaving = {}, {}
  for i = 1, #order do
    local name, score = order[i], scores[order[i]]
    if score then
      entering[#entering + 1], entering[#entering + 2] = score, name
    else
      leaving[#leaving + 1] = name
    end
  end
  scores, order = {}, {}
  call_with('ZREM', FREE, leaving)
  call_with('ZADD', FREE, entering)
end

end

-- The resource at the end of an OWNED or FEED entry. Anchored, or Lua would try it from every letter.
local function last_word(entry) return string.match(entry, '^.* (.+)$') end

local function last_words(entries)
  local words = {}
  for i = 1, #entries do words[i] = last_word(entries[i]) end
  return words
end
