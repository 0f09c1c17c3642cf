-- How long Redis keeps a group that nobody uses: as long as its setting says after the last member has gone. All keys expire at one
-- moment, or what is left would be half a group.
--
-- While there are members the end lies at least six days further off, and is put off once a day by a timer, so that a heartbeat
-- costs what it always did. Redis's clock runs on while Redis is down, and members may be cut off from it: neither must cost a
-- living group its offsets. A group whose members have all died without a word is kept for as many days more.

local renew_expiry
do

local DAY_MS, MARGIN_MS = 86400000, 604800000

function renew_expiry()
  if G.idle_ms == 0 then
    G.expires = 0
    return
  end
  local at = floor(real_us / 1000) + G.idle_ms
  if call('ZCARD', LOAD) == 0 then
    if G.expires == 0 or G.expires > at then G.expires = at end
  elseif G.expires < at + MARGIN_MS - DAY_MS then
    G.expires = at + MARGIN_MS
    set_timer('x', now + DAY_MS)
  end
end

end
