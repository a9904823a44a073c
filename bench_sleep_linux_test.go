package main

import (
	"syscall"
	"time"
)

// preciseSleep is time.Sleep, which on Linux may take a millisecond longer in a
// process that has nothing else to do: longer than what is measured.
func preciseSleep(d time.Duration) {
	if d > 0 {
		left := syscall.NsecToTimespec(d.Nanoseconds())
		_ = syscall.Nanosleep(&left, nil) // a signal may end it early: a call is sent a little before its time
	}
}
