package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A swappingService is a Tool Service of 200 tools that publishes another manifest
// each time it is asked: half of the tools are always there, the others have the
// number of the manifest in their names, and all have it in their descriptions.
type swappingService struct {
	manifests atomic.Int64
}

const (
	swappedTools = 200
	steadyTools  = swappedTools / 2
)

func (s *swappingService) answer(m *wireMessage) []byte {
	if bytes.HasPrefix(m.head, []byte("POST ")) {
		return wireAnswer("200 OK", `{"done":true}`, "Content-Type: application/json")
	}
	number := s.manifests.Add(1)
	var tools []string
	for i := range swappedTools {
		name, schema := benchListTool(i)
		if i >= steadyTools {
			name = fmt.Sprintf("manifest_%d_%s", number, name)
		}
		tools = append(tools, fmt.Sprintf(`{"name":%q,"description":"Manifest %d.","inputSchema":%s,"_meta":{"version":"1"}}`, name, number, schema))
	}
	return wireAnswer("200 OK", `{"bundleId":"swapping","tools":[`+strings.Join(tools, ",")+`]}`, "Content-Type: application/json")
}

// TestSwapsUnderLoad: while the whole list of a route changes over and over, no call
// of 64 connections fails, and every list is that of one manifest, never of an older
// one than the list before on that connection.
func TestSwapsUnderLoad(t *testing.T) {
	const callers, listers, swaps = 64, 2, 5
	service := new(swappingService)
	addr := serveWire(t, service.answer)
	gateway := startStack(t, configSource(t, fmt.Sprintf(`registry:
  maxToolsPerService: %d
  manifest: {refreshTTL: 20ms}
  routes: {swapping: [{id: swapping, manifestUrl: "http://%s/manifest", baseEndpoint: "http://%[2]s/run"}]}
`, swappedTools, addr)), nil)

	var over atomic.Bool
	var newest atomic.Int64 // number of a manifest that was listed
	var all sync.WaitGroup
	work := func(turn func(c *loadConn, n int) error) {
		all.Go(func() {
			c := &loadConn{in: bufio.NewReader(nil)}
			err := c.dial(gateway.addr)
			for n := 0; err == nil && !over.Load(); n++ {
				err = turn(c, n)
			}
			if err != nil {
				t.Error(err)
				over.Store(true)
				return
			}
			c.Close()
		})
	}
	for i := range callers {
		d := doors[i%2] // both eras over HTTP
		work(func(c *loadConn, n int) error {
			tool, _ := benchListTool((i + n) % steadyTools)
			request := wireRequest(gateway.addr, "/mcp/swapping", d.call("1", tool, `{"property_0":"x"}`), callHeaders(tool, d.modern)...)
			return c.exchange(request, []byte(`{\"done\":true}`))
		})
	}
	for i := range listers {
		var before int64
		request := listRequest(gateway.addr, "/mcp/swapping", i%2 == 0)
		work(func(c *loadConn, _ int) error {
			if err := c.exchange(request, nil); err != nil {
				return err
			}
			number, err := wholeManifest(c.answer.body)
			switch {
			case err != nil:
				return err
			case number < before:
				return fmt.Errorf("the list of manifest %d came after that of %d", number, before)
			case number > before:
				newest.Store(number)
			}
			if before = number; number > swaps || service.manifests.Load() > 10*swaps {
				over.Store(true)
			}
			return nil
		})
	}
	all.Wait()
	if last := newest.Load(); last < swaps && !t.Failed() {
		t.Errorf("the newest list is that of manifest %d, and %d were published", last, service.manifests.Load())
	}
}

// wholeManifest returns the number of the manifest that a list is of. All its tools
// have to be in the list, and no other.
func wholeManifest(list []byte) (number int64, err error) {
	var answer struct {
		Result struct {
			Tools []struct{ Name, Description string }
		}
	}
	if err := json.Unmarshal(list, &answer); err != nil {
		return 0, err
	}
	tools := answer.Result.Tools
	if len(tools) != swappedTools {
		return 0, fmt.Errorf("%d tools in a list: %.200s", len(tools), list)
	}
	if _, err := fmt.Sscanf(tools[0].Description, "Manifest %d.", &number); err != nil {
		return 0, err
	}
	names := map[string]bool{}
	for _, tool := range tools {
		names[tool.Name] = true
		if tool.Description != fmt.Sprintf("Manifest %d.", number) {
			return 0, fmt.Errorf("%s in a list of manifest %d is described as %q", tool.Name, number, tool.Description)
		}
	}
	for i := range swappedTools {
		name, _ := benchListTool(i)
		if i >= steadyTools {
			name = fmt.Sprintf("manifest_%d_%s", number, name)
		}
		if !names[name] {
			return 0, fmt.Errorf("%s is not in a list of manifest %d", name, number)
		}
	}
	return number, nil
}
