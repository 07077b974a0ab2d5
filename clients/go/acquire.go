package lockkeeper

import (
	"context"
	"errors"
	"time"
)

// Request says what to hold, and how.
type Request struct {
	// Names of the locks, all or nothing.
	Names []string
	// Shared with other readers.
	Shared bool
	// Permits to take of the Of that there are, instead of the whole lock.
	Permits, Of int
	// Try without waiting.
	Try bool
	// Wait is how long to wait, after which the error is a *BusyError. 0 is until the context ends.
	Wait time.Duration
	// Lease is how long the hold lasts before it ends by itself. 0 is until it is released.
	Lease time.Duration
}

type wanted struct {
	Session string   `json:"session"`
	Names   []string `json:"names"`
	Mode    any      `json:"mode"`
	Wait    *int64   `json:"wait,omitempty"`
	Lease   *int64   `json:"lease,omitempty"`
}

func rounded(length time.Duration) *int64 {
	count := length.Milliseconds()
	return &count
}

// Acquire waits for what is asked for. If the session ends meanwhile, it waits anew in another. A wait whose context ends
// leaves the queue. At the context's deadline the error is that of the context or a *BusyError; both are
// context.DeadlineExceeded to errors.Is.
func (c *Client) Acquire(ctx context.Context, request Request) (*Hold, error) {
	wanted := wanted{Names: append([]string{}, request.Names...), Mode: "exclusive"}
	switch {
	case request.Permits != 0 || request.Of != 0:
		wanted.Mode = map[string]int{"permits": request.Permits, "of": request.Of}
	case request.Shared:
		wanted.Mode = "shared"
	}
	if request.Lease != 0 {
		wanted.Lease = rounded(request.Lease)
	}
	// The server ends the wait by itself, also if it does not learn that the context has ended.
	wait, isLimited := request.Wait, request.Wait > 0 || request.Try
	if deadline, ok := ctx.Deadline(); ok && !request.Try {
		if left := time.Until(deadline) + time.Millisecond; !isLimited || left < wait {
			wait, isLimited = left, true
		}
	}
	var end *time.Duration
	if isLimited {
		if wait < 0 {
			wait = 0
		}
		wanted.Wait = rounded(wait)
		at := now() + wait
		end = &at
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		session, err := c.open(ctx)
		if err != nil {
			return nil, err
		}
		wanted.Session = session.id
		key := newKey()
		hold, err := c.ask(ctx, session, key, wanted, end)
		if err != nil && ctx.Err() != nil && !c.isOver(session) {
			// The caller gave up: those who wait behind it must not wait for the server to notice.
			go c.quietly("/v1/sessions/"+session.id+"/requests/"+key, session.ttl/3)
		}
		if hold != nil || err != nil {
			return hold, err
		}
	}
}

// ask makes one request by its key, repeated until there is a reply. Without hold and error it must be made anew.
func (c *Client) ask(ctx context.Context, session *session, key string, wanted wanted, end *time.Duration) (*Hold, error) {
	pause := 20 * time.Millisecond
	for {
		// A long wait is cut and sent again, so that a dead connection does not go unnoticed. Its place is kept.
		timeout := session.ttl
		if timeout < time.Second {
			timeout = time.Second
		}
		if end != nil {
			left := *end - now()
			if left < 0 {
				left = 0
			}
			if left+session.ttl < timeout {
				timeout = left + session.ttl
			}
		}
		if timeout > 30*time.Second {
			timeout = 30 * time.Second
		}
		reply, err := c.do(ctx, call{method: "POST", path: "/v1/holds", timeout: timeout, body: wanted, key: key})
		var noReply *errNoReply
		if errors.As(err, &noReply) {
			if end != nil && now() >= *end+session.ttl {
				return nil, &UnavailableError{Detail: "the wait ended without a reply: " + err.Error(), cause: noReply.cause}
			}
			if c.isOver(session) {
				return nil, nil
			}
			if !noReply.timedOut {
				if err := sleep(ctx, pause); err != nil {
					return nil, err
				}
				if pause *= 2; pause > session.ttl/10 {
					pause = session.ttl / 10
				}
			}
			continue
		}
		switch {
		case err != nil:
			return nil, err
		case reply.status == 201:
			return c.believe(session, reply)
		case reply.saysSessionEnded():
			c.mutex.Lock()
			session.end(reply.reason())
			c.mutex.Unlock()
			return nil, nil
		case reply.Code == "lost" || reply.Code == "released":
			return nil, nil
		case reply.Code == "busy" && reply.BusyHolder == nil && (end == nil || now() < *end):
			// The server had given up the wait when the retry came.
			return nil, nil
		}
		return nil, reply.err()
	}
}

// believe makes the hold of a grant, if there is time left to trust it.
func (c *Client) believe(session *session, granted *reply) (*Hold, error) {
	path, deadline := "/v1/holds/"+granted.Hold, granted.deadline()
	if deadline-now() < granted.validFor()/2 {
		// After a long wait little may be left, because of the rate of the clocks: a short request tells it exactly.
		again, err := c.do(context.Background(), call{method: "GET", path: path, timeout: session.ttl / 3})
		switch {
		case err != nil:
		case again.status == 404 || again.status == 410:
			return nil, nil
		case again.status != 200:
			// A refusal leaves the hold where it is, and the next request would wait behind it: it is released.
			deadline = 0
		case again.deadline() > deadline:
			deadline = again.deadline()
		}
	}
	hold := &Hold{
		id:       granted.Hold,
		client:   c,
		session:  session,
		tokens:   make(map[string]uint64, len(granted.Tokens)),
		gone:     make(chan struct{}),
		mode:     granted.Mode,
		deadline: deadline,
		state:    Held,
	}
	for _, token := range granted.Tokens {
		hold.tokens[token.Name] = token.Token
	}
	if !session.add(hold) {
		c.quietly(path, session.ttl/3)
		return nil, nil
	}
	return hold, nil
}

func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
