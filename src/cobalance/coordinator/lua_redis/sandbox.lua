-- What a script can see, and redis.call.
--
-- Only what is the same on Lua 5.1, LuaJIT and 5.4 and in every Redis is here. `pairs` and `next` are missing on purpose:
-- their order differs from process to process, and nothing unordered may leave a script.

local values = require 'values'
local keyspace = require 'keyspace'

local text, fail = values.text, values.fail

local sandbox = {}
local commands, arity = {}, {}

function sandbox.add(group)
  for name, command in pairs(group.commands) do commands[name] = command end
  for name, count in pairs(group.arity) do arity[name] = count end
end

local function unusual_name(name)
  if name == nil then fail('ERR Please specify at least one argument for this redis lib call') end
  local upper = text(name):upper()
  if not commands[upper] then keyspace.refuse('the in-memory Redis does not know the command ' .. text(name)) end
  return upper
end

local WRITING = {}
for name in ([[
  UNLINK PEXPIREAT PERSIST HSET HDEL ZADD ZREM ZREMRANGEBYLEX XADD
]]):gmatch('%S+') do WRITING[name] = true end

-- How many writes there were, and at which one the script ends, as one does whose user may not use that command.
local writes, fatal = 0, 0

local function count_write()
  writes = writes + 1
  if writes == fatal then fail("ERR The user executing the script can't run this command or subcommand") end
end

function sandbox.die_at(write)
  writes, fatal = 0, write
end

function sandbox.writes()
  return writes
end

local function call(name, ...)
  if not commands[name] then name = unusual_name(name) end
  local given, wanted = select('#', ...), arity[name]
  if given ~= wanted and (wanted >= 0 or given < -wanted) then values.wrong_arity() end
  if WRITING[name] then count_write() end
  return commands[name](...)
end

-- The error of a command as a value. A bug of the script itself goes on as what it is.
local function pcall_command(...)
  local results = { pcall(call, ...) }
  if results[1] then return results[2] end
  local problem = results[2]
  if type(problem) == 'table' and problem.err then return { err = problem.err } end
  error(problem, 0)
end

local function error_reply(message)
  return { err = message:sub(1, 1) == '-' and message:sub(2) or message }
end

local function read_only()
  error('Attempt to modify a readonly table', 2)
end

-- A table that can be read through but not changed; `missing` answers for what is not in it.
local function sealed(content, missing)
  if missing then setmetatable(content, { __index = missing }) end
  return setmetatable({}, { __index = content, __newindex = read_only, __metatable = false })
end

local function copy(names, from)
  local picked = {}
  for name in names:gmatch('%S+') do picked[name] = from[name] end
  return picked
end

local function missing_global(_, name)
  if name == 'unpack' then return nil end
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end

local globals = copy('assert error ipairs pcall select tonumber tostring type unpack setmetatable _VERSION', _G)
globals.string = sealed(copy('byte char find format gmatch gsub len lower match rep reverse sub upper', string))
globals.table = sealed(copy('concat insert remove sort unpack', table))
globals.math = sealed(copy('abs ceil floor fmod huge max min modf pi sqrt exp log', math))

globals.redis = sealed({ call = call, pcall = pcall_command, error_reply = error_reply })

local environment = sealed(globals, missing_global)

-- A script, as text or as bytecode, as a function; or nil and what is wrong with it.
function sandbox.compile(source)
  if setfenv then
    local compiled, problem = loadstring(source, '@user_script')
    return compiled and setfenv(compiled, environment), problem
  end
  return load(source, '@user_script', 'bt', environment)
end

function sandbox.set_arguments(keys, arguments)
  globals.KEYS, globals.ARGV = keys, arguments
end

return sandbox
