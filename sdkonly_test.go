//go:build sdkonly

package main

// buildTags are those of the program under test, too.
const buildTags = "sdkonly"
