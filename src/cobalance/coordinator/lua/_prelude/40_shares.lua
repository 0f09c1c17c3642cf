-- Who should keep how many: a share in proportion to capacity, rounded either way. Of `amount` resources and a capacity of
-- `live` in all, a member of capacity w that keeps k has
--
--   more than the ceil of its share    (k - 1) / w >= amount / live    LESS (should have less)
--   more than its share                      k / w >  amount / live    LOAD, and LOOSE if it keeps what may be moved
--   less than the floor of its share   (k + 1) / w <= amount / live    MORE (should have more), and REVOKING if it could be left one
--
-- so that a member that is off is one lookup away, whatever the capacities are and whatever changes the level they are held
-- against. A quotient is written as a whole number: equal ones are equal, and those that differ do so by more than 1, for as
-- many resources and members as limits.py allows.
--
-- Ceilings are not dealt in advance: `ceilings` is how many there are when everybody has its floor. So a member that already keeps
-- its ceil keeps it (no move), and the rest goes where needed.
--
-- Who was found to keep only pinned ones leaves LESS and LOOSE until it keeps another number, or one of them may be moved again:
-- it is looked at once, and not with each call.
local SCALE = 34359738368       -- 2^35

local classes, count_of -- of members with a share: their capacities in order, graced ones negative; how many of each
local keeps, ranked = {}, {} -- by member, as read or changed in this call; and as the orders have it

