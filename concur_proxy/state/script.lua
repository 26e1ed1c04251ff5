-- What must happen at once. One call carries a list of operations of one replica, in order; each answers a table.
--
-- KEYS[1] any key of the deployment (it routes the call in a cluster: all keys share a hash tag)
-- ARGV[1] prefix of all keys   ARGV[2] the replica   ARGV[3] JSON: a list of {operation, ...}
--
--   replicas       set of the replicas that have been heard of
--   r:ID           hash of one replica, gone when it is not heard of for its time to live; of each window B it has
--                  h:B what it may have in use, l:B what is active, n:B turns that run, w:B whether turns wait, c:B tokens that its
--                  sessions have in the cache, o:B for how long the context has not been used that goes next, t:B what the leader would give it;  address: where others may ask whether it reaches this server;  born: the sync that it is known since;  moves: how many sessions others have taken from it
--   moved:ID       list of sessions that others have taken from it: "number|window|charge|tokens|session"
--   windows        hash: window -> JSON {whole, hard, unit}
--   leader         hash of the one that runs the law, gone when it is not heard of;  token: counts leaders (fencing)
--   s:SESSION      hash: owner, busy, window, charge, lease, at, turns, state
--   heard, since   when a replica was last heard of; since when all have had the time to say what they use;  run: this server
--   wake           stream: who should look again;  turns: stream of finished turns, for the leader
--
-- No replica's clock is used: ages are taken by Redis' own, and what is to be forgotten expires.

local P, ME = ARGV[1], ARGV[2]
local call = redis.call
local time = call('TIME')
local NOW = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local MINE = P .. 'r:' .. ME
local WAKES, TURNS = 1000, 10000

local function number(text)
  if text == 'inf' then return math.huge end
  return tonumber(text or '0') or 0
end

local function text(value)
  if value == math.huge then return 'inf' end
  return string.format('%.17g', value)
end

local function wake(why, whom)
  call('XADD', P .. 'wake', 'MAXLEN', '~', WAKES, '*', 'why', why, 'whom', whom or '')
end

local function alive(id)
  return call('EXISTS', P .. 'r:' .. id) == 1
end

