//go:build !race

package clienttest

const raceEnabled = false
