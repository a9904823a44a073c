package telemetry

import (
	"log/slog"
	"sync"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// A queue is the batch processor with a count of the spans that wait in it or
// are being sent. The processor has room for spanQueue and drops the rest
// without a word; the queue drops them itself, counts them, and says so once when
// that begins and once when it is over.
type queue struct {
	sdktrace.SpanProcessor
	log     *slog.Logger
	waiting atomic.Int64
	dropped atomic.Uint64 // all spans the collector did not take, for whatever reason

	mu       sync.Mutex
	full     bool
	lost     uint64 // since it is full
	rejected bool   // the collector has refused spans, which was told
}

// OnEnd implements sdktrace.SpanProcessor.
func (q *queue) OnEnd(span sdktrace.ReadOnlySpan) {
	if !span.SpanContext().IsSampled() {
		return
	}
	if q.waiting.Add(1) > spanQueue {
		q.waiting.Add(-1)
		q.drop()
		return
	}
	q.SpanProcessor.OnEnd(span)
}

func (q *queue) drop() {
	q.dropped.Add(1)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lost++
	if !q.full {
		q.full = true
		q.log.Warn("spans are dropped: more end than the collector takes", slog.Int("waiting", spanQueue))
	}
}

// done takes note of spans that were sent, or given up. Half of the room must be
// free before dropping counts as over, or it would begin again with every batch.
func (q *queue) done(spans int) {
	waiting := q.waiting.Add(-int64(spans))
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.full && waiting <= spanQueue/2 {
		q.log.Info("spans are no longer dropped", slog.Uint64("dropped", q.lost))
		q.full, q.lost = false, 0
	}
}

// refused takes note of spans the collector took and did not keep. Why is the
// collector's to tell; the gateway says once that it happens.
func (q *queue) refused(spans int64) {
	if spans <= 0 {
		return
	}
	spans = min(spans, spanBatch) // whatever it says
	q.dropped.Add(uint64(spans))
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.rejected {
		q.log.Debug("the collector rejected spans", slog.Int64("spans", spans))
		return
	}
	q.rejected = true
	q.log.Warn("the collector takes traces but rejects spans of them; its own log says why", slog.Int64("spans", spans))
}
