package lockkeeper

// The shared list of behaviours (docs/clients.md).

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var ctx = context.Background()

func client(t *testing.T, url string, options Options) *Client {
	t.Helper()
	if options.TTL == 0 {
		options.TTL = 30 * time.Second
	}
	c, err := New(url, options)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func pair(t *testing.T) (*server, *Client, *Client) {
	t.Helper()
	s := startServer(t)
	return s, client(t, s.url, Options{Holder: "the first"}), client(t, s.url, Options{})
}

// held is the hold that was asked for, at once.
func held(t *testing.T) func(*Hold, error) *Hold {
	return func(hold *Hold, err error) *Hold {
		t.Helper()
		must(t, err)
		return hold
	}
}

func token(t *testing.T, hold *Hold) uint64 {
	t.Helper()
	token, err := hold.Token()
	must(t, err)
	return token
}

func isBusy(t *testing.T, err error) *BusyError {
	t.Helper()
	var busy *BusyError
	check(t, errors.As(err, &busy), "it is not busy")
	return busy
}

func isLost(err error) bool {
	var lost *LostError
	return errors.As(err, &lost)
}

func isUnavailable(err error) bool {
	var unavailable *UnavailableError
	return errors.As(err, &unavailable)
}

type granted struct {
	hold *Hold
	err  error
	at   time.Duration
}

// later waits for a lock in a goroutine of its own.
func later(c *Client, name string) <-chan granted {
	result := make(chan granted, 1)
	go func() {
		hold, err := c.Lock(ctx, name)
		result <- granted{hold, err, now()}
	}()
	return result
}

func get(t *testing.T, result <-chan granted) granted {
	t.Helper()
	select {
	case granted := <-result:
		return granted
	case <-time.After(30 * time.Second):
		t.Fatal("it did not end")
		return granted{}
	}
}

func TestLockExcludesAndAReleaseHandsOver(t *testing.T) {
	t.Parallel()
	s, a, b := pair(t)
	first := held(t)(a.Lock(ctx, "orders/42"))
	check(t, first.State() == Held, "it is held")
	before := token(t, first)
	waiting := later(b, "orders/42")
	s.waitForClaims("orders/42", 2)
	must(t, first.Release())
	must(t, first.Release())
	second := get(t, waiting)
	must(t, second.err)
	check(t, token(t, second.hold) > before, "the token grows")
	must(t, second.hold.Release())
	s.waitForClaims("orders/42", 0)
}

func TestTryFindsAHeldLockBusyAtOnce(t *testing.T) {
	t.Parallel()
	_, a, b := pair(t)
	hold := held(t)(a.Lock(ctx, "x"))
	_, err := b.TryLock(ctx, "x")
	check(t, strings.Contains(isBusy(t, err).Holders[0], "the first"), "it names the holder")
	must(t, hold.Release())
	must(t, held(t)(b.TryLock(ctx, "x")).Release())
}

func TestATimedWaitEndsBusyAndLeavesTheQueue(t *testing.T) {
	t.Parallel()
	s, a, b := pair(t)
	held(t)(a.Lock(ctx, "x"))
	began := now()
	_, err := b.Acquire(ctx, Request{Names: []string{"x"}, Wait: 500 * time.Millisecond})
	isBusy(t, err)
	check(t, now()-began >= 500*time.Millisecond, "it has waited")
	s.waitForClaims("x", 1)
	limited, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	_, err = b.Lock(limited, "x")
	check(t, errors.Is(err, context.DeadlineExceeded), "the context ends the wait")
	s.waitForClaims("x", 1)
}

func TestReadersShareAndADowngradeLetsThemIn(t *testing.T) {
	t.Parallel()
	_, a, b := pair(t)
	one, two := held(t)(a.Read(ctx, "x")), held(t)(b.Acquire(ctx, Request{Names: []string{"x"}, Shared: true, Try: true}))
	_, err := b.TryLock(ctx, "x")
	isBusy(t, err)
	must(t, one.Release())
	must(t, two.Release())
	hold := held(t)(a.TryLock(ctx, "x"))
	_, err = b.Acquire(ctx, Request{Names: []string{"x"}, Shared: true, Try: true})
	isBusy(t, err)
	must(t, hold.Downgrade())
	check(t, hold.Mode() == "shared", "it is shared")
	held(t)(b.Acquire(ctx, Request{Names: []string{"x"}, Shared: true, Try: true}))
}

func TestPermitsAreCounted(t *testing.T) {
	t.Parallel()
	_, a, b := pair(t)
	held(t)(a.Permits(ctx, "x", 2, 3))
	held(t)(b.Permits(ctx, "x", 1, 3))
	_, err := a.Acquire(ctx, Request{Names: []string{"x"}, Permits: 1, Of: 3, Try: true})
	isBusy(t, err)
}

func TestSeveralLocksAreAllOrNothing(t *testing.T) {
	t.Parallel()
	_, a, b := pair(t)
	one := held(t)(a.Lock(ctx, "y"))
	_, err := b.TryLock(ctx, "x", "y")
	isBusy(t, err)
	must(t, held(t)(a.TryLock(ctx, "x")).Release())
	must(t, one.Release())
	both := held(t)(b.TryLock(ctx, "y", "x"))
	tokens, err := both.Tokens()
	must(t, err)
	check(t, len(tokens) == 2 && tokens["x"] > 0 && tokens["y"] > 0, "each has a token")
	_, err = both.Token()
	check(t, err != nil, "which one?")
}

func TestTokensGrow(t *testing.T) {
	t.Parallel()
	_, a, b := pair(t)
	var last uint64
	for turn := 0; turn < 20; turn++ {
		hold := held(t)([]*Client{a, b}[turn%2].Lock(ctx, "x"))
		check(t, token(t, hold) > last, "the token grows")
		last = token(t, hold)
		must(t, hold.Release())
	}
}

func TestRenewalKeepsAHoldAndAWaitOverManyTTLs(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	short := Options{TTL: 2 * time.Second}
	a, b := client(t, s.url, short), client(t, s.url, short)
	hold := held(t)(a.Lock(ctx, "x"))
	waiting := later(b, "x")
	s.waitForClaims("x", 2)
	place := s.claims("x")[1].ID
	check(t, !lostWithin(hold, 7*time.Second) && hold.State() == Held, "it is held")
	check(t, s.claims("x")[1].ID == place, "the wait has kept its place")
	must(t, hold.Release())
	must(t, get(t, waiting).hold.Release())
}

func TestATTLLongerThanTheEnginesLosesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--ttl", "2s")
	hold := held(t)(client(t, s.url, Options{TTL: time.Minute}).Lock(ctx, "x"))
	check(t, !lostWithin(hold, 6*time.Second), "it is held")
	must(t, hold.Release())
}

