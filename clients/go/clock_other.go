//go:build !linux

package lockkeeper

import "time"

var start = time.Now()

// now is the time since some moment in the past.
func now() time.Duration { return time.Since(start) }
