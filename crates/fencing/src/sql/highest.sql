SELECT token FROM lockkeeper_fences WHERE resource = $1;