func TestALeaseEndsAHold(t *testing.T) {
	t.Parallel()
	_, a, b := pair(t)
	hold := held(t)(a.Acquire(ctx, Request{Names: []string{"x"}, Lease: 500 * time.Millisecond}))
	lostAt := lostAt(hold)
	second := get(t, later(b, "x"))
	must(t, second.err)
	check(t, <-lostAt < second.at, "lost before the next grant")
}

// lostAt has the moment of the signal.
func lostAt(hold *Hold) <-chan time.Duration {
	at := make(chan time.Duration, 1)
	go func() {
		<-hold.Lost()
		at <- now()
	}()
	return at
}

func TestLostBeforeRegrantWhenTheServerIsPaused(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	a, b := client(t, s.url, Options{TTL: time.Second}), client(t, s.url, Options{})
	hold := held(t)(a.Lock(ctx, "x"))
	work, cancel := hold.Context(ctx)
	defer cancel()
	waiting := later(b, "x")
	s.waitForClaims("x", 2)
	s.pause()
	isInTime := lostWithin(hold, 2*time.Second)
	s.goOn()
	check(t, isInTime && hold.State() == Lost, "the deadline comes without a word from the server")
	<-work.Done()
	must(t, get(t, waiting).hold.Release())
}

func TestLostBeforeRegrantWhenTheNetworkIsCut(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := startProxy(t, s)
	a, b := client(t, p.url, Options{TTL: 3 * time.Second}), client(t, s.url, Options{})
	hold := held(t)(a.Lock(ctx, "x"))
	lostAt := lostAt(hold)
	waiting := later(b, "x")
	s.waitForClaims("x", 2)
	// Some heartbeats have come and gone: the deadline is a moved one.
	check(t, !lostWithin(hold, 2500*time.Millisecond), "heartbeats keep it")
	p.freeze()
	second := get(t, waiting)
	must(t, second.err)
	check(t, <-lostAt < second.at, "lost before the next grant")
	p.thaw()
	check(t, isLost(hold.Err()), "what was lost stays lost")
}

