package lockkeeper

import (
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7

// now is the time since some moment in the past, on a clock that goes on while the machine is suspended.
func now() time.Duration {
	var at syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&at)), 0)
	if errno != 0 {
		panic("lockkeeper: no CLOCK_BOOTTIME: " + errno.Error())
	}
	return time.Duration(at.Nano())
}
