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

const tries = 30_000

type redsyncLocker struct {
	sync    *redsync.Redsync
	mutexes map[string]*redsync.Mutex
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
	return own.lockIn(context.Background(), name)
}

func (own *redsyncLocker) lockIn(context context.Context, name string) error {
	options := []redsync.Option{redsync.WithExpiry(expiry), redsync.WithTries(tries)}
	if pause > 0 {
		options = append(options, redsync.WithRetryDelay(pause))
	}
	mutex := own.sync.NewMutex(name, options...)
	own.mutexes[name] = mutex
	return mutex.LockContext(context)
}

func (own *redsyncLocker) within(name string, limit time.Duration) (bool, error) {
	context, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := own.lockIn(context, name)
	if context.Err() != nil && err != nil {
		return false, nil
	}
	return err == nil, err
}

func (own *redsyncLocker) held(name string) (bool, error) {
	return time.Now().Before(own.mutexes[name].Until()), nil
}

func (own *redsyncLocker) token(string) string { return "" }

func (own *redsyncLocker) lost() <-chan struct{} { return nil }

func (own *redsyncLocker) try(name string) (bool, error) {
	mutex := own.sync.NewMutex(name, redsync.WithExpiry(expiry))
	err := mutex.TryLock()
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
		return false, nil
	}
	own.mutexes[name] = mutex
	return err == nil, err
}

func (own *redsyncLocker) unlock(name string) error {
	_, err := own.mutexes[name].Unlock()
	return err
}

type redislockLocker struct {
	client *redislock.Client
	locks  map[string]*redislock.Lock
}

func openRedislock(address string) func() (locker, error) {
	client := redislock.New(redis.NewClient(&redis.Options{Addr: address}))
	return func() (locker, error) { return &redislockLocker{client, map[string]*redislock.Lock{}}, nil }
}

func (own *redislockLocker) lock(name string) error {
	_, err := own.within(name, time.Minute)
	return err
}

func (own *redislockLocker) within(name string, limit time.Duration) (bool, error) {
	context, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	between := pause
	if between == 0 {
		// As in the example of its documentation.
		between = 100 * time.Millisecond
	}
	lock, err := own.client.Obtain(context, name, expiry, &redislock.Options{RetryStrategy: redislock.LinearBackoff(between)})
	own.locks[name] = lock
	if context.Err() != nil && err != nil && limit < time.Minute {
		return false, nil
	}
	return err == nil, err
}

func (own *redislockLocker) try(name string) (bool, error) {
	lock, err := own.client.Obtain(context.Background(), name, expiry, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return false, nil
	}
	own.locks[name] = lock
	return err == nil, err
}

func (own *redislockLocker) held(name string) (bool, error) {
	left, err := own.locks[name].TTL(context.Background())
	return left > 0, err
}

func (own *redislockLocker) token(string) string { return "" }

func (own *redislockLocker) lost() <-chan struct{} { return nil }

func (own *redislockLocker) unlock(name string) error {
	return own.locks[name].Release(context.Background())
}
