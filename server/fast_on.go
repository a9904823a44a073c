//go:build !sdkonly

package server

// fastPath is false in a build with the tag sdkonly, for tests: no test may notice.
const fastPath = true
