package server

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tollgate/jsonwire"
	"tollgate/registry"
	"tollgate/server/upstream"
)

// noteProgress tells a caller that asked for it how far a call is.
const noteProgress = "notifications/progress"

// metaProgressToken is the member of _meta with which a caller asks for progress.
const metaProgressToken = "progressToken"

// progressToken is what the caller wants its progress called, nil when it does not
// want any. Like an id it is a string or an integer; anything else asks for nothing.
func (m *message) progressToken() []byte {
	token := m.metaValue(metaProgressToken)
	if token == nil || jsonwire.IDFault(token) != "" {
		return nil
	}
	return token
}

// streams reports whether the answer has to be an event stream: the tool declares
// that it streams, and the caller wants to hear of its progress. Some clients send a
// token with every call; those of other tools are answered in JSON.
func (x *exchange) streams() bool {
	if x.msg.method != methodCall || x.snapshot == nil || x.msg.progressToken() == nil {
		return false
	}
	tool := x.snapshot.Tool(registry.ToolName(x.msg.tool))
	return tool != nil && tool.Streams
}

// progress tells the caller of a call how far it is; nil when it did not ask, or
// there is no way to tell it beside the answer.
func (d *door) progress(ctx context.Context, req *mcp.CallToolRequest) func(upstream.Progress) {
	token := req.Params.GetProgressToken()
	if token == nil || d.http != nil && d.events == nil {
		return nil
	}
	return func(p upstream.Progress) {
		if d.events.crowded() {
			return
		}
		// A caller that cannot be told is on its way out; the context says so.
		_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: token, Progress: p.Done, Total: p.Total, Message: p.Message,
		})
	}
}
