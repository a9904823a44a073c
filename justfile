# The few commands of this repository. All work without just, too: each is one line, but fuzz, a short script.

# list the commands
default:
    @just --list

# build the binary
build:
    go build -o tollgate .

# start the demo: a Portal and six Tool Services on loopback ports
demo:
    go run . serve --fixtures

# run all tests
test:
    go test ./...

# the official conformance suite for both revisions of the protocol (once before: npm ci in conformance)
conformance:
    bash .ci/run conformance

# calls around a Redis that stands still for a minute, with their latencies
freeze:
    bash .ci/run freeze

# ten minutes of everything at once: goroutines, heap and open files stay as they are
endurance:
    go test -count=1 -v -run '^TestEndurance$' -timeout 30m . -endure=10m

# the load lab: several replicas under load, killed and restarted; half an hour
lab:
    go run ./fixtures/loadtest lab

# the same in three minutes: what is lost, and no figures
lab-quick:
    go run ./fixtures/loadtest lab --quick

# everything CI runs
ci:
    bash .ci/run

# gofmt, go vet, staticcheck, go mod tidy
lint:
    bash .ci/run lint

# all benchmarks but those of starts, and at the end which bars are met
bench:
    bash .ci/bench

# starts with thousands of routes: takes minutes, and 6 GB at the end
bench-start:
    go test -run '^$' -bench Start -benchtime 1x -timeout 30m .

# every fuzz target for TIME (go test runs one target at a time); an input that reaches new
# code is not made small for a minute, as by default: where goroutines run, no two runs are alike
fuzz TIME="30s":
    #!/usr/bin/env bash
    set -euo pipefail
    for package in $(go list ./...); do
      for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
        echo "== $package $target"
        go test -run '^$' -fuzz "^$target\$" -fuzztime "{{TIME}}" -fuzzminimizetime 1s "$package"
      done
    done
