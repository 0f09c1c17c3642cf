-- A sorted set: members in order of (score, member), fast at a hundred thousand of them.
--
-- The members lie in a list of short chunks, like index cards in drawers: finding a place is two binary searches, and
-- putting a card in moves at most one drawer's cards. A *position* is the pair (chunk, index in it); the position past
-- the last member is (number of chunks + 1, 1).

local less = require('order').less

local floor = math.floor

local FULL, SPARSE = 64, 16

local sorted = {}

function sorted.new()
  return { size = 0, scores = {}, chunks = {} }
end

-- Does the member (s, m) lie before the bound? A bound without a score compares members only, one without a member
-- compares scores only; `after` places the bound behind whatever equals it.
local function precedes(s, m, score, member, after)
  if score and s ~= score then return s < score end
  if member == nil or m == member then return after end
  return less(m, member)
end

-- The first position that does not lie before the bound.
local function seek(set, score, member, after)
  local chunks = set.chunks
  local low, high = 1, #chunks + 1
  while low < high do
    local middle = floor((low + high) / 2)
    local chunk = chunks[middle]
    local last = chunk.size
    if precedes(chunk.scores[last], chunk.members[last], score, member, after) then low = middle + 1 else high = middle end
  end
  local chunk = chunks[low]
  if not chunk then return low, 1 end
  local first, last = 1, chunk.size
  local scores, members = chunk.scores, chunk.members
  while first < last do
    local middle = floor((first + last) / 2)
    if precedes(scores[middle], members[middle], score, member, after) then first = middle + 1 else last = middle end
  end
  return low, first
end
sorted.seek = seek

local function split(chunks, at)
  local chunk = chunks[at]
  local half = { size = 0, scores = {}, members = {} }
  local keep = floor(FULL / 2)
  for i = keep + 1, chunk.size do
    half.size = half.size + 1
    half.scores[half.size], half.members[half.size] = chunk.scores[i], chunk.members[i]
    chunk.scores[i], chunk.members[i] = nil, nil
  end
  chunk.size = keep
  table.insert(chunks, at + 1, half)
end

local function insert_at(set, c, i, score, member)
  local chunks = set.chunks
  if c > #chunks then
    c = math.max(#chunks, 1)
    chunks[c] = chunks[c] or { size = 0, scores = {}, members = {} }
    i = chunks[c].size + 1
  end
  local chunk = chunks[c]
  local scores, members = chunk.scores, chunk.members
  for k = chunk.size, i, -1 do scores[k + 1], members[k + 1] = scores[k], members[k] end
  scores[i], members[i] = score, member
  chunk.size = chunk.size + 1
  if chunk.size >= FULL then split(chunks, c) end
end

-- A chunk that has become sparse joins its successor, so that removing most of a set leaves few chunks.
local function tidy(chunks, c)
  local chunk, following = chunks[c], chunks[c + 1]
  if chunk.size == 0 then return table.remove(chunks, c) end
  if chunk.size > SPARSE or not following or following.size > SPARSE then return end
  for i = 1, following.size do
    chunk.scores[chunk.size + i], chunk.members[chunk.size + i] = following.scores[i], following.members[i]
  end
  chunk.size = chunk.size + following.size
  table.remove(chunks, c + 1)
end

local function remove_at(set, c, i)
  local chunk = set.chunks[c]
  local scores, members, size = chunk.scores, chunk.members, chunk.size
  for k = i, size - 1 do scores[k], members[k] = scores[k + 1], members[k + 1] end
  scores[size], members[size] = nil, nil
  chunk.size = size - 1
  if size - 1 <= SPARSE then tidy(set.chunks, c) end
end

-- Gives a member a score, whether it was there or not.
function sorted.put(set, score, member)
  local old = set.scores[member]
  if old == score then return end
  if old then remove_at(set, seek(set, old, member, false)) else set.size = set.size + 1 end
  local c, i = seek(set, score, member, false)
  set.scores[member] = score
  insert_at(set, c, i, score, member)
end

function sorted.remove(set, member)
  local score = set.scores[member]
  if not score then return false end
  remove_at(set, seek(set, score, member, false))
  set.scores[member] = nil
  set.size = set.size - 1
  return true
end

-- The position of the member with that many members before it (0 to size).
function sorted.at(set, index)
  local chunks = set.chunks
  if index >= set.size then return #chunks + 1, 1 end
  local c = 1
  while index >= chunks[c].size do
    index = index - chunks[c].size
    c = c + 1
  end
  return c, index + 1
end

-- How many members lie before a position.
function sorted.index(set, c, i)
  local before = i - 1
  for k = 1, c - 1 do before = before + set.chunks[k].size end
  return before
end

-- How many members lie from one position up to, not including, another.
function sorted.distance(set, c1, i1, c2, i2)
  if c1 == c2 then return i2 - i1 end
  if c1 > c2 then return -1 end
  local between = set.chunks[c1].size - i1 + i2
  for k = c1 + 1, c2 - 1 do between = between + set.chunks[k].size end
  return between
end

-- Members forward from a position, at most `count`, each followed by its score text if `score_text` is given.
function sorted.forward(set, c, i, count, score_text)
  local list, size, chunk = {}, 0, set.chunks[c]
  while count > 0 and chunk do
    if i > chunk.size then
      c, i = c + 1, 1
      chunk = set.chunks[c]
    else
      size = size + 1
      list[size] = chunk.members[i]
      if score_text then
        size = size + 1
        list[size] = score_text(chunk.scores[i])
      end
      i, count = i + 1, count - 1
    end
  end
  return list
end

-- The same backward, beginning with the member just before the position.
function sorted.backward(set, c, i, count, score_text)
  local list, size, chunk = {}, 0, set.chunks[c]
  i = i - 1
  while count > 0 and c > 0 do
    if i < 1 then
      c = c - 1
      chunk = set.chunks[c]
      i = chunk and chunk.size or 0
    else
      size = size + 1
      list[size] = chunk.members[i]
      if score_text then
        size = size + 1
        list[size] = score_text(chunk.scores[i])
      end
      i, count = i - 1, count - 1
    end
  end
  return list
end

function sorted.copy(set)
  local twin = { size = set.size, scores = {}, chunks = {} }
  for c, chunk in ipairs(set.chunks) do
    local scores, members = {}, {}
    for i = 1, chunk.size do
      scores[i], members[i] = chunk.scores[i], chunk.members[i]
      twin.scores[members[i]] = scores[i]
    end
    twin.chunks[c] = { size = chunk.size, scores = scores, members = members }
  end
  return twin
end

return sorted