local function read_classes()
  if classes then return end
  classes, count_of = {}, {}
  for class, count in string.gmatch(G.classes, '(%S+)=(%S+)') do
    class, count = whole(class), whole(count)
    if not (class and count) then unreadable('state', 'classes') end
    classes[#classes + 1], count_of[class] = class, count
  end
end

local function save_classes()
  if not classes then return end
  local out = {}
  for i = 1, #classes do
    local count = count_of[classes[i]]
    if count > 0 then out[#out + 1] = int(classes[i]) .. '=' .. int(count) end
  end
  G.classes = table.concat(out, ' ')
end

local function count_class(class, delta)
  G.ceilings, G.changed = 0, 1
  if class > 0 then G.live = G.live + class * delta else G.graced = G.graced - class * delta end
  read_classes()
  if not count_of[class] then
    local at = 1
    while classes[at] and classes[at] < class do at = at + 1 end
    table.insert(classes, at, class)
  end
  count_of[class] = (count_of[class] or 0) + delta
end

local function class_of(m)
  if m.status == 'leaving' then return 0 end
  if m.status == 'graced' and m.capacity > 0 then return -m.capacity end
  return m.capacity
end

local function quotient(count, capacity) return int(count * SCALE / capacity) end
local function below_zero(count, capacity) return int(-1 - count * SCALE / capacity) end -- of graced ones, in the same orders

local function load_score(class, count)
  if class == 0 then return int(TOP + 2 * count) end
  return class > 0 and quotient(count, class) or below_zero(count, -class)
end

local function count_at(class, score)
  if class < 0 then score = -1 - score end
  return class == 0 and (score - TOP) / 2 or floor(score * abs(class) / SCALE + 0.5)
end

local function note_kept(m, count)
  keeps[m.id], ranked[m.id] = count, class_of(m) > 0 and count or nil
end

local function kept_by(m)
  if not keeps[m.id] then
    local score = tonumber(call('ZSCORE', LOAD, m.id) or '')
    local count = score and count_at(class_of(m), score)
    if not (count and count >= 0 and count < TOP) then unreadable('load', m.id) end
    note_kept(m, count)
  end
  return keeps[m.id]
end

-- Derives what a member keeps from a score that was read for another reason.
local function learn_kept(m, key, score)
  local class = class_of(m)
  if class ~= 0 and not keeps[m.id] then note_kept(m, count_at(class, tonumber(score)) + (key == LESS and 1 or 0)) end
end

-- Graced members keep at most their quota and are granted nothing; the living share the rest. Behind an eager barrier
-- every quota is 0.
local function amount() return G.barrier > 0 and 0 or G.total - G.graced_kept end

local function level() return G.live > 0 and quotient(amount(), G.live) or '0' end

local function quota_of(m)
  local weight, of, capacity = class_of(m), amount(), G.live
  if weight < 0 then weight, of, capacity = -weight, G.total, G.live + G.graced end
  if weight == 0 then return 0, 0 end
  local low = floor(of * weight / capacity)
  return low, (of * weight) % capacity > 0 and low + 1 or low
end

-- What is left of the shares when everybody has its floor. `G.ceilings` is one more than that, 0 when unknown.
local function ceilings()
  if G.ceilings == 0 then
    read_classes()
    local of = amount()
    G.ceilings = of + 1
    for i = 1, #classes do
      local class = classes[i]
      if class > 0 then G.ceilings = G.ceilings - count_of[class] * floor(of * class / max(G.live, 1)) end
    end
  end
  return G.ceilings - 1
end

local save_loads, unrank, note_shift, enter_revoking, leave_revoking
do

local shifted, is_shifted, is_entering = {}, {}, {} -- members whose places in the orders are to be written

local function add(words, score, entry)
  local at = #words
  words[at + 1], words[at + 2] = score, entry
end

-- A place in MORE: "subscription load member", so that those who can work something have an order of their own.
local function more_entry(m, count)
  return m.subscription .. ' ' .. fmt('%016.0f', (count + 1) * SCALE / m.capacity) .. ' ' .. m.id
end

-- Takes a member from the orders of those who may be given something, or be asked for it.
function unrank(m)
  kept_by(m)
  if ranked[m.id] then call('ZREM', MORE, more_entry(m, ranked[m.id])) end
  ranked[m.id] = nil
  call('ZREM', LOOSE, m.id)
end

-- Writes the places of those who keep more or fewer than before. A reader of an order has it called first.
function save_loads()
  local load, before, more, less, loose, empty, revoking, entering = {}, {}, {}, {}, {}, {}, {}, {}
  for i = 1, #shifted do
    local id = shifted[i]
    local m = member(id)
    local class, count = class_of(m), (is_live(m) or m.status == 'graced') and kept_by(m)
    if count and class > 0 then
      local now_at, next_at, words = quotient(count, class), quotient(count + 1, class), is_entering[id] and entering or revoking
      add(load, now_at, id)
      if ranked[id] then before[#before + 1] = more_entry(m, ranked[id]) end
      ranked[id] = count
      add(more, '0', more_entry(m, count))
      add(words, now_at, id)
      add(words, '-' .. next_at, '+' .. id)
      if count > 0 then
        add(less, quotient(count - 1, class), id)
        add(loose, now_at, id)
      else
        empty[#empty + 1] = id
      end
    elseif count then
      add(load, load_score(class, count), id)
      if count > 0 then add(less, class < 0 and below_zero(count - 1, -class) or int(TOP), id) else empty[#empty + 1] = id end
    end
  end
  shifted, is_shifted, is_entering = {}, {}, {}
  call_with('ZADD', LOAD, load)
  call_with('ZREM', MORE, before)
  call_with('ZADD', MORE, more)
  call_with('ZADD', LESS, less)
  call_with('ZADD', LOOSE, loose)
  call_with('ZREM', LESS, empty)
  call_with('ZREM', LOOSE, empty)
  call_with('ZADD', REVOKING, entering)
  call_with('ZADD', REVOKING, revoking, 'XX')
end

function note_shift(id)
  if is_shifted[id] then return end
  is_shifted[id] = true
  shifted[#shifted + 1] = id
end

function enter_revoking(m)
  is_entering[m.id] = true
  note_shift(m.id)
end

function leave_revoking(m)
  is_entering[m.id] = nil
  call('ZREM', REVOKING, m.id, '+' .. m.id)
end

end

-- One resource more or fewer kept by a member.
local function shift(m, delta)
  keeps[m.id] = kept_by(m) + delta
  note_shift(m.id)
  G.uneven = 1
  if class_of(m) < 0 then G.graced_kept, G.ceilings = G.graced_kept + delta, 0 end
end

local function enter_shares(m)
  keeps[m.id] = 0
  call('ZADD', IDS, '0', m.id)
  note_shift(m.id)
  count_class(class_of(m), 1)
  lists.count(m.subscription, 1)
end

local function leave_shares(m)
  local class = class_of(m)
  if class < 0 then G.graced_kept = G.graced_kept - kept_by(m) end
  count_class(class, -1)
  lists.count(m.subscription, -1)
  unrank(m)
  call('ZREM', LOAD, m.id)
  call('ZREM', IDS, m.id)
  call('ZREM', LESS, m.id)
  leave_revoking(m)
end

-- A member with all it keeps is given nothing from now on: it leaves, or is kept for its grace.
local function reclass(m, change)
  local old, count = class_of(m), kept_by(m)
  change(m)
  local new = class_of(m)
  if old == new then return end
  count_class(old, -1)
  count_class(new, 1)
  if new < 0 then G.graced_kept = G.graced_kept + count end
  unrank(m)
  leave_revoking(m)
  note_shift(m.id)
end
