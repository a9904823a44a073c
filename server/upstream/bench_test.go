package upstream

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"tollgate/registry"
)

// The call that the benchmarks make, and its answer of about 1 KB.
var (
	benchArguments = []byte(`{"project":"ALD","search":"bearing temperature","limit":100,"descending":false}`)
	benchBody      = `{"rows":[` + strings.TrimSuffix(strings.Repeat(`{"tag":"ALD.GT1.BEARING1.TEMP","value":78.25,"text":"<ok> & fine"},`, 15), ",") + `]}`
)

// benchService is a Tool Service that allocates nothing per call.
func benchService(b *testing.B) (url string) {
	reply := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Agent-Cost: 8\r\nContent-Length: " +
		strconv.Itoa(len(benchBody)) + "\r\n\r\n" + benchBody)
	return rawServer(b, func(conn *rawConn, _ int) {
		buf, n := make([]byte, 4096), 0
		for {
			more, err := conn.Read(buf[n:])
			if err != nil {
				return
			}
			if n += more; bytes.HasSuffix(buf[:n], benchArguments) {
				n = 0
				_, _ = conn.Write(reply)
			}
		}
	})
}

// BenchmarkCall measures a call from its place to its result, over one kept
// connection, and beside it what a plain http.Client costs that only reads the
// answer. One op is one call.
func BenchmarkCall(b *testing.B) {
	url := benchService(b)
	b.Run("plain", func(b *testing.B) {
		client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
		b.ReportAllocs()
		for b.Loop() {
			resp, err := client.Post(url, "application/json", bytes.NewReader(benchArguments))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadAll(resp.Body); err != nil {
				b.Fatal(err)
			}
			_ = resp.Body.Close()
		}
	})
	passed := http.Header{"Guid": {"g"}, "Employee-No": {"e"}, "X-Request-Id": {"r"}}
	for _, test := range []struct {
		name   string
		tool   *registry.RoutedTool
		header http.Header
	}{
		{"once", newTool(url), nil},
		{"repeatable", repeatableTool(url), nil},
		{"passing headers", newTool(url), passed},
	} {
		b.Run(test.name, func(b *testing.B) {
			client := newClient(b, nil)
			b.ReportAllocs()
			for b.Loop() {
				callOnce(b, client, Call{Tool: test.tool, Body: benchArguments, Header: test.header})
			}
		})
	}
}

func callOnce(b *testing.B, client *Client, call Call) {
	place, ok := client.Acquire(call.Tool.Service)
	if !ok {
		b.Fatal("no place")
	}
	answer := client.Forward(b.Context(), call)
	place.Release()
	reading := Read("route", call.Tool, answer, false)
	if result := reading.Result(""); result.IsError || len(result.Content) < len(benchBody) {
		b.Fatalf("%s", result.Content)
	}
}

func BenchmarkMap(b *testing.B) {
	tool := newTool("")
	answer := &Answer{Status: 200, ContentType: "application/json", Body: []byte(`{"id": 1, "text": "` + strings.Repeat("x", 300) + `"}`)}
	b.ReportAllocs()
	for b.Loop() {
		if mapped(tool, answer, false).IsError {
			b.Fatal("error")
		}
	}
}
