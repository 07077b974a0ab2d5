package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const (
	expiry = 10 * time.Second
	pause  = 2 * time.Millisecond
	tries  = 30_000
)

type redsyncLocker struct {
	sync *redsync.Redsync
	held map[string]*redsync.Mutex
}

func openRedsync(addresses []string) func() (locker, error) {
	pools := make([]redsyncredis.Pool, 0, len(addresses))
	for _, address := range addresses {
		pools = append(pools, goredis.NewPool(redis.NewClient(&redis.Options{Addr: address})))
	}
	sync := redsync.New(pools...)
	return func() (locker, error) { return &redsyncLocker{sync, map[string]*redsync.Mutex{}}, nil }
}

func (own *redsyncLocker) lock(name string) error {
	mutex := own.sync.NewMutex(name, redsync.WithExpiry(expiry), redsync.WithTries(tries), redsync.WithRetryDelay(pause))
	own.held[name] = mutex
	return mutex.Lock()
}

func (own *redsyncLocker) try(name string) (bool, error) {
	mutex := own.sync.NewMutex(name, redsync.WithExpiry(expiry))
	err := mutex.TryLock()
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
		return false, nil
	}
	own.held[name] = mutex
	return err == nil, err
}

func (own *redsyncLocker) unlock(name string) error {
	_, err := own.held[name].Unlock()
	return err
}

type redislockLocker struct {
	client *redislock.Client
	held   map[string]*redislock.Lock
}

func openRedislock(address string) func() (locker, error) {
	client := redislock.New(redis.NewClient(&redis.Options{Addr: address}))
	return func() (locker, error) { return &redislockLocker{client, map[string]*redislock.Lock{}}, nil }
}

func (own *redislockLocker) lock(name string) error {
	context, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	lock, err := own.client.Obtain(context, name, expiry, &redislock.Options{RetryStrategy: redislock.LinearBackoff(pause)})
	own.held[name] = lock
	return err
}

func (own *redislockLocker) try(name string) (bool, error) {
	lock, err := own.client.Obtain(context.Background(), name, expiry, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return false, nil
	}
	own.held[name] = lock
	return err == nil, err
}

func (own *redislockLocker) unlock(name string) error {
	return own.held[name].Release(context.Background())
}
