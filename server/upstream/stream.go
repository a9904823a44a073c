package upstream

import (
	"compress/gzip"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

	"tollgate/jsonwire"
)

// eventStream is the media type of an answer that comes in pieces.
const eventStream = "text/event-stream"

// The events of a tool's stream. Others are skipped.
const (
	progressEvent = "progress"
	costEvent     = "cost"
	resultEvent   = "result"
)

// maxProgressText bounds the message of a progress event, in bytes. Progress waits
// in memory for slow readers.
const maxProgressText = 4 << 10

var (
	errUndeclared = errors.New("event stream of a tool that declares none")
	errNoResult   = errors.New("event stream without a result")
)

// Progress is what a Tool Service says of a call that is under way.
type Progress struct {
	Done    float64 // how far it is; each one more than the one before
	Total   float64 // what Done will be at the end; 0 when that is not known
	Message string  // for a person; "" for none
}

func isEventStream(resp *http.Response) bool {
	contentType := resp.Header.Get("Content-Type")
	if len(contentType) < len(eventStream) || !strings.EqualFold(contentType[:len(eventStream)], eventStream) {
		return false // and most need not be looked at any further
	}
	media, _ := mediaType(contentType)
	return media == eventStream && isSuccess(resp.StatusCode)
}

// readStream reads the event stream of a tool up to its result, and tells the
// caller of the progress as it comes. With the result the answer is as if it had
// come by itself, as JSON; what follows it is not read.
func (c *Client) readStream(resp *http.Response, call Call, answer *Answer) error {
	if !call.Tool.Streams {
		return errUndeclared
	}
	limit := c.config.MaxResponseBytes
	switch coding := contentCoding(resp.Header); coding {
	case "":
		return readEvents(newEvents(resp.Body, limit), call.Progress, answer)
	case "gzip", "x-gzip":
		raw := &rawReader{r: resp.Body, left: limit + gzipOverhead}
		return raw.explain(readZippedEvents(raw, limit, call.Progress, answer))
	default:
		return &codingError{name: coding}
	}
}

func readZippedEvents(raw *rawReader, limit int64, tell func(Progress), answer *Answer) error {
	zipped, err := gzip.NewReader(raw)
	if err == io.EOF {
		return errNoResult
	}
	if err != nil {
		return err
	}
	return readEvents(newEvents(zipped, limit), tell, answer)
}

// readEvents takes from a stream what it says of a call. tell may be nil.
func readEvents(stream *events, tell func(Progress), answer *Answer) error {
	var costs []string
	last := math.Inf(-1)
	for {
		ev, err := stream.next()
		if err == io.EOF {
			return errNoResult
		}
		if err != nil {
			return err
		}
		switch ev.name {
		case progressEvent:
			// Progress is a hint. What is none, or not more than before, does not let
			// the call fail.
			if p, ok := parseProgress(ev.data); ok && tell != nil && p.Done > last {
				last = p.Done
				tell(p)
			}
		case costEvent:
			if len(costs) < 2 { // a second one is one too many already
				costs = append(costs, string(ev.data))
			}
		case resultEvent:
			if costs != nil {
				answer.Cost, answer.CostDeclared = parseCost(costs)
			}
			answer.ContentType, answer.Body = "application/json", ev.data
			return nil
		}
	}
}

// parseProgress reads {"progress":n,"total":n,"message":s}; the last two may be
// missing or null.
func parseProgress(data []byte) (p Progress, ok bool) {
	if jsonwire.Check(data, jsonwire.ArgumentLimits) != nil || jsonwire.KindOf(data) != jsonwire.KindObject {
		return p, false
	}
	done, _ := jsonwire.Get(data, "progress")
	if p.Done, ok = number(done); !ok {
		return p, false
	}
	if total, there := jsonwire.Get(data, "total"); there && jsonwire.KindOf(total) != jsonwire.KindNull {
		if p.Total, ok = number(total); !ok {
			return p, false
		}
	}
	if message, there := jsonwire.Get(data, "message"); there && jsonwire.KindOf(message) != jsonwire.KindNull {
		if p.Message, ok = jsonwire.Text(message); !ok {
			return p, false
		}
		p.Message = jsonwire.Cut(p.Message, maxProgressText)
	}
	return p, true
}

func number(value []byte) (n float64, ok bool) {
	if jsonwire.KindOf(value) != jsonwire.KindNumber {
		return 0, false
	}
	n, err := strconv.ParseFloat(string(value), 64)
	return n, err == nil
}
