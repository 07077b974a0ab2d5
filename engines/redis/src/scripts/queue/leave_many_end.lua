replies[i] = freed
end
return replies
