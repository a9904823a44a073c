package transport

import (
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A toldConn is a connection that notes which deadlines it is told, and whose reads
// and writes end when the test says so.
type toldConn struct {
	net.Conn
	began       time.Time
	told        map[direction][]time.Duration // since began; none for "no deadline"
	read, wrote chan int                      // how many bytes of the read, or write, in progress; 0 is an error
}

type direction string

const (
	reading direction = "reading"
	writing direction = "writing"

	none time.Duration = -1
)

func (c *toldConn) Read([]byte) (int, error)  { return outcome(<-c.read) }
func (c *toldConn) Write([]byte) (int, error) { return outcome(<-c.wrote) }

func outcome(n int) (int, error) {
	if n == 0 {
		return 0, errors.New("failed")
	}
	return n, nil
}

func (c *toldConn) SetReadDeadline(t time.Time) error  { return c.note(reading, t) }
func (c *toldConn) SetWriteDeadline(t time.Time) error { return c.note(writing, t) }

func (c *toldConn) note(d direction, t time.Time) error {
	after := none
	if !t.IsZero() {
		after = t.Sub(c.began)
	}
	c.told[d] = append(c.told[d], after)
	return nil
}

// A connTrial is a conn over a toldConn, to which steps happen.
type connTrial struct {
	*conn
	below *toldConn
	t     *testing.T
}

type step func(c *connTrial)

// begin begins a read or a write.
func begin(d direction) step {
	return func(c *connTrial) {
		if d == reading {
			go func() { _, _ = c.Read(nil) }()
		} else {
			go func() { _, _ = c.Write(nil) }()
		}
		synctest.Wait()
	}
}

// finish ends one with so many bytes.
func finish(d direction, n int) step {
	return func(c *connTrial) {
		if d == reading {
			c.below.read <- n
		} else {
			c.below.wrote <- n
		}
		synctest.Wait()
	}
}

// set sets the server's deadline.
func set(d direction, after time.Duration) step {
	return func(c *connTrial) {
		var t time.Time
		if after != none {
			t = c.below.began.Add(after)
		}
		err := error(nil)
		switch d {
		case reading:
			err = c.SetReadDeadline(t)
		case writing:
			err = c.SetWriteDeadline(t)
		default:
			err = c.SetDeadline(t)
		}
		if err != nil {
			c.t.Error(err)
		}
	}
}

func pause(d time.Duration) step { return func(*connTrial) { time.Sleep(d) } }
func ends(c *connTrial)          { c.end() }
func active(c *connTrial)        { c.becameActive() }
func idle(c *connTrial)          { c.becameIdle() }

// play has the steps happen and returns what the connection below was told.
func play(t *testing.T, steps ...step) (told map[direction][]time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		below := &toldConn{began: time.Now(), told: map[direction][]time.Duration{}, read: make(chan int), wrote: make(chan int)}
		c := &connTrial{conn: &conn{Conn: below, set: newConnSet()}, below: below, t: t}
		for _, s := range steps {
			s(c)
		}
		told = below.told
		close(below.read)
		close(below.wrote)
	})
	return told
}

const (
	soon  = 100 * time.Millisecond // before any chance is over
	later = 5 * time.Second        // after all of them are
	last  = time.Minute
)

