//go:build !sdkonly

package main

const buildTags = ""
