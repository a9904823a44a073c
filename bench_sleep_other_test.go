//go:build !linux

package main

import "time"

// preciseSleep is as precise as time.Sleep is here.
func preciseSleep(d time.Duration) { time.Sleep(d) }
