local fraction = clock[2]
if #fraction < 6 then fraction = string.rep('0', 6 - #fraction) .. fraction end
local place = clock[1] .. fraction
