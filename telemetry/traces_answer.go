package telemetry

import (
	"io"
	"net/http"
	"strconv"
	"strings"

	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"tollgate/registry"
)

// wordless keeps what a collector answers, header and body, from the SDK, which
// quotes it in its errors: it may hold anything.
type wordless struct {
	http.RoundTripper
	queue *queue
}

func (w wordless) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, wordlessError(err)
	}
	resp.Header.Del("Location") // one that cannot be parsed would be quoted
	resp.Status = strconv.Itoa(resp.StatusCode)
	body := ""
	switch {
	case resp.StatusCode/100 != 2:
		body = "HTTP " + resp.Status
	default:
		w.queue.refused(rejected(resp))
	}
	resp.Body.Close()
	resp.Body = io.NopCloser(strings.NewReader(body))
	resp.ContentLength = int64(len(body))
	return resp, nil
}

// rejected is how many spans of a batch the collector says it did not keep. An
// answer that cannot be read says nothing: its status took the batch.
func rejected(resp *http.Response) int64 {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxCollectorAnswer))
	var answer coltrace.ExportTraceServiceResponse
	if err != nil || proto.Unmarshal(data, &answer) != nil {
		return 0
	}
	return answer.GetPartialSuccess().GetRejectedSpans()
}

// collectorError is an error of an exchange in words of our own. As with
// net/http's, a temporary one is tried again.
type collectorError struct {
	text      string
	temporary bool
}

func wordlessError(err error) error {
	t, ok := err.(interface{ Temporary() bool })
	return &collectorError{registry.Cause(err), ok && t.Temporary()}
}

func (e *collectorError) Error() string   { return e.text }
func (e *collectorError) Temporary() bool { return e.temporary }