-- Whoever is not heard of any more has nothing in use.
local function others()
  local found = {}
  for _, id in ipairs(call('SMEMBERS', P .. 'replicas')) do
    if id ~= ME then
      if alive(id) then
        found[#found + 1] = id
      else
        call('SREM', P .. 'replicas', id)
        call('DEL', P .. 'moved:' .. id)
        wake('gone', '')
      end
    end
  end
  return found
end

-- What this replica has lost with sessions that others took, and does not know of yet, by window.
local function unseen(seen)
  local lost, gone, moves = {}, {}, {}
  for _, entry in ipairs(call('LRANGE', P .. 'moved:' .. ME, 0, -1)) do
    local count, window, charge, tokens, name = string.match(entry, '^(%d+)|([^|]*)|([^|]*)|([^|]*)|(.*)$')
    if tonumber(count) > seen then
      lost[window] = (lost[window] or 0) + number(charge)
      gone[window] = (gone[window] or 0) + number(tokens)
      moves[#moves + 1] = {tonumber(count), name}
    else
      call('LPOP', P .. 'moved:' .. ME)
    end
  end
  return lost, gone, moves
end

-- Whether nobody can be at work whom this server does not know: it has not been started since it was last asked, and all
-- others have left in order.
local function knows_all()
  local said = redis.pcall('INFO', 'server')
  local run = type(said) == 'string' and string.match(said, 'run_id:(%w+)') or ''
  local same = run ~= '' and call('GET', P .. 'run') == run
  call('SET', P .. 'run', run)
  for _, id in ipairs(call('SMEMBERS', P .. 'replicas')) do same = same and id == ME end
  return same
end

local op = {}

-- Tell what is in use and hear what may be: {number, ttl_ms, {born, moves}, report, {{window, using, load, running, held, cached, oldest_s}, ...}, turns, grace_ms, wants, address}
function op.sync(number_, ttl, heard_of, report, windows, turns, grace, wants, address)
  local fresh = not alive(ME)
  if not fresh and tonumber(call('HGET', MINE, 'number')) >= number_ then return {late = true} end
  if fresh then
    call('DEL', P .. 'moved:' .. ME)
    call('HSET', MINE, 'born', number_)
  end
  local born = tonumber(call('HGET', MINE, 'born'))
  local seen = heard_of[1] == born and heard_of[2] or 0  -- moves are counted anew where we were taken for dead
  call('SADD', P .. 'replicas', ME)
  -- After silence, or where nothing is known, there may be replicas at work that have yet to say what they use.
  local heard = call('GET', P .. 'heard')
  local silence = heard and NOW - number(heard)  -- less than none where the clock of this server has been put back
  if (not silence or silence > grace or silence < 0) and not knows_all() then call('SET', P .. 'since', NOW) end
  call('SET', P .. 'heard', NOW)
  local since = number(call('GET', P .. 'since'))
  if since > NOW then call('SET', P .. 'since', NOW) end
  local settling = NOW - since < grace
  local peers = others()
  local lost, gone, moves = unseen(seen)
  local shares, freed = {}, false
  for _, entry in ipairs(windows) do
    local name, using, load = entry[1], number(entry[2]), number(entry[3])
    local using_ = math.max(0, using - (lost[name] or 0))
    local before = call('HMGET', MINE, 'h:' .. name, 'l:' .. name, 't:' .. name)
    local known = call('HGET', P .. 'windows', name)
    local grant, target = using_, before[3] and number(before[3]) or using_
    if known then
      local window = cjson.decode(known)
      local whole, taken, active, running, waiting, cached, oldest = number(window.whole), 0, 0, 0, 0, 0, 0
      for _, peer in ipairs(peers) do
        local theirs = call('HMGET', P .. 'r:' .. peer, 'h:' .. name, 'l:' .. name, 'n:' .. name, 'w:' .. name, 'c:' .. name,
          'o:' .. name)
        taken = taken + math.max(number(theirs[1]), number(theirs[2]))
        active, running = active + number(theirs[2]), running + number(theirs[3])
        waiting, cached = waiting + number(theirs[4]), cached + number(theirs[5])
        oldest = math.max(oldest, number(theirs[6]))
      end
      if whole == math.huge then
        grant = settling and using_ or math.huge
      else
        grant = math.min(target, math.max(0, whole - taken))
        if settling then grant = math.min(grant, using_) end
      end
      shares[name] = {text(grant), text(target), window.whole, window.hard, window.unit, text(active), running, waiting,
        cached, oldest}
    else
      shares[name] = {text(grant), text(target)}
    end
    local held = math.max(using_, grant)
    if math.max(number(before[1]), number(before[2])) > math.max(held, load) + 1e-6 then freed = true end
    call('HSET', MINE, 'h:' .. name, text(held), 'l:' .. name, text(load), 'n:' .. name, entry[4],
      'w:' .. name, entry[5], 'c:' .. name, text(math.max(0, number(entry[6]) - (gone[name] or 0))),
      'o:' .. name, entry[7] or '0')
  end
  call('HSET', MINE, 'number', number_, 'report', report, 'address', address or '')
  call('PEXPIRE', MINE, ttl)
  if turns ~= '' then call('XADD', P .. 'turns', 'MAXLEN', '~', TURNS, '*', 'from', ME, 'turns', turns) end
  if fresh then wake('joined', ME) elseif wants then wake('wants', ME) end
  if freed then wake('freed', ME) end
  local leader = call('HGET', P .. 'leader', 'id')
  local addresses = {}
  for _, peer in ipairs(peers) do addresses[#addresses + 1] = {peer, call('HGET', P .. 'r:' .. peer, 'address') or ''} end
  return {born = born, settling = settling, leader = leader or '', shares = shares, moves = moves, peers = #peers,
    addresses = addresses}
end

-- Lead where nobody does, and say what the windows are and what everybody should get:
-- {token, ttl_ms, {{window, JSON}, ...}, {{replica, {{window, target}, ...}}, ...}, learned}
function op.lead(token, ttl, windows, targets, learned)
  local leader = call('HMGET', P .. 'leader', 'id', 'token')
  local taken = not leader[1] or (leader[1] == ME and token == 0)  -- the latter: it never heard that it leads
  if taken then
    token = call('INCR', P .. 'token')
    call('HSET', P .. 'leader', 'id', ME, 'token', token)
  elseif leader[1] ~= ME or tonumber(leader[2]) ~= token then
    return {leads = false}
  end
  call('PEXPIRE', P .. 'leader', ttl)
  local changed = false
  if not taken then
    for _, entry in ipairs(windows) do
      if call('HGET', P .. 'windows', entry[1]) ~= entry[2] then
        call('HSET', P .. 'windows', entry[1], entry[2])
        changed = true
      end
    end
    for _, each in ipairs(targets) do
      if alive(each[1]) then
        for _, entry in ipairs(each[2]) do
          if call('HGET', P .. 'r:' .. each[1], 't:' .. entry[1]) ~= entry[2] then
            call('HSET', P .. 'r:' .. each[1], 't:' .. entry[1], entry[2])
            changed = true
          end
        end
      end
    end
    if learned ~= '' then call('SET', P .. 'learned', learned) end
  end
  if changed then wake('targets', '') end
  local reports = {}
  for _, id in ipairs(call('SMEMBERS', P .. 'replicas')) do
    local report = call('HGET', P .. 'r:' .. id, 'report')
    if report then reports[#reports + 1] = {id, report} end
  end
  local answer = {leads = true, taken = taken, token = token, reports = reports}
  if taken then
    answer.learned = call('GET', P .. 'learned') or ''
    answer.windows = call('HGETALL', P .. 'windows')
    local newest = call('XREVRANGE', P .. 'turns', '+', '-', 'COUNT', 1)[1]
    answer.turns = newest and newest[1] or '0-0'
  end
  return answer
end

local function move_place(from, window, charge)
  for _, field in ipairs({'h:', 't:', 'l:'}) do
    local theirs, ours = call('HGET', P .. 'r:' .. from, field .. window), call('HGET', MINE, field .. window)
    if theirs then call('HSET', P .. 'r:' .. from, field .. window, text(math.max(0, number(theirs) - charge))) end
    if ours or field ~= 't:' then call('HSET', MINE, field .. window, text(number(ours) + charge)) end
  end
end

local function move_context(from, window, tokens)
  local field = 'c:' .. window
  local theirs = number(call('HGET', P .. 'r:' .. from, field))
  call('HSET', P .. 'r:' .. from, field, text(math.max(0, theirs - tokens)))
  call('HSET', MINE, field, text(number(call('HGET', MINE, field)) + tokens))
end

-- A turn of a session that is not known to be ours is here: {session, keep_ms, number of our newest sync}
function op.claim(name, keep, number_)
  local key = P .. 's:' .. name
  local known = call('HMGET', key, 'owner', 'busy', 'window', 'charge', 'lease', 'at', 'state', 'tokens')
  local owner, age = known[1], math.max(0, NOW - number(known[6]))
  local elsewhere = owner and owner ~= ME and alive(owner)
  if elsewhere and known[2] == '1' then return {got = 'busy'} end
  call('HSET', key, 'owner', ME, 'busy', '1', 'at', NOW)
  call('PEXPIRE', key, keep)
  if not owner then return {got = 'new'} end
  local charge = number(known[4])
  if not elsewhere or known[3] == '' or age > number(known[5]) or not alive(ME) then charge = 0 end
  if charge > 0 then
    move_place(owner, known[3], charge)
    -- A sync that was sent before and is late knows nothing of this place.
    call('HSET', MINE, 'number', math.max(number_, number(call('HGET', MINE, 'number'))))
  end
  call('HSET', key, 'charge', '0')
  local tokens = number(known[8])
  if elsewhere then
    if alive(ME) and known[3] ~= '' then move_context(owner, known[3], tokens) end
    local count = call('HINCRBY', P .. 'r:' .. owner, 'moves', 1)
    call('RPUSH', P .. 'moved:' .. owner, count .. '|' .. (known[3] or '') .. '|' .. text(charge) .. '|' .. text(tokens) .. '|'
      .. name)
    wake('moved', owner)
  end
  local got = owner == ME and 'ours' or 'moved'
  return {got = got, state = known[7] or '', age = age, charge = text(charge), window = known[3] or '',
    tokens = elsewhere and tokens or 0}
end

-- What is known of a session of ours: {session, busy, window, charge, lease_ms, state, keep_ms, cached}
function op.save(name, busy, window, charge, lease, state, keep, tokens)
  local key = P .. 's:' .. name
  local owner = call('HGET', key, 'owner')
  if owner and owner ~= ME and alive(owner) then return {lost = true} end
  call('HSET', key, 'owner', ME, 'busy', busy, 'window', window, 'charge', charge, 'lease', lease, 'at', NOW,
    'state', state, 'tokens', tokens or 0)
  call('PEXPIRE', key, keep)
  return {lost = false}
end

-- A turn of a session of ours begins: {session}
function op.busy(name)
  local key = P .. 's:' .. name
  local owner = call('HGET', key, 'owner')
  if owner and owner ~= ME and alive(owner) then return {lost = true} end
  if owner then call('HSET', key, 'owner', ME, 'busy', '1', 'at', NOW) end
  return {lost = false}
end

-- A session of ours is over: {session}
function op.forget(name)
  local key = P .. 's:' .. name
  local owner = call('HGET', key, 'owner')
  if owner == ME then call('DEL', key) end
  return {lost = owner and owner ~= ME and alive(owner)}
end

-- A secret that all replicas share, made by whoever comes first: {name, value}
function op.secret(name, value)
  call('SET', P .. name, value, 'NX')
  return {value = call('GET', P .. name)}
end

-- This replica ends in an orderly way: what it had in use is free at once.
function op.leave()
  call('DEL', MINE, P .. 'moved:' .. ME)
  call('SREM', P .. 'replicas', ME)
  if call('HGET', P .. 'leader', 'id') == ME then call('DEL', P .. 'leader') end
  wake('gone', ME)
  return {left = true}
end

local answers = {}
for index, entry in ipairs(cjson.decode(ARGV[3])) do
  local name = table.remove(entry, 1)
  answers[index] = op[name](unpack(entry))
end
return cjson.encode(answers)
