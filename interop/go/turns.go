package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const record = 64

// contend raises a counter in a file that nothing but the lock protects, and replies
// "turns COUNT HAND-OVERS MEDIAN_US". Words: NAME FILE THREADS MS.
func contend(open func() (locker, error), words []string) (string, error) {
	name, path := words[0], words[1]
	threads, err := strconv.Atoi(words[2])
	if err != nil {
		return "", err
	}
	milliseconds, err := strconv.Atoi(words[3])
	if err != nil {
		return "", err
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	end := time.Now().Add(time.Duration(milliseconds) * time.Millisecond)
	var all sync.WaitGroup
	var guard sync.Mutex
	var turns int
	var handOvers []int64
	var failed error
	for range threads {
		all.Go(func() {
			own, err := open()
			for err == nil && time.Now().Before(end) {
				if err = own.lock(name); err != nil {
					break
				}
				var took int64
				took, err = turn(file)
				if err == nil {
					err = own.unlock(name)
				}
				guard.Lock()
				turns++
				if took > 0 {
					handOvers = append(handOvers, took)
				}
				guard.Unlock()
			}
			if err != nil {
				guard.Lock()
				failed = err
				guard.Unlock()
			}
		})
	}
	all.Wait()
	if failed != nil {
		return "", failed
	}
	median := int64(-1)
	if len(handOvers) > 0 {
		slices.Sort(handOvers)
		median = handOvers[len(handOvers)/2] / 1000
	}
	return fmt.Sprintf("turns %d %d %d", turns, len(handOvers), median), nil
}

// turn raises the counter. It says how many ns ago the other side has let go, if it had the turn before.
func turn(file *os.File) (int64, error) {
	acquired := now()
	text := make([]byte, record)
	if _, err := file.ReadAt(text, 0); err != nil {
		return 0, err
	}
	words := strings.Fields(string(text))
	count, err := strconv.Atoi(words[0])
	if err != nil {
		return 0, err
	}
	took := int64(0)
	if words[1] != "go" && words[1] != "none" {
		since, err := strconv.ParseInt(words[2], 10, 64)
		if err != nil {
			return 0, err
		}
		took = acquired - since
	}
	next := fmt.Sprintf("%-*s", record, fmt.Sprintf("%d go %d", count+1, now()))
	_, err = file.WriteAt([]byte(next), 0)
	return took, err
}

// now reads the clock that is common to all processes of the machine, in nanoseconds.
func now() int64 {
	var time unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &time); err != nil {
		panic(err)
	}
	return time.Nano()
}
