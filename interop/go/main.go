// Locks by clients that are written in Go, as lines on standard input say: THREAD VERB NAME [VALUE]. Each thread does one thing
// after the other, and replies with a line of its own when it is done.
//
//	peer etcd ENDPOINTS [TTL_MS]               go.etcd.io/etcd/client/v3/concurrency: Mutex and Election
//	peer redsync ADDRESSES [TTL_MS [PAUSE_MS]]  redsync on one server or several
//	peer redislock ADDRESS [TTL_MS [PAUSE_MS]]  bsm/redislock
//
// The pause is between two tries of those who wait; 0 is what the client's documentation has. 'THREAD lost!' tells that the client says so.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A locker is one thread's way to a lock.
type locker interface {
	lock(name string) error
	try(name string) (bool, error)
	// within gives up after the limit.
	within(name string, limit time.Duration) (bool, error)
	// held is the client's own check of a lock that it got.
	held(name string) (bool, error)
	// token is a number of a held lock that grows with each grant; none is empty.
	token(name string) string
	// lost tells when the client learns that it has lost its locks; nil if it tells nothing.
	lost() <-chan struct{}
	unlock(name string) error
}

var (
	expiry = 10 * time.Second
	pause  = 2 * time.Millisecond
)

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
	if len(os.Args) < 3 || len(os.Args) > 5 {
		fmt.Fprintln(os.Stderr, "usage: peer etcd|redsync|redislock ADDRESSES [TTL_MS [PAUSE_MS]]")
		os.Exit(64)
	}
	for at, setting := range []*time.Duration{&expiry, &pause} {
		if len(os.Args) > 3+at {
			milliseconds, err := strconv.Atoi(os.Args[3+at])
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(64)
			}
			*setting = time.Duration(milliseconds) * time.Millisecond
		}
	}
	again := func() (func() (locker, error), error) { return connect(os.Args[1], strings.Split(os.Args[2], ",")) }
	open, err := again()
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
			go serve(words[0], open, again, thread)
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

func serve(thread string, open func() (locker, error), again connector, commands <-chan []string) {
	own, err := start(thread, open)
	var prepared func() (string, error)
	for words := range commands {
		reply := ""
		switch {
		case err != nil:
		case words[0] == "turns" || words[0] == "relay":
			prepared, err = prepare(again, words)
			reply = "ready"
		case words[0] == "go":
			reply, err = prepared()
		default:
			// Who asks for a lock after a loss opens a new session.
			if words[0] != "held" && words[0] != "unlock" && isOver(own.lost()) {
				own, err = start(thread, open)
			}
			if err == nil {
				reply, err = run(thread, own, open, words)
			}
		}
		if err != nil {
			reply, err = "failed "+strings.ReplaceAll(err.Error(), "\n", " "), nil
		}
		say(thread, reply)
	}
}

// start opens a locker, and says when it has lost its locks.
func start(thread string, open func() (locker, error)) (locker, error) {
	own, err := open()
	if err == nil && own.lost() != nil {
		go func() {
			<-own.lost()
			say(thread, "lost!")
		}()
	}
	return own, err
}

func isOver(lost <-chan struct{}) bool {
	select {
	case <-lost:
		return true
	default:
		return false
	}
}

func run(thread string, own locker, open func() (locker, error), words []string) (string, error) {
	verb, name := words[0], words[1]
	switch verb {
	case "lock":
		return "locked", own.lock(name)
	case "token":
		err := own.lock(name)
		return strings.TrimSpace("token " + own.token(name)), err
	case "try":
		got, err := own.try(name)
		if !got {
			return "busy", err
		}
		return "locked", err
	case "wait":
		milliseconds, err := strconv.Atoi(words[2])
		if err != nil {
			return "", err
		}
		got, err := own.within(name, time.Duration(milliseconds)*time.Millisecond)
		if !got {
			return "gave-up", err
		}
		return "locked", err
	case "held":
		held, err := own.held(name)
		if !held {
			return "lost", err
		}
		return "held", err
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
