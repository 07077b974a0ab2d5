// Locks by clients that are written in Go, as lines on standard input say: THREAD VERB NAME [VALUE]. Each thread does one thing
// after the other, and replies with a line of its own when it is done.
//
//	peer etcd ENDPOINTS     go.etcd.io/etcd/client/v3/concurrency: Mutex and Election
//	peer redsync ADDRESSES  redsync on one server or several
//	peer redislock ADDRESS  bsm/redislock
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
)

// A locker is one thread's way to a lock.
type locker interface {
	lock(name string) error
	try(name string) (bool, error)
	unlock(name string) error
}

// An elector also takes part in elections.
type elector interface {
	campaign(name, value string) error
	resign(name string) error
	leader(name string) (string, error)
	observe(name string, leader func(value string)) error
}

var output sync.Mutex

func say(words ...string) {
	output.Lock()
	defer output.Unlock()
	fmt.Println(strings.Join(words, " "))
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: peer etcd|redsync|redislock ADDRESSES")
		os.Exit(64)
	}
	open, err := connect(os.Args[1], strings.Split(os.Args[2], ","))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	say("ready")
	threads := map[string]chan []string{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		thread := threads[words[0]]
		if thread == nil {
			thread = make(chan []string, 16)
			threads[words[0]] = thread
			go serve(words[0], open, thread)
		}
		thread <- words[1:]
	}
}

func connect(kind string, addresses []string) (func() (locker, error), error) {
	switch kind {
	case "etcd":
		return openEtcd(addresses)
	case "redsync":
		return openRedsync(addresses), nil
	case "redislock":
		return openRedislock(addresses[0]), nil
	}
	return nil, fmt.Errorf("unknown client %q", kind)
}

func serve(thread string, open func() (locker, error), commands <-chan []string) {
	own, err := open()
	for words := range commands {
		reply := ""
		if err == nil {
			reply, err = run(thread, own, open, words)
		}
		if err != nil {
			reply, err = "failed "+err.Error(), nil
		}
		say(thread, reply)
	}
}

func run(thread string, own locker, open func() (locker, error), words []string) (string, error) {
	verb, name := words[0], words[1]
	switch verb {
	case "lock":
		return "locked", own.lock(name)
	case "try":
		got, err := own.try(name)
		if !got {
			return "busy", err
		}
		return "locked", err
	case "unlock":
		return "unlocked", own.unlock(name)
	case "contend":
		return contend(open, words[1:])
	}
	elector, can := own.(elector)
	if !can {
		return "", fmt.Errorf("this client cannot %s", verb)
	}
	switch verb {
	case "campaign":
		return "leads", elector.campaign(name, words[2])
	case "resign":
		return "resigned", elector.resign(name)
	case "leader":
		value, err := elector.leader(name)
		return "leader " + value, err
	case "observe":
		return "observes", elector.observe(name, func(value string) { say(thread, "observed", value) })
	}
	return "", fmt.Errorf("unknown verb %q", verb)
}
