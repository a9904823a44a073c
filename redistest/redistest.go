// Package redistest starts a real redis-server for a test.
package redistest
