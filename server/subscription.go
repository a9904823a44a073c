package server

import (
	"bytes"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A subscription puts right what the SDK tells one subscriptions/listen. A
// change can reach a stream before its acknowledgement, which has to be first,
// and without the subscription's id, as if the client were a legacy one.
type subscription struct {
	acked bool
	held  []byte // a change told too early; all changes say the same
}

// admit takes a message (or an event around it) and returns what to send now,
// in this order; nil for nothing.
func (s *subscription) admit(message []byte) (first, second []byte) {
	switch {
	case bytes.Contains(message, []byte(`"method":"`+noteAcknowledged+`"`)):
		s.acked = true
		return message, s.held
	case !bytes.Contains(message, []byte(`"method":"`+noteListChanged+`"`)):
		return message, nil // the result
	case !bytes.Contains(message, []byte(mcp.MetaKeySubscriptionID)):
		return nil, nil
	case !s.acked:
		s.held = bytes.Clone(message)
		return nil, nil
	}
	return message, nil
}
