package lockkeeper

import (
	"context"
	"time"
)

// longestSleep of those who wait for a deadline: timers do not count the time that the machine is suspended.
const longestSleep = 500 * time.Millisecond

// session is a session at the server. Its heartbeats and its deadlines have a goroutine each.
type session struct {
	client *Client
	id     string
	ttl    time.Duration
	// How long after one heartbeat the next is sent; no deadline goes beyond the TTL at the server's engine.
	beat  time.Duration
	ended chan struct{}
	// Wakes the goroutine of the deadlines: there is another one to look at.
	changed chan struct{}

	// Guarded by the client's mutex.
	deadline time.Duration
	isEnded  bool
	holds    map[string]*Hold
	// Holds that the last heartbeat listed and this client knows nothing of: the reply that told of them was lost.
	unknown map[string]bool
	givenUp map[string]bool
}

func newSession(client *Client, reply *reply) *session {
	return &session{
		client:   client,
		id:       reply.Session,
		ttl:      milliseconds(reply.TTL),
		beat:     milliseconds(reply.Heartbeat),
		ended:    make(chan struct{}),
		changed:  make(chan struct{}, 1),
		deadline: reply.deadline(),
		holds:    map[string]*Hold{},
		unknown:  map[string]bool{},
		givenUp:  map[string]bool{},
	}
}

// isOver says whether the session has ended, or may have: its time is over. The caller has the mutex.
func (s *session) isOver() bool {
	if !s.isEnded && now() >= s.deadline {
		s.end("deadline")
	}
	return s.isEnded
}

// end: the session has ended, and all that it held is lost. The caller has the mutex.
func (s *session) end(reason string) {
	for _, hold := range s.stop() {
		hold.lose(reason)
	}
}

// stop ends the heartbeats and returns what it held. The caller has the mutex.
func (s *session) stop() map[string]*Hold {
	if !s.isEnded {
		s.isEnded = true
		close(s.ended)
	}
	holds := s.holds
	s.holds = map[string]*Hold{}
	return holds
}

// add takes a hold in, unless it was given up.
func (s *session) add(hold *Hold) bool {
	s.client.mutex.Lock()
	defer s.client.mutex.Unlock()
	if s.isOver() || s.givenUp[hold.id] || now() >= hold.deadline {
		return false
	}
	s.holds[hold.id] = hold
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return true
}

// expire fires the lost signals when their time comes. Apart from the heartbeats, which may hang.
func (s *session) expire() {
	for {
		s.client.mutex.Lock()
		if s.isOver() {
			s.client.mutex.Unlock()
			return
		}
		next := s.deadline
		for id, hold := range s.holds {
			if hold.isLost() {
				delete(s.holds, id)
			} else if hold.deadline < next {
				next = hold.deadline
			}
		}
		s.client.mutex.Unlock()
		sleep := next - now()
		if sleep > longestSleep {
			sleep = longestSleep
		}
		timer := time.NewTimer(sleep)
		select {
		case <-s.ended:
		case <-s.changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// heartbeats keeps the session until it ends.
func (s *session) heartbeats() {
	pause := s.beat
	for {
		timer := time.NewTimer(pause)
		select {
		case <-s.ended:
			timer.Stop()
			return
		case <-timer.C:
		}
		pause = s.heartbeat()
	}
}

// heartbeat sends one, and returns how long to wait before the next.
func (s *session) heartbeat() time.Duration {
	s.client.mutex.Lock()
	known := make(map[string]bool, len(s.holds))
	for id := range s.holds {
		known[id] = true
	}
	isOver := s.isOver()
	s.client.mutex.Unlock()
	if isOver {
		return 0
	}
	path := "/v1/sessions/" + s.id + "/heartbeat"
	reply, err := s.client.do(context.Background(), call{method: "POST", path: path, timeout: s.beat})
	s.client.mutex.Lock()
	if s.isOver() {
		s.client.mutex.Unlock()
		return 0
	}
	if err != nil {
		for _, hold := range s.holds {
			if hold.state == Held {
				hold.state = Uncertain
			}
		}
		s.client.mutex.Unlock()
		return s.beat / 6
	}
	var orphans []string
	switch {
	case reply.saysSessionEnded():
		s.end(reply.reason())
	case reply.status == 200:
		orphans = s.confirm(reply, known)
	}
	s.client.mutex.Unlock()
	if reply.status != 200 {
		return s.beat / 3
	}
	for _, orphan := range orphans {
		s.client.quietly("/v1/holds/"+orphan, s.ttl/3)
	}
	return reply.sent + s.beat - now()
}

// confirm takes over what a heartbeat's reply says. It returns the holds that nobody here has or waits for. The caller has the
// mutex.
func (s *session) confirm(reply *reply, known map[string]bool) []string {
	if deadline := reply.deadline(); deadline > s.deadline {
		s.deadline = deadline
	}
	listed := make(map[string]said, len(reply.Holds))
	for _, hold := range reply.Holds {
		listed[hold.Hold] = hold
	}
	for id, hold := range s.holds {
		said, isListed := listed[id]
		switch {
		case isListed && said.State != "lost":
			hold.confirm(reply.sent+said.validFor(), said.State)
		case isListed:
			hold.lose(said.Reason)
		case known[id]:
			hold.lose("gone")
		}
		if hold.isLost() {
			delete(s.holds, id)
		}
	}
	// One that is listed twice, a third of the TTL apart, and unknown: its reply was lost, or its caller gave up.
	var orphans []string
	unknown := map[string]bool{}
	for id := range listed {
		switch {
		case s.holds[id] != nil:
		case s.unknown[id]:
			orphans = append(orphans, id)
			s.givenUp[id] = true
		default:
			unknown[id] = true
		}
	}
	s.unknown = unknown
	return orphans
}
