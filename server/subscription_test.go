package server

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// The SDK may tell of a change between registering a subscription and
// acknowledging it, and before registering it in the legacy form.
func TestAcknowledgementComesFirst(t *testing.T) {
	const (
		ack      = `{"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}`
		change   = `{"method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}`
		unstated = `{"method":"notifications/tools/list_changed","params":{}}`
		result   = `{"id":1,"result":{}}`
	)
	for _, tt := range []struct{ said, sent []string }{
		{[]string{ack, change, change, result}, []string{ack, change, change, result}},
		{[]string{change, change, ack, change}, []string{ack, change, change}},
		{[]string{unstated, ack, unstated, change}, []string{ack, change}},
		{[]string{result}, []string{result}},
	} {
		var s subscription
		var sent []string
		for _, message := range tt.said {
			first, second := s.admit([]byte(message))
			for _, m := range [][]byte{first, second} {
				if m != nil {
					sent = append(sent, string(m))
				}
			}
		}
		if diff := cmp.Diff(tt.sent, sent); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.said, diff)
		}
	}
}

// After a cancellation nothing more is said of a subscription, whatever the SDK
// has on its way.
func TestSubscriptionsOnFramesThatAreOver(t *testing.T) {
	id := func(raw string) jsonrpc.ID { return sdkID([]byte(raw)) }
	c := &session{pending: map[jsonrpc.ID]*pendingCall{
		id(`"open"`):      {subscription: subscription{acked: true}},
		id(`"cancelled"`): {cancelled: true, subscription: subscription{acked: true}},
	}}
	for raw, want := range map[string]bool{`"open"`: true, `"cancelled"`: false, `"never was"`: false, `1`: false} {
		note := &jsonrpc.Request{Method: noteListChanged, Params: []byte(`{"_meta":{"io.modelcontextprotocol/subscriptionId":` + raw + `}}`)}
		data, err := jsonrpc.EncodeMessage(note)
		if err != nil {
			t.Fatal(err)
		}
		if first, _ := c.note(note, data); (first != nil) != want {
			t.Errorf("for %s: %s", raw, first)
		}
	}
}
