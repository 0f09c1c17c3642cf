-- How the group follows its lists: what comes on one is added, what is on none is removed.

do -- as in 25_owned.lua

function lists.add(name)
  G.budget = G.budget - 1
  put_resource(new_resource(name))
  journal('added', 'resource', name)
  call('ZADD', FREE, int(G.version), name)
end

-- A pending one changes its place among its holder's, and whether it may be cancelled.
local function flag(r, removing)
  if r.status == 'pending' then leave_owned(r) end
  r.removing = removing
  put_resource(r)
  if r.status == 'pending' then
    enter_owned(r)
    local m = member(r.owner)
    if m.status == 'active' then
      if has_cancellable(m.id) then enter_revoking(m) else leave_revoking(m) end
    end
  end
end

function lists.restore(r)
  G.budget = G.budget - 1
  flag(r, false)
  if r.status == 'free' then call('ZADD', FREE, int(G.version), r.name) end
  journal('added', 'resource', r.name, 'member', r.owner, 'token', int(r.token))
  count_total(1)
end

function lists.remove(r)
  G.budget = G.budget - 1
  flag(r, true)
  count_total(-1)
  journal('removing', 'resource', r.name, 'member', r.owner, 'token', int(r.token))
  if r.status == 'free' or r.status == 'halted' then
    delete(r)
  elseif r.status ~= 'pending' then
    local m = member(r.owner)
    if is_live(m) then revoke(r) else end_tenure(r, 'expired', 'removed') end
  end
end

local dropped = {}

local function remove_unnamed(name)
  local r = resource(name)
  if r and not r.removing and #lists.naming(name) == 0 then lists.remove(r) end
end

-- What was claimed for a list that was never known, or was left to it, may be on none. True when all have been looked at.
local function remove_all_unnamed(id, l)
  local last = string.match(l.walker, '^>(.*)$')
  local found = call('ZRANGEBYLEX', NAMES, last and '(' .. last or '-', '+', 'LIMIT', '0', int(max(G.budget, 1)))
  for i = 1, #found do remove_unnamed(found[i]) end
  if #found == 0 then return true end
  l.walker = '>' .. found[#found]
  lists.put(id, l)
  return false
end

-- The names of a list that nobody has any more, a page a call. True when none is left.
function lists.let_go(id)
  local l, entries = lists.of(id), call('ZRANGEBYLEX', DECLARED, '[' .. id .. ' ', '(' .. id .. '!', 'LIMIT', '0', int(max(G.budget, 1)))
  if l.version > 0 then l.version, l.done, l.walker = 0, l.done == lists.KNOWN and lists.LEAVING or 0, '' end
  lists.put(id, l)
  for i = 1, #entries do
    dropped[#dropped + 1] = entries[i]
    remove_unnamed(last_word(entries[i]))
  end
  if #entries > 0 then return false end
  if l.done ~= lists.LEAVING and not remove_all_unnamed(id, l) then return false end
  lists.forget(id)
  return true
end

-- After the records, or what a script had not removed before it died would be on no list.
function lists.save_dropped()
  call_with('ZREM', DECLARED, dropped)
  dropped = {}
end

end
