package registry

import (
	"fmt"
	"time"
)

// Check is one finished check of an origin.
type Check struct {
	Service ServiceKey // whose manifest it was; "" = the Portal's answer
	Result  CheckResult
	Kind    FailureKind   // why it failed; "" unless Result is CheckFailed
	Elapsed time.Duration // of the fetch and all that was made of it
}

// CheckResult is what a check of an origin brought, in one word for metrics.
type CheckResult string

const (
	CheckChanged     CheckResult = "changed"      // accepted, and other than what was known
	CheckUnchanged   CheckResult = "unchanged"    // fetched whole, with the content that was known
	CheckNotModified CheckResult = "not_modified" // confirmed with a 304
	CheckUnconfirmed CheckResult = "unconfirmed"  // empty; counts when a second look agrees
	CheckFailed      CheckResult = "failed"       // did not count
)

// fly checks o once. A panic in the check is a failure like others. A check that
// the end of the Registry cut short is not told of: it says nothing about the
// origin.
func (r *Registry) fly(o *origin) {
	began := r.now()
	result := r.checked(o)
	if r.onCheck == nil || result == "" {
		return
	}
	c := Check{Service: o.service, Result: result, Elapsed: r.now() - began}
	if rec := o.recorded(); result == CheckFailed && rec.failure != nil {
		c.Kind = rec.failure.Kind
	}
	defer func() {
		if p := recover(); p != nil {
			r.logPanic("panic while telling of a registry check", o.who, p)
		}
	}()
	r.onCheck(c)
}

// checked is the check itself; "" = cut short.
func (r *Registry) checked(o *origin) (result CheckResult) {
	defer func() {
		if p := recover(); p != nil {
			r.logPanic("panic in a registry check", o.who, p)
			r.failed(o, &Failure{Kind: FailedInternal, Detail: fmt.Sprintf("panic: %v", p)})
			result = CheckFailed
		}
	}()
	return o.check(r.ctx)
}