func TestALateConfirmationRevivesNothing(t *testing.T) {
	hold := &Hold{client: &Client{}, gone: make(chan struct{}), deadline: now(), state: Held}
	hold.confirm(now()+time.Minute, "held")
	check(t, isLost(hold.Err()), "it is lost")
}

func TestTheDeadlineCountsFromTheSend(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := startProxy(t, s)
	a := client(t, p.url, Options{TTL: 4 * time.Second})
	must(t, held(t)(a.Lock(ctx, "first")).Release())
	p.set(func() { p.delays, p.delay = "POST /v1/holds ", time.Second })
	check(t, held(t)(a.Lock(ctx, "x")).ValidFor() < 3*time.Second, "the delay is counted")
}

func TestAReleaseAfterTheLossSaysSoAndTheClientGoesOn(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	a := client(t, s.url, Options{TTL: 500 * time.Millisecond})
	hold := held(t)(a.Lock(ctx, "x"))
	s.pause()
	isInTime := lostWithin(hold, 5*time.Second)
	s.goOn()
	check(t, isInTime, "it is lost")
	_, err := hold.Token()
	check(t, isLost(err) && isLost(hold.Release()) && isLost(hold.Release()), "it says so")
	must(t, held(t)(a.Acquire(ctx, Request{Names: []string{"x"}, Wait: 10 * time.Second})).Release())
}

func TestARetryAfterALostReplyFindsTheSame(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := startProxy(t, s)
	a := client(t, p.url, Options{})
	p.losesNow("POST /v1/sessions ", 1)
	must(t, held(t)(a.Lock(ctx, "first")).Release())
	p.losesNow("POST /v1/holds ", 2)
	hold := held(t)(a.Acquire(ctx, Request{Names: []string{"x"}, Wait: 5 * time.Second}))
	claims := s.claims("x")
	check(t, len(claims) == 1 && claims[0].Token == token(t, hold), "it is the same hold")
	p.losesNow("DELETE ", 1)
	must(t, hold.Release())
	check(t, p.lostCount() == 4, "replies were lost")
	s.waitForClaims("x", 0)
}

func TestAHoldThatNoClientKnowsOfIsReleased(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := startProxy(t, s)
	a, b := client(t, p.url, Options{TTL: time.Second}), client(t, s.url, Options{})
	must(t, held(t)(a.Lock(ctx, "first")).Release())
	p.losesNow("POST /v1/holds ", 1000)
	_, err := a.TryLock(ctx, "x")
	check(t, isUnavailable(err) && p.lostCount() > 0, "no reply came")
	must(t, held(t)(b.Acquire(ctx, Request{Names: []string{"x"}, Wait: 10 * time.Second})).Release())
}

func TestAHoldOfALateCopyIsReleased(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	a := client(t, s.url, Options{TTL: 1500 * time.Millisecond})
	hold := held(t)(a.Lock(ctx, "mine"))
	s.ask(hold.session.id, "x")
	check(t, len(s.claims("x")) == 1, "it is held")
	s.waitForClaims("x", 0)
	check(t, hold.State() == Held, "it was not the session that ended")
}

