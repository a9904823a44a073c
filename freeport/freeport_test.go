package freeport

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// done gives the blocks back, as the end of a process does.
func (p *ports) done() {
	for _, mark := range p.marks {
		mark.Close()
	}
}

// TestNoPortIsGivenOutTwice has four processes, as it were, and four goroutines in each
// of them take more ports than are in a block.
func TestNoPortIsGivenOutTwice(t *testing.T) {
	const processes, takers, each = 4, 4, 70
	var mu sync.Mutex
	taken := map[int]bool{}
	var taking sync.WaitGroup
	for range processes {
		p := new(ports)
		t.Cleanup(p.done)
		for range takers {
			taking.Go(func() {
				for range each {
					port, err := p.take("127.0.0.1")
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if taken[port] {
						t.Errorf("%d was given out twice", port)
					}
					taken[port] = true
					mu.Unlock()
				}
			})
		}
	}
	taking.Wait()
	if len(taken) != processes*takers*each {
		t.Errorf("%d ports, want %d", len(taken), processes*takers*each)
	}
}

// TestAServerComesBack listens on what it is given, again and again, while processes are
// being started.
func TestAServerComesBack(t *testing.T) {
	addr, err := Addr()
	if err != nil {
		t.Fatal(err)
	}
	var starting sync.WaitGroup
	defer starting.Wait()
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	for range 4 {
		starting.Go(func() {
			for ctx.Err() == nil {
				exec.Command(os.Args[0], "-test.run=^$").Run()
			}
		})
	}
	for range 2000 {
		l, err := Listen(addr)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}

// TestListenFailsAtOnceForAnotherReason has an address that is not of this machine. The
// test would not end if that were waited for.
func TestListenFailsAtOnceForAnotherReason(t *testing.T) {
	if l, err := listen("192.0.2.1:10001", time.Hour); err == nil {
		l.Close()
		t.Error("it listens on an address of another machine")
	}
}

// TestAPortThatStaysInUse ends with the reason, for who wants to listen there and for
// who waits until it is closed.
func TestAPortThatStaysInUse(t *testing.T) {
	addr, err := Addr()
	if err != nil {
		t.Fatal(err)
	}
	used, err := Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	if l, err := listen(addr, 2*pause); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v, %v, want the reason that the address is in use", l, err)
	}
	if err := awaitRefusal(addr, 2*pause); err == nil || !strings.Contains(err.Error(), addr) {
		t.Errorf("%v, want an error that names %s", err, addr)
	}
}

// TestAwaitRefusalWaitsForWhatIsStillOpen has a copy of the listener, as a process that
// is being started has one, accept the connections after it was closed.
func TestAwaitRefusalWaitsForWhatIsStillOpen(t *testing.T) {
	addr, err := Addr()
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	file, err := l.(*net.TCPListener).File()
	l.Close()
	if err != nil {
		t.Fatal(err)
	}
	still, err := net.FileListener(file)
	file.Close()
	if err != nil {
		t.Fatal(err)
	}
	still.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	ended := make(chan error, 1)
	go func() { ended <- AwaitRefusal(addr) }()
	for n := range 3 { // it asks again
		conn, err := still.Accept()
		if err != nil {
			t.Fatalf("after %d looks: %v", n, err)
		}
		conn.Close()
	}
	still.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v, %v, want a refusal", conn, err)
	}
}

// TestAPortInUseIsPassedOver has somebody who asked nobody on the next two ports of the
// block.
func TestAPortInUseIsPassedOver(t *testing.T) {
	p := new(ports)
	t.Cleanup(p.done)
	before, err := p.take("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	used := map[int]bool{}
	for port := before + 1; port < p.end && len(used) < 2; port++ {
		if l, err := net.Listen("tcp", at("127.0.0.1", port)); err == nil {
			t.Cleanup(func() { l.Close() })
			used[port] = true
		}
	}
	for range block {
		port, err := p.take("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		if used[port] {
			t.Fatalf("%d is in use", port)
		}
	}
}

// TestAHostThatCannotBeAsked ends with an error that names it.
func TestAHostThatCannotBeAsked(t *testing.T) {
	p := new(ports)
	t.Cleanup(p.done)
	if port, err := p.take("no host"); err == nil || !strings.Contains(err.Error(), "no host") {
		t.Errorf("port %d, %v", port, err)
	}
}
