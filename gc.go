package main

import "os"

// ballastSize is added to the heap in the eyes of Go's rule that garbage is collected
// when the heap has doubled, so that a small gateway collects at 2 x ballastSize at the
// earliest. It keeps little and throws much away: by the rule alone it would collect
// dozens of times a second. docs/performance.md has the figures behind the number.
const ballastSize = 64 << 20

// newBallast is never written to, so it takes address space and no memory. The collector
// counts it for as long as somebody has it, and has nothing to look at in it. Unlike a
// GOGC that follows the heap, it lets a heap that grows suddenly grow no further than the
// rule does. There is none when the operator has set the collector with GOGC or
// GOMEMLIMIT, which counts ballast as well.
func newBallast() []byte {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	return make([]byte, ballastSize)
}
