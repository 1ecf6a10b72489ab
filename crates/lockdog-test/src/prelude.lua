-- The globals of scripts besides Lua's own, as in Redis 7.0. Takes the functions of the server and the
-- interpreter's globals. Returns the function that runs a script, the table of globals that scripts
-- read, and their environment.
local native, all = ...
local error, type, tostring = error, type, tostring
local pcall, xpcall, setmetatable = pcall, xpcall, setmetatable
local sub, find = string.sub, string.find

local redis = {
    LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
    REPL_NONE = 0, REPL_SLAVE = 1, REPL_REPLICA = 1, REPL_AOF = 2, REPL_ALL = 3,
    REDIS_VERSION = '7.0.15', REDIS_VERSION_NUM = 0x0007000f,
    call = native.call, pcall = native.pcall, sha1hex = native.sha1hex,
    acl_check_cmd = native.acl_check_cmd,
}

local function with_code(line)
    if sub(line, 1, 1) ~= '-' then
        line = '-' .. line
    end
    if not find(line, ' ', 1, true) then
        return 'ERR ' .. sub(line, 2)
    end
    return sub(line, 2)
end

function redis.error_reply(line)
    if type(line) ~= 'string' then
        return { err = 'ERR wrong number or type of arguments' }
    end
    return { err = with_code(line) }
end

function redis.status_reply(line)
    if type(line) ~= 'string' then
        return { err = 'ERR wrong number or type of arguments' }
    end
    return { ok = line }
end

function redis.log() end
function redis.set_repl() end
function redis.setresp() end
function redis.replicate_commands() return true end
function redis.breakpoint() return false end

-- A script receives an error that is a table as its text. An error of `redis.call` is a value of the
-- server until it is caught.
local function plain(fine, ...)
    if not fine then
        local raised = native.caught(...)
        if type(raised) == 'table' and type(raised.err) == 'string' then
            return false, raised.err
        end
        return false, raised
    end
    return fine, ...
end

local globals = { redis = redis, _VERSION = _VERSION }
for _, name in ipairs {
    'assert', 'collectgarbage', 'error', 'getmetatable', 'ipairs', 'loadstring', 'next', 'pairs',
    'rawequal', 'rawget', 'rawset', 'select', 'setmetatable', 'tonumber', 'tostring', 'type', 'unpack',
    'xpcall', 'math', 'string', 'table',
} do
    globals[name] = all[name]
end
globals.pcall = function(...) return plain(pcall(...)) end

setmetatable(globals, {
    __index = function(_, name)
        error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
    end,
})
local environment = setmetatable({}, {
    __index = globals,
    __newindex = function() error('Attempt to modify a readonly table', 2) end,
    __metatable = false,
})
globals._G = environment

local function place(raised)
    raised = native.caught(raised)
    if type(raised) ~= 'table' then
        raised = { err = 'ERR ' .. tostring(raised) }
    end
    local line = raised.line or native.line()
    if line > 0 then
        raised.source, raised.line = '@user_script', line
    end
    return raised
end

return function(script) return xpcall(script, place) end, globals, environment
