// Package lockkeeper is a client of a "lockkeeper serve" server: distributed locks with fair waits, renewal, fencing tokens, and
// a lost signal that comes before anybody else can hold.
//
//	client, err := lockkeeper.New("http://127.0.0.1:7670", lockkeeper.Options{})
//	defer client.Close()
//	hold, err := client.Lock(ctx, "orders/42")
//	defer hold.Release()
//	token, err := hold.Token()
package lockkeeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Options are the settings of a client. All are optional.
type Options struct {
	// TTL is how long the server waits for a silent client before it gives it up; 10 seconds by default.
	TTL time.Duration
	// Holder is the name shown to operators; the program's by default.
	Holder string
	// Token is the server's token for this client, if it asks for one.
	Token string
	// Transport carries the requests, for TLS settings of your own.
	Transport http.RoundTripper
}

// Client is a process at a lockkeeper server, with a session of its own. Any number of goroutines may use it.
type Client struct {
	url     string
	options Options
	http    *http.Client
	opening chan struct{}

	mutex    sync.Mutex
	session  *session
	isClosed bool
}

// New makes a client of the server at this address: http://127.0.0.1:7670, or unix:/run/lockkeeper.sock. Its first lock opens the
// session.
func New(address string, options Options) (*Client, error) {
	file := ""
	if strings.HasPrefix(address, "unix:/") {
		file, address = strings.TrimPrefix(address, "unix:"), "http://localhost"
	}
	parsed, err := url.Parse(address)
	if err != nil || (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Host == "" {
		return nil, fmt.Errorf("lockkeeper: '%s' is no address of a server: write it as http://127.0.0.1:7670", address)
	}
	if options.TTL == 0 {
		options.TTL = 10 * time.Second
	}
	if options.Holder == "" {
		options.Holder = filepath.Base(os.Args[0])
	}
	if file != "" && options.Transport != nil {
		return nil, errors.New("lockkeeper: a Unix socket has no Transport of your own: give one of them")
	}
	if options.Transport == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		// Every wait has a connection; they are used again.
		transport.MaxIdleConnsPerHost = 64
		if file != "" {
			transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", file)
			}
		}
		options.Transport = transport
	}
	return &Client{
		url:     strings.TrimRight(address, "/"),
		options: options,
		http:    &http.Client{Transport: options.Transport},
		opening: make(chan struct{}, 1),
	}, nil
}

// Lock waits for these locks, all or nothing, and holds them exclusively.
func (c *Client) Lock(ctx context.Context, names ...string) (*Hold, error) {
	return c.Acquire(ctx, Request{Names: names})
}

// TryLock holds these locks if all of them are free, else the error is a *BusyError.
func (c *Client) TryLock(ctx context.Context, names ...string) (*Hold, error) {
	return c.Acquire(ctx, Request{Names: names, Try: true})
}

// Read is as Lock, shared with other readers.
func (c *Client) Read(ctx context.Context, names ...string) (*Hold, error) {
	return c.Acquire(ctx, Request{Names: names, Shared: true})
}

// Permits is as Lock, for some of the permits of a name.
func (c *Client) Permits(ctx context.Context, name string, permits, of int) (*Hold, error) {
	return c.Acquire(ctx, Request{Names: []string{name}, Permits: permits, Of: of})
}

// Close ends the session: all that it holds is released at once, all that it waits for is given up.
func (c *Client) Close() error {
	c.mutex.Lock()
	c.isClosed = true
	session := c.session
	if session == nil || session.isOver() {
		c.mutex.Unlock()
		return nil
	}
	for _, hold := range session.stop() {
		if !hold.isLost() {
			hold.state = Released
		}
	}
	c.mutex.Unlock()
	c.quietly("/v1/sessions/"+session.id, session.ttl/3)
	c.http.CloseIdleConnections()
	return nil
}

func (c *Client) isOver(session *session) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return session.isOver()
}

// current is the session of this client, if there is one.
func (c *Client) current() (*session, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.isClosed {
		return nil, ErrClosed
	}
	if c.session == nil || c.session.isOver() {
		return nil, nil
	}
	return c.session, nil
}

// open returns the session of this client, a new one if there is none, or if it has ended.
func (c *Client) open(ctx context.Context) (*session, error) {
	// One at a time: those who come meanwhile share what the first one opens.
	select {
	case c.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-c.opening }()
	if session, err := c.current(); session != nil || err != nil {
		return session, err
	}
	host, _ := os.Hostname()
	body := map[string]any{
		"ttl":    c.options.TTL.Milliseconds(),
		"holder": map[string]any{"who": c.options.Holder, "host": host, "pid": os.Getpid()},
	}
	key := newKey()
	for tries := 1; ; tries++ {
		reply, err := c.do(ctx, call{method: "POST", path: "/v1/sessions", timeout: c.options.TTL, body: body, key: key})
		var noReply *errNoReply
		if errors.As(err, &noReply) {
			if tries > 1 {
				return nil, &UnavailableError{Detail: "no session: " + err.Error(), cause: noReply.cause}
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		if reply.status != 201 {
			return nil, reply.err()
		}
		session := newSession(c, reply)
		c.mutex.Lock()
		isClosed := c.isClosed
		if !isClosed {
			c.session = session
		}
		c.mutex.Unlock()
		if isClosed {
			c.quietly("/v1/sessions/"+session.id, c.options.TTL)
			return nil, ErrClosed
		}
		go session.heartbeats()
		go session.expire()
		return session, nil
	}
}
