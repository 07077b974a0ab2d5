replies[i] = taken
end
return replies
