-- Who should keep how many. Members of equal capacity form a class; LOAD and REVOKING score a member
-- class * CLASS + kept, so the least and most loaded member of a class is one lookup away. Class 0 is standby and leaving
-- members, a negative class those held for their rejoin grace.
--
-- Quotas are floor or ceil of the exact share. Ceilings are not dealt in advance: `above` counts who keeps more than its
-- floor now, `extras` how many may. So whoever already keeps its ceil keeps it (no move), and the rest goes where needed.
local CLASS = 2097152

local classes -- array of {class, count, floor, ceil}, sorted by class
local shares  -- {extras, above, live}; nil when it must be computed again

local function load_classes()
  classes = {}
  for class, count in string.gmatch(G.classes, '(%S+)=(%S+)') do
    classes[#classes + 1] = {class = tonumber(class), count = tonumber(count)}
  end
end

local function save_classes()
  local out = {}
  for i = 1, #classes do out[i] = int(classes[i].class) .. '=' .. int(classes[i].count) end
  G.classes = table.concat(out, ' ')
end

local function count_class(class, delta)
  shares = nil
  G.changed = 1
  for i = 1, #classes do
    if classes[i].class == class then
      classes[i].count = classes[i].count + delta
      if classes[i].count == 0 then table.remove(classes, i) end
      return save_classes()
    end
  end
  classes[#classes + 1] = {class = class, count = delta}
  table.sort(classes, function(a, b) return a.class < b.class end)
  save_classes()
end

local function class_of(m)
  if m.status == 'leaving' then return 0 end
  if m.status == 'graced' and m.capacity > 0 then return -m.capacity end
  return m.capacity
end

local function score(class, kept) return int(class * CLASS + kept) end

local function kept_by(m)
  return tonumber(call('ZSCORE', LOAD, m.id) or '0') - class_of(m) * CLASS
end

local function capacity_of(sign)
  local sum = 0
  for i = 1, #classes do
    if classes[i].class * sign > 0 then sum = sum + classes[i].class * sign * classes[i].count end
  end
  return sum
end

local function share_out(c, amount, capacity)
  c.floor, c.ceil = 0, 0
  if capacity == 0 or c.class == 0 then return end
  local weight = c.class < 0 and -c.class or c.class
  c.floor = floor(amount * weight / capacity)
  c.ceil = (amount * weight) % capacity > 0 and c.floor + 1 or c.floor
end

-- Graced members keep at most their quota and are granted nothing; the living share the rest. Behind an eager barrier
-- every quota is 0.
local function get_shares()
  if shares then return shares end
  local live, graced = capacity_of(1), capacity_of(-1)
  local amount = G.barrier > 0 and 0 or G.total - G.graced_kept
  shares = {extras = live > 0 and amount or 0, above = 0, live = live}
  for i = 1, #classes do
    local c = classes[i]
    if c.class < 0 then
      share_out(c, G.total, live + graced)
    else
      share_out(c, amount, live)
      shares.extras = shares.extras - c.count * c.floor
      if c.ceil > c.floor then
        shares.above = shares.above + call('ZCOUNT', LOAD, score(c.class, c.ceil), score(c.class, CLASS - 1))
      end
    end
  end
  return shares
end

local function share_of(class)
  for i = 1, #classes do
    if classes[i].class == class then return classes[i] end
  end
end

-- One resource more or fewer kept by a member. REVOKING follows: for one who is in it, or who is to enter it.
local function shift(m, delta, enters)
  local class = class_of(m)
  local kept = tonumber(call('ZINCRBY', LOAD, int(delta), m.id)) - class * CLASS
  if enters then
    call('ZADD', REVOKING, score(class, kept), m.id)
  elseif class > 0 then
    call('ZADD', REVOKING, 'XX', score(class, kept), m.id)
  end
  if class < 0 then
    G.graced_kept = G.graced_kept + delta
    shares = nil
  elseif class > 0 then
    local c = shares and share_of(class)
    if c and c.ceil > c.floor then
      if delta > 0 and kept == c.ceil then shares.above = shares.above + 1 end
      if delta < 0 and kept == c.floor then shares.above = shares.above - 1 end
    end
  end
end

-- Moves a member between classes with all it keeps (start leaving, enter grace, change capacity).
local function reclass(m, change)
  local old, kept = class_of(m), kept_by(m)
  change(m)
  local new = class_of(m)
  if old == new then return end
  count_class(old, -1)
  count_class(new, 1)
  if old < 0 then G.graced_kept = G.graced_kept - kept end
  if new < 0 then G.graced_kept = G.graced_kept + kept end
  call('ZADD', LOAD, score(new, kept), m.id)
  if new > 0 then
    call('ZADD', REVOKING, 'XX', score(new, kept), m.id)
  else
    call('ZREM', REVOKING, m.id)
  end
end
