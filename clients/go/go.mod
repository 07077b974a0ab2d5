module lockkeeper

go 1.19
