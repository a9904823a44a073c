package registry

import "fmt"

// StateSupport says which modes of state the process can keep between calls. The
// zero value is none.
type StateSupport struct {
	Signed bool // there are keys for handles
	Stored bool // there is a store for states
}

// Why a gateway cannot keep a state, and what its operator can do about it.
const (
	noHandleKeys = `this gateway has no keys for handles: run "tollgate key handle" and put what it prints into TOLLGATE_HANDLE_KEYS or the file of handles.keysFile of every replica; ` +
		`for a single replica, set handles.ephemeralKeys: true`
	noStateStore = `this gateway has no store for states: set redis.url; for a single replica, set handles.memoryStore: true`
)

// refuse returns why a manifest cannot be served: it has an enabled tool whose
// state cannot be kept. nil = it can. The manifest is not at fault, and another
// process may serve it. The failure is of the kind of its first finding.
func (s StateSupport) refuse(tools []*Tool) *Failure {
	var kind FailureKind
	var findings []Finding
	for _, support := range []struct {
		mode   StateMode
		kept   bool
		kind   FailureKind
		remedy string
	}{
		{SignedState, s.Signed, HandleKeysMissing, noHandleKeys},
		{StoredState, s.Stored, NoStateStore, noStateStore},
	} {
		f, found := firstWithState(tools, support.mode)
		if support.kept || !found {
			continue
		}
		f.Text += "; " + support.remedy
		findings = append(findings, f)
		if kind == "" {
			kind = support.kind
		}
	}
	if findings == nil {
		return nil
	}
	return invalid(kind, findings)
}

// firstWithState finds the enabled tools of a mode, all in one finding: what is to
// be done about them is the same.
func firstWithState(tools []*Tool, mode StateMode) (first Finding, found bool) {
	others := 0
	for i, t := range tools {
		switch {
		case !t.Enabled || t.State == nil || t.State.Mode != mode:
		case found:
			others++
		default:
			at := (*place)(nil).member("tools").element(i).member("_meta").member("state").member("mode")
			first, found = Finding{Level: Breach, Pointer: at.pointer()}, true
		}
	}
	first.Text = fmt.Sprintf("is %q", string(mode))
	if others > 0 {
		first.Text += fmt.Sprintf(", like that of %d more", others)
	}
	return first, found
}
