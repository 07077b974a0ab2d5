package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const clientsOfWaiters = 4

// connector opens a connection of its own, and says how to get a locker on it.
type connector func() (func() (locker, error), error)

// contender is what one of those who take turns got.
type contender struct {
	Waits        [][2]int64 `json:"waits"`
	All          int64      `json:"all"`
	Seconds      float64    `json:"seconds"`
	HandOvers    int64      `json:"hand_overs"`
	AllHandOvers int64      `json:"all_hand_overs"`
}

// prepare connects all who are to be measured, so that this is not counted; what it returns measures them. Words:
//
//	turns NAME alone|spread|contended COUNT MS TURNS
//	relay NAME COUNT HAND-OVERS
func prepare(connect connector, words []string) (func() (string, error), error) {
	numbers := []int{}
	for _, word := range words[2:] {
		if number, err := strconv.Atoi(word); err == nil {
			numbers = append(numbers, number)
		}
	}
	if words[0] == "relay" {
		return prepareRelay(connect, words[1], numbers[0], numbers[1])
	}
	return prepareTurns(connect, words[1], words[2] == "contended", numbers[0], numbers[1], int64(numbers[2]))
}

// lockers are as many as asked for, on as many connections.
func lockers(connect connector, count, connections int) ([]locker, error) {
	open := []func() (locker, error){}
	for range connections {
		one, err := connect()
		if err != nil {
			return nil, err
		}
		open = append(open, one)
	}
	all := []locker{}
	for number := range count {
		one, err := open[number%connections]()
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

func prepareTurns(connect connector, name string, contended bool, count, milliseconds int, turns int64) (func() (string, error), error) {
	connections := 1
	if contended {
		connections = count
	}
	all, err := lockers(connect, count, connections)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for number, own := range all {
		names = append(names, name)
		if !contended {
			names[number] = fmt.Sprintf("%s-%d", name, number)
		}
		if err := own.lock(names[number]); err != nil {
			return nil, err
		}
		if err := own.unlock(names[number]); err != nil {
			return nil, err
		}
	}
	if contended {
		// What a client opens only to wait is no part of a turn either.
		if err := meet(all, name); err != nil {
			return nil, err
		}
	}
	return func() (string, error) {
		var group sync.WaitGroup
		var last, left atomic.Int64
		last.Store(-1)
		left.Store(turns)
		results, failures := make([]contender, count), make([]error, count)
		started, limit := time.Now(), time.Duration(milliseconds)*time.Millisecond
		for number, own := range all {
			group.Go(func() {
				results[number], failures[number] = takeTurns(own, names[number], int64(number), &last, &left, started, limit)
			})
		}
		group.Wait()
		if err := errors.Join(failures...); err != nil {
			return "", err
		}
		text, err := json.Marshal(results)
		return string(text), err
	}, nil
}

// meet lets all take the lock once, at the same time.
func meet(all []locker, name string) error {
	var group sync.WaitGroup
	failures := make([]error, len(all))
	for number, own := range all {
		group.Go(func() {
			if failures[number] = own.lock(name); failures[number] == nil {
				failures[number] = own.unlock(name)
			}
		})
	}
	group.Wait()
	return errors.Join(failures...)
}

func takeTurns(own locker, name string, me int64, last, left *atomic.Int64, started time.Time, limit time.Duration) (contender, error) {
	var got contender
	waits := map[int64]int64{}
	for time.Since(started) < limit && left.Add(-1) >= 0 {
		asked := time.Now()
		if err := own.lock(name); err != nil {
			return got, err
		}
		handOver := last.Swap(me) != me
		if err := own.unlock(name); err != nil {
			return got, err
		}
		took, ended := time.Since(asked), time.Since(started)
		got.All++
		if handOver {
			got.AllHandOvers++
		}
		if ended <= limit {
			waits[rounded(took)]++
			got.Seconds = ended.Seconds()
			if handOver {
				got.HandOvers++
			}
		}
	}
	got.Waits = pairs(waits)
	return got, nil
}

func prepareRelay(connect connector, name string, count, handOvers int) (func() (string, error), error) {
	holders, err := lockers(connect, 1, 1)
	if err != nil {
		return nil, err
	}
	if err := holders[0].lock(name); err != nil {
		return nil, err
	}
	waiters, err := lockers(connect, count, clientsOfWaiters)
	if err != nil {
		return nil, err
	}
	waits, served := map[int64]int64{}, 0
	var released time.Time
	done := make(chan error, count)
	for _, own := range waiters {
		go func() {
			err := own.lock(name)
			// Only the holder is here, so that nobody else writes.
			if served++; served <= handOvers {
				waits[rounded(time.Since(released))]++
			}
			if served == handOvers || err != nil {
				done <- err
			}
			released = time.Now()
			if err == nil {
				err = own.unlock(name)
			}
		}()
	}
	return func() (string, error) {
		released = time.Now()
		if err := holders[0].unlock(name); err != nil {
			return "", err
		}
		if err := <-done; err != nil {
			return "", err
		}
		text, err := json.Marshal(pairs(waits))
		return string(text), err
	}, nil
}

// rounded to three digits, as fine as any two runs agree, so that the reply stays short.
func rounded(took time.Duration) int64 {
	unit := int64(1)
	for int64(took)/unit >= 1000 {
		unit *= 10
	}
	return int64(took) / unit * unit
}

func pairs(waits map[int64]int64) [][2]int64 {
	all := [][2]int64{}
	for wait, times := range waits {
		all = append(all, [2]int64{wait, times})
	}
	return all
}
