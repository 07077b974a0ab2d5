tokens[i] = token
end
return tokens
