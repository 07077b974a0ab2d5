package lockkeeper

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"
)

// State says whether a hold may be trusted.
type State string

// The states of a hold.
const (
	// Held: the server has confirmed it.
	Held State = "held"
	// Uncertain: the server or its engine does not reply; the hold is good until its deadline.
	Uncertain State = "uncertain"
	// Lost: somebody else may hold the lock.
	Lost State = "lost"
	// Released: it was released.
	Released State = "released"
)

// Hold is a held lock, or several as one. Its methods may be called by any number of goroutines.
type Hold struct {
	id      string
	client  *Client
	session *session
	tokens  map[string]uint64
	gone    chan struct{}

	// Guarded by the client's mutex.
	mode     string
	deadline time.Duration
	state    State
	reason   string
}

// lose marks it as lost. The caller has the mutex.
func (h *Hold) lose(reason string) {
	if h.state == Lost || h.state == Released {
		return
	}
	h.state, h.reason = Lost, reason
	close(h.gone)
}

// isLost reads the clock, so it is right even while the server is silent. The caller has the mutex.
func (h *Hold) isLost() bool {
	if h.state != Released && now() >= h.deadline {
		h.lose("deadline")
	}
	return h.state == Lost
}

// confirm moves the deadline. The caller has the mutex.
func (h *Hold) confirm(deadline time.Duration, state string) {
	// Law 2: what was lost stays lost, also if a late reply says otherwise.
	if h.isLost() || h.state == Released {
		return
	}
	if deadline > h.deadline {
		h.deadline = deadline
	}
	h.state = Held
	if state == "uncertain" {
		h.state = Uncertain
	}
}

// err is the *LostError of a hold that is lost. The caller has the mutex.
func (h *Hold) err() error {
	if !h.isLost() {
		return nil
	}
	names := make([]string, 0, len(h.tokens))
	for name := range h.tokens {
		names = append(names, name)
	}
	sort.Strings(names)
	detail := "the hold of " + strings.Join(names, ", ") + " is lost: stop what the lock protects, somebody else may hold it"
	return &LostError{detail, h.reason}
}

// Err is nil while the hold may be trusted, and a *LostError once it is lost. It reads the clock, so it is right even while
// the server is silent: ask before a step that matters.
func (h *Hold) Err() error {
	h.client.mutex.Lock()
	defer h.client.mutex.Unlock()
	return h.err()
}

// Lost is closed when the hold is lost.
func (h *Hold) Lost() <-chan struct{} { return h.gone }

// Context is a copy of the parent that is cancelled when the hold is lost. Call cancel when the work is done.
func (h *Hold) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, cancel = context.WithCancel(parent)
	go func() {
		select {
		case <-h.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// State says whether the hold may be trusted.
func (h *Hold) State() State {
	h.client.mutex.Lock()
	defer h.client.mutex.Unlock()
	h.isLost()
	return h.state
}

// Mode is "exclusive", "shared", or permits as "2/4".
func (h *Hold) Mode() string {
	h.client.mutex.Lock()
	defer h.client.mutex.Unlock()
	return h.mode
}

// ValidFor is how long the hold may be trusted without another word from the server.
func (h *Hold) ValidFor() time.Duration {
	h.client.mutex.Lock()
	defer h.client.mutex.Unlock()
	if h.isLost() || h.state == Released {
		return 0
	}
	return h.deadline - now()
}

// Token is the fencing token: larger than that of every earlier hold of this lock. The error is a *LostError once the hold is
// lost. A hold of several locks has Tokens.
func (h *Hold) Token() (uint64, error) {
	tokens, err := h.Tokens()
	if err != nil {
		return 0, err
	}
	if len(tokens) != 1 {
		return 0, errors.New("lockkeeper: the hold has several locks: use Tokens")
	}
	for _, token := range tokens {
		return token, nil
	}
	return 0, nil
}

// Tokens has the fencing token of each lock.
func (h *Hold) Tokens() (map[string]uint64, error) {
	if err := h.Err(); err != nil {
		return nil, err
	}
	tokens := make(map[string]uint64, len(h.tokens))
	for name, token := range h.tokens {
		tokens[name] = token
	}
	return tokens, nil
}

// Release releases the locks, and waits until the server has done so. The error is a *LostError if they were lost before. A
// second call does nothing.
func (h *Hold) Release() error {
	h.client.mutex.Lock()
	if err := h.err(); err != nil || h.state == Released {
		h.client.mutex.Unlock()
		return err
	}
	h.state = Released
	delete(h.session.holds, h.id)
	h.client.mutex.Unlock()
	reply, err := h.untilReplied("DELETE", "")
	if err != nil {
		return err
	}
	if reply.status != 204 {
		return reply.err()
	}
	return nil
}

// Downgrade makes an exclusive hold a shared one; no other writer comes between.
func (h *Hold) Downgrade() error {
	if err := h.Err(); err != nil {
		return err
	}
	reply, err := h.untilReplied("POST", "/downgrade")
	if err == nil && reply.Code == "invalid" {
		// The reply to an earlier try may have been lost.
		reply, err = h.untilReplied("GET", "")
	}
	if err != nil {
		return err
	}
	h.client.mutex.Lock()
	defer h.client.mutex.Unlock()
	switch {
	case reply.Code == "lost":
		h.lose(reply.reason())
		return reply.err()
	case reply.status != 200:
		return reply.err()
	case reply.said.Mode != "shared":
		return &RefusedError{"only an exclusive hold can be downgraded", "invalid"}
	}
	h.mode = "shared"
	h.confirm(reply.deadline(), reply.said.State)
	return nil
}

func (h *Hold) untilReplied(method, what string) (*reply, error) {
	for {
		call := call{method: method, path: "/v1/holds/" + h.id + what, timeout: h.session.ttl / 3}
		reply, err := h.client.do(context.Background(), call)
		if err == nil {
			return reply, nil
		}
		h.client.mutex.Lock()
		over := now() >= h.deadline || h.session.isOver()
		h.client.mutex.Unlock()
		if over {
			detail := fmt.Sprintf("no reply: %v. The lock is free at the latest after the TTL", err)
			return nil, &UnavailableError{Detail: detail, cause: err}
		}
		time.Sleep(h.session.ttl / 100)
	}
}
