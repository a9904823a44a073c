//go:build sdkonly

package server

const fastPath = false
