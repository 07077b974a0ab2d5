package lockkeeper

import (
	"context"
	"errors"
	"fmt"
)

// ErrClosed is the error of a client that was closed.
var ErrClosed = errors.New("lockkeeper: the client was closed: make a new one")

// BusyError says that the wait ended without a grant.
type BusyError struct {
	Detail string
	// Holders has who holds the locks.
	Holders []string
}

func (e *BusyError) Error() string { return "lockkeeper: " + e.Detail }

// Is makes it a timeout: the server may notice the end of a context's time before the context does.
func (e *BusyError) Is(target error) bool { return target == context.DeadlineExceeded }

// LostError says that a hold is lost: somebody else may hold the lock. Stop what it protects.
type LostError struct {
	Detail string
	// Reason says why, in one word.
	Reason string
}

func (e *LostError) Error() string { return fmt.Sprintf("lockkeeper: %s (%s)", e.Detail, e.Reason) }

// UnavailableError says that the server or its engine did not reply. The same request may succeed later.
type UnavailableError struct {
	Detail string
	// Code is the server's word for it, if it said one.
	Code  string
	cause error
}

func (e *UnavailableError) Error() string { return "lockkeeper: " + e.Detail }

// Unwrap is the error of the network, if there was one.
func (e *UnavailableError) Unwrap() error { return e.cause }

// RefusedError says that the server refused the request. Sending it again does not help.
type RefusedError struct {
	Detail string
	// Code is the server's word for it.
	Code string
}

func (e *RefusedError) Error() string { return fmt.Sprintf("lockkeeper: %s (%s)", e.Detail, e.Code) }

// errNoReply is a request without a reply: it may have been done or not. Not seen by callers.
type errNoReply struct {
	cause    error
	timedOut bool
}

func (e *errNoReply) Error() string { return e.cause.Error() }