func TestAReplyOfSomebodyElseIsNoReply(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := startProxy(t, s)
	a := client(t, p.url, Options{TTL: 3 * time.Second})
	p.replacesNow("POST ", 1, page)
	must(t, held(t)(a.Lock(ctx, "first")).Release())
	check(t, p.replacedCount() == 1, "it has opened its session after all")
	p.replacesNow("POST /v1/holds ", 2, page)
	hold := held(t)(a.Acquire(ctx, Request{Names: []string{"x"}, Wait: 5 * time.Second}))
	claims := s.claims("x")
	check(t, len(claims) == 1 && claims[0].Token == token(t, hold), "it is the same hold")
	p.replacesNow("POST /v1/sessions/", 2, page)
	until(t, func() bool { return p.replacedCount() == 5 })
	check(t, !lostWithin(hold, 5*time.Second) && hold.State() == Held, "heartbeats go on")
	p.replacesNow("DELETE ", 1, page)
	must(t, hold.Release())
	check(t, p.replacedCount() == 6, "its release was repeated")
	s.waitForClaims("x", 0)
}

func TestAReplyThatLeavesLittleTimeIsAskedForAgain(t *testing.T) {
	t.Parallel()
	p := startProxy(t, startServer(t, "--ttl", "2s"))
	a := client(t, p.url, Options{})
	must(t, held(t)(a.Lock(ctx, "first")).Release())
	p.set(func() { p.delays, p.delay = "POST ", 1200*time.Millisecond })
	check(t, held(t)(a.Lock(ctx, "x")).ValidFor() > time.Second, "the short request tells more")
}

func TestAGrantThatCannotBeLookedAtIsReleased(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--ttl", "2s")
	p := startProxy(t, s)
	a := client(t, p.url, Options{})
	must(t, held(t)(a.Lock(ctx, "first")).Release())
	p.set(func() { p.delays, p.delay = "POST ", 1200*time.Millisecond })
	p.replacesNow("GET ", 1, refusal(503, "ending"))
	hold := held(t)(a.Acquire(ctx, Request{Names: []string{"x"}, Wait: 5 * time.Second}))
	claims := s.claims("x")
	check(t, len(claims) == 1 && claims[0].Token == token(t, hold), "it does not wait behind itself")
	check(t, p.replacedCount() == 1, "it has looked")
}

func TestARequestThatWasTooSlowMayBeRepeated(t *testing.T) {
	t.Parallel()
	p := startProxy(t, startServer(t))
	a := client(t, p.url, Options{})
	must(t, held(t)(a.Lock(ctx, "first")).Release())
	p.replacesNow("POST /v1/holds ", 1, refusal(408, "too_slow"))
	_, err := a.Lock(ctx, "x")
	var unavailable *UnavailableError
	check(t, errors.As(err, &unavailable) && unavailable.Code == "too_slow", "it is temporary")
}

func TestAUnixSocketIsAnAddress(t *testing.T) {
	t.Parallel()
	s := startServerAt(t, "unix:"+filepath.Join(t.TempDir(), "socket"))
	a := client(t, s.url, Options{})
	check(t, token(t, held(t)(a.Lock(ctx, "x"))) > 0, "it has a token")
	_, err := a.TryLock(ctx, "x")
	isBusy(t, err)
}

func TestAnEvictedHoldIsLostWithTheNextHeartbeat(t *testing.T) {
	t.Parallel()
	// The server itself learns of it when it renews.
	s := startServer(t, "--ttl", "1s")
	hold := held(t)(client(t, s.url, Options{TTL: time.Second}).Lock(ctx, "x"))
	s.evict("x")
	check(t, lostWithin(hold, 5*time.Second), "it is lost")
	var lost *LostError
	check(t, errors.As(hold.Err(), &lost) && lost.Reason == "gone", "it was evicted")
}

