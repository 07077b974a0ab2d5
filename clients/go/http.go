package lockkeeper

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// rate: the server's and the client's clocks may go at slightly different rates.
const rate = 0.99

// call is a request to the server.
type call struct {
	method, path string
	timeout      time.Duration
	body         any
	key          string
}

// reply is what the server said, with the moment before its request was sent: what it says about time counts from there
// (Law 5).
type reply struct {
	sent   time.Duration
	status int
	said
}

type said struct {
	Session    string   `json:"session"`
	TTL        float64  `json:"ttl_ms"`
	ValidFor   *float64 `json:"valid_for_ms"`
	Heartbeat  float64  `json:"heartbeat_ms"`
	Waited     float64  `json:"waited_ms"`
	Hold       string   `json:"hold"`
	State      string   `json:"state"`
	Mode       string   `json:"mode"`
	Tokens     []tokens `json:"tokens"`
	Reason     string   `json:"reason"`
	Holds      []said   `json:"holds"`
	Code       string   `json:"code"`
	Detail     string   `json:"detail"`
	BusyHolder []struct {
		Holders []string `json:"holders"`
	} `json:"busy"`
}

type tokens struct {
	Name  string `json:"name"`
	Token uint64 `json:"token"`
}

func milliseconds(count float64) time.Duration {
	return time.Duration(count * float64(time.Millisecond))
}

func (r *reply) deadline() time.Duration { return r.sent + milliseconds(rate*r.Waited) + r.validFor() }

func (s *said) validFor() time.Duration {
	if s.ValidFor == nil {
		return 0
	}
	return milliseconds(*s.ValidFor)
}

func (r *reply) saysSessionEnded() bool {
	return r.Code == "unknown_session" || r.Code == "session_ended"
}

func (r *reply) reason() string {
	if r.Reason != "" {
		return r.Reason
	}
	return r.Code
}

func (r *reply) err() error {
	detail := r.Detail
	if detail == "" {
		detail = fmt.Sprintf("the server replied with status %d", r.status)
	}
	switch {
	case r.Code == "busy":
		var holders []string
		for _, lock := range r.BusyHolder {
			holders = append(holders, lock.Holders...)
		}
		return &BusyError{detail, holders}
	case r.Code == "lost" || r.saysSessionEnded():
		return &LostError{detail, r.reason()}
	case r.status == http.StatusRequestTimeout || r.status == http.StatusTooManyRequests || r.status >= 500:
		return &UnavailableError{Detail: detail, Code: r.Code}
	}
	return &RefusedError{detail, r.Code}
}

// do sends a request and waits for its reply. The error is an *errNoReply, or that of the context.
func (c *Client) do(ctx context.Context, call call) (*reply, error) {
	limited, cancel := context.WithTimeout(ctx, call.timeout)
	defer cancel()
	var body io.Reader
	if call.body != nil {
		encoded, err := json.Marshal(call.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(limited, call.method, c.url+call.path, body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if call.body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if call.key != "" {
		request.Header.Set("Idempotency-Key", call.key)
	}
	if c.options.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.options.Token)
	}
	sent := now()
	response, err := c.http.Do(request)
	var text []byte
	if err == nil {
		text, err = io.ReadAll(response.Body)
		response.Body.Close()
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &errNoReply{err, errors.Is(err, context.DeadlineExceeded)}
	}
	reply := &reply{sent: sent, status: response.StatusCode}
	if !reply.parse(text) {
		err := fmt.Errorf("a reply with status %d that is not of a lockkeeper server", reply.status)
		return nil, &errNoReply{cause: err}
	}
	return reply, nil
}

// parse says whether the reply is the server's, not that of a proxy or a sign-in page.
func (r *reply) parse(text []byte) bool {
	if r.status == 204 {
		return true
	}
	if json.Unmarshal(text, &r.said) != nil {
		return false
	}
	if r.status == 200 || r.status == 201 {
		return r.Session != "" && r.ValidFor != nil
	}
	return r.Code != ""
}

// quietly sends what ends by itself, later, if it gets lost.
func (c *Client) quietly(path string, timeout time.Duration) {
	for tries := 0; tries < 2; tries++ {
		if _, err := c.do(context.Background(), call{method: "DELETE", path: path, timeout: timeout}); err == nil {
			return
		}
	}
}

// newKey is chosen before anything is sent, so that a retry finds the same wait or the same hold (Law 4).
func newKey() string {
	var key [16]byte
	if _, err := rand.Read(key[:]); err != nil {
		panic("lockkeeper: no random numbers: " + err.Error())
	}
	return hex.EncodeToString(key[:])
}
