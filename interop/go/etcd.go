package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// etcdLocker is a session with what it holds, by name.
type etcdLocker struct {
	session   *concurrency.Session
	mutexes   map[string]*concurrency.Mutex
	elections map[string]*concurrency.Election
}

func openEtcd(endpoints []string) (func() (locker, error), error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	return func() (locker, error) {
		session, err := concurrency.NewSession(client, concurrency.WithTTL(int(expiry/time.Second)))
		return &etcdLocker{session, map[string]*concurrency.Mutex{}, map[string]*concurrency.Election{}}, err
	}, nil
}

func (own *etcdLocker) mutex(name string) *concurrency.Mutex {
	if own.mutexes[name] == nil {
		own.mutexes[name] = concurrency.NewMutex(own.session, name)
	}
	return own.mutexes[name]
}

func (own *etcdLocker) election(name string) *concurrency.Election {
	if own.elections[name] == nil {
		own.elections[name] = concurrency.NewElection(own.session, name)
	}
	return own.elections[name]
}

func (own *etcdLocker) lock(name string) error {
	return own.mutex(name).Lock(context.Background())
}

func (own *etcdLocker) try(name string) (bool, error) {
	err := own.mutex(name).TryLock(context.Background())
	if errors.Is(err, concurrency.ErrLocked) {
		return false, nil
	}
	return err == nil, err
}

func (own *etcdLocker) within(name string, limit time.Duration) (bool, error) {
	context, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := own.mutex(name).Lock(context)
	if context.Err() != nil && err != nil {
		return false, nil
	}
	return err == nil, err
}

// held asks as IsOwner is documented: in a transaction of the server.
func (own *etcdLocker) held(name string) (bool, error) {
	context, cancel := context.WithTimeout(context.Background(), expiry)
	defer cancel()
	reply, err := own.session.Client().Txn(context).If(own.mutex(name).IsOwner()).Commit()
	return err == nil && reply.Succeeded, err
}

func (own *etcdLocker) token(name string) string {
	header := own.mutex(name).Header()
	if header == nil {
		return ""
	}
	return strconv.FormatInt(header.Revision, 10)
}

func (own *etcdLocker) lost() <-chan struct{} { return own.session.Done() }

func (own *etcdLocker) unlock(name string) error {
	return own.mutex(name).Unlock(context.Background())
}

func (own *etcdLocker) campaign(name, value string) error {
	return own.election(name).Campaign(context.Background(), value)
}

func (own *etcdLocker) resign(name string) error {
	return own.election(name).Resign(context.Background())
}

func (own *etcdLocker) leader(name string) (string, error) {
	response, err := own.election(name).Leader(context.Background())
	if err != nil {
		return "", err
	}
	return string(response.Kvs[0].Value), nil
}

func (own *etcdLocker) observe(name string, leader func(value string)) error {
	changes := own.election(name).Observe(context.Background())
	go func() {
		for response := range changes {
			leader(string(response.Kvs[0].Value))
		}
	}()
	return nil
}