func TestTheEndOfTheSessionReleasesAtOnceAndEndsItsWaits(t *testing.T) {
	t.Parallel()
	s, a, b := pair(t)
	c := client(t, s.url, Options{})
	held(t)(a.Lock(ctx, "x"))
	ended := later(b, "x")
	s.waitForClaims("x", 2)
	goesOn := later(c, "x")
	s.waitForClaims("x", 3)
	must(t, b.Close())
	check(t, errors.Is(get(t, ended).err, ErrClosed), "the wait has ended")
	began := now()
	must(t, a.Close())
	must(t, get(t, goesOn).err)
	check(t, now()-began < 10*time.Second, "at once")
	_, err := a.Lock(ctx, "x")
	check(t, errors.Is(err, ErrClosed), "it is closed")
}

func TestAKilledServerIsLearnedByTheDeadline(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	short := Options{TTL: time.Second}
	a, b := client(t, s.url, short), client(t, s.url, short)
	hold := held(t)(a.Lock(ctx, "x"))
	waiting := later(b, "x")
	s.waitForClaims("x", 2)
	until(t, func() bool { return hold.ValidFor() > 500*time.Millisecond })
	s.kill()
	must(t, hold.Err())
	check(t, lostWithin(hold, 2*time.Second), "it is lost")
	_, err := a.Lock(ctx, "x")
	check(t, isUnavailable(err) && isUnavailable(get(t, waiting).err), "nobody is there")
}

func TestBadInputIsRefused(t *testing.T) {
	t.Parallel()
	s, a, _ := pair(t)
	var refused *RefusedError
	_, err := a.Lock(ctx, "")
	check(t, errors.As(err, &refused) && refused.Code == "invalid", "a name is needed")
	_, err = a.Lock(ctx)
	check(t, errors.As(err, &refused), "names are needed")
	_, err = client(t, s.url, Options{TTL: 10 * time.Millisecond}).Lock(ctx, "x")
	check(t, errors.As(err, &refused), "the TTL is too short")
	_, err = New("127.0.0.1:7670", Options{})
	check(t, err != nil, "a scheme is needed")
}

func TestManyCallersShareAClient(t *testing.T) {
	t.Parallel()
	_, a, _ := pair(t)
	var inside, overlaps atomic.Int32
	var group sync.WaitGroup
	for worker := 0; worker < 8; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for turn := 0; turn < 5; turn++ {
				hold, err := a.Lock(ctx, "x")
				if err != nil || inside.Add(1) != 1 {
					overlaps.Add(1)
					return
				}
				inside.Add(-1)
				if hold.Release() != nil {
					overlaps.Add(1)
				}
			}
		}()
	}
	group.Wait()
	check(t, overlaps.Load() == 0, "one at a time")
}

func TestACancelledWaitLeavesTheQueue(t *testing.T) {
	t.Parallel()
	s, a, b := pair(t)
	held(t)(a.Lock(ctx, "x"))
	limited, cancel := context.WithCancel(ctx)
	result := make(chan error, 1)
	go func() {
		_, err := b.Lock(limited, "x")
		result <- err
	}()
	s.waitForClaims("x", 2)
	began := now()
	cancel()
	check(t, errors.Is(<-result, context.Canceled), "it was cancelled")
	s.waitForClaims("x", 1)
	check(t, now()-began < 4*time.Second, "the server alone would keep the wait for five seconds")
}

func TestATokenIsSent(t *testing.T) {
	t.Parallel()
	output, err := exec.Command(binary(), "serve", "--new-token", "ci").Output()
	must(t, err)
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	check(t, len(lines) == 2, "a token and its line for the file")
	after := func(line string) string { return line[strings.Index(line, ": ")+2:] }
	file := filepath.Join(t.TempDir(), "tokens")
	must(t, os.WriteFile(file, []byte(after(lines[1])+"\n"), 0o600))
	s := startServer(t, "--tokens", file)
	var refused *RefusedError
	_, err = client(t, s.url, Options{}).Lock(ctx, "x")
	check(t, errors.As(err, &refused) && refused.Code == "no_token", "a token is needed")
	held(t)(client(t, s.url, Options{Token: after(lines[0])}).Lock(ctx, "x"))
}