// The connection below is told the deadlines that a read or a write in progress has,
// when it has them, and no others.
func TestDeadlinesAreToldToWhatWaits(t *testing.T) {
	for d, other := range map[direction]direction{reading: writing, writing: reading} {
		for name, tt := range map[string]struct {
			steps []step
			want  []time.Duration
		}{
			"set before":                    {[]step{set(d, later), begin(d)}, []time.Duration{later}},
			"set during":                    {[]step{begin(d), set(d, later)}, []time.Duration{later}},
			"set after":                     {[]step{begin(d), finish(d, 1), set(d, later)}, nil},
			"set after, for the next":       {[]step{begin(d), finish(d, 1), set(d, later), begin(d)}, []time.Duration{later}},
			"set for nothing":               {[]step{set(d, later), set(d, last)}, nil},
			"set twice before":              {[]step{set(d, later), set(d, last), begin(d)}, []time.Duration{last}},
			"moved during":                  {[]step{set(d, later), begin(d), set(d, last)}, []time.Duration{later, last}},
			"moved after, for the next":     {[]step{set(d, later), begin(d), finish(d, 1), set(d, last), begin(d)}, []time.Duration{later, last}},
			"set again during":              {[]step{begin(d), set(d, later), set(d, later)}, []time.Duration{later}},
			"kept for the next":             {[]step{set(d, later), begin(d), finish(d, 1), begin(d)}, []time.Duration{later}},
			"cleared before":                {[]step{set(d, later), set(d, none), begin(d)}, nil},
			"cleared during":                {[]step{set(d, later), begin(d), set(d, none)}, []time.Duration{later, none}},
			"cleared after":                 {[]step{set(d, later), begin(d), finish(d, 1), set(d, none)}, []time.Duration{later}},
			"cleared after, for the next":   {[]step{set(d, later), begin(d), finish(d, 1), set(d, none), begin(d)}, []time.Duration{later, none}},
			"one of two is over":            {[]step{begin(d), begin(d), finish(d, 1), set(d, later)}, []time.Duration{later}},
			"one failed":                    {[]step{begin(d), finish(d, 0), set(d, later)}, nil},
			"both set before":               {[]step{set("both", later), begin(d)}, []time.Duration{later}},
			"both set during":               {[]step{begin(d), set("both", later)}, []time.Duration{later}},
			"the other set, and this waits": {[]step{begin(d), set(other, later)}, nil},
			"set, and the other waits":      {[]step{begin(other), set(d, later)}, nil},
		} {
			t.Run(string(d)+", "+name, func(t *testing.T) {
				if told := play(t, tt.steps...)[d]; !slices.Equal(told, tt.want) {
					t.Errorf("told %v, want %v", told, tt.want)
				}
			})
		}
	}
}

// What is read on a connection that ends when idle is bounded by its chance or by the
// server's deadline, whichever comes first; what is written is not.
func TestChancesOfAnEndingConnection(t *testing.T) {
	const d = reading
	for name, tt := range map[string]struct {
		steps []step
		want  []time.Duration
	}{
		"ends during a read":              {[]step{begin(d), ends}, []time.Duration{lastChance}},
		"ends before a read":              {[]step{ends, begin(d)}, []time.Duration{lastChance}},
		"ends, and nothing is read":       {[]step{ends}, nil},
		"ends later":                      {[]step{begin(d), pause(later), ends}, []time.Duration{later + lastChance}},
		"the server's deadline is sooner": {[]step{set(d, soon), begin(d), ends}, []time.Duration{soon}},
		"the server's deadline is later":  {[]step{set(d, later), begin(d), ends}, []time.Duration{later, lastChance}},
		"a sooner one is set":             {[]step{begin(d), ends, set(d, soon)}, []time.Duration{lastChance, soon}},
		"a later one is set":              {[]step{begin(d), ends, set(d, later)}, []time.Duration{lastChance}},
		"the sooner one is cleared":       {[]step{begin(d), ends, set(d, soon), set(d, none)}, []time.Duration{lastChance, soon, lastChance}},
		"the sooner one is moved":         {[]step{begin(d), ends, set(d, soon), set(d, later)}, []time.Duration{lastChance, soon, lastChance}},
		"a header has begun":              {[]step{begin(d), finish(d, 1), ends, begin(d)}, []time.Duration{headerChance}},
		"a header begins":                 {[]step{ends, begin(d), pause(soon), finish(d, 1), begin(d)}, []time.Duration{lastChance, soon + headerChance}},
		"a header goes on":                {[]step{ends, begin(d), finish(d, 1), pause(soon), begin(d), finish(d, 1), begin(d)}, []time.Duration{lastChance, headerChance}},
		"no header begins":                {[]step{ends, begin(d), finish(d, 0), begin(d)}, []time.Duration{lastChance}},
		"a body is read":                  {[]step{active, ends, set(d, later), begin(d)}, []time.Duration{later}},
		"a body is read, without limit":   {[]step{active, ends, begin(d)}, nil},
		"the header is complete":          {[]step{ends, begin(d), active}, []time.Duration{lastChance, none}},
		"the header is complete, bounded": {[]step{set(d, later), ends, begin(d), active}, []time.Duration{lastChance, later}},
		"the request is over":             {[]step{active, ends, begin(d), pause(later), idle}, []time.Duration{later + lastChance}},
		"the next header begins":          {[]step{active, ends, idle, begin(d), finish(d, 1), begin(d)}, []time.Duration{lastChance, headerChance}},
		"it does not end":                 {[]step{begin(d), active, idle, finish(d, 1), begin(d)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if told := play(t, tt.steps...)[d]; !slices.Equal(told, tt.want) {
				t.Errorf("told %v, want %v", told, tt.want)
			}
		})
	}
	if told := play(t, begin(writing), ends, set(writing, later))[writing]; !slices.Equal(told, []time.Duration{later}) {
		t.Errorf("writing on a connection that ends: told %v", told)
	}
}
