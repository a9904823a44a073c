package management

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"tollgate/cost"
)

const budgetsPrefix = "/actuator/budgets/"

// ErrNoPrincipal says that nobody is called so: an API key that is not in the keys
// file, for one.
var ErrNoPrincipal = errors.New("there is no such principal")

// Budget is what a principal may spend and what is left of it.
type Budget struct {
	Tier string // the name of its budget, as it is in force
	cost.Balance
}

// BudgetsHealth is how budgets are kept. A store that is away is no reason for a
// replica to be down: it is decided without it, or calls are refused, and another
// replica would do no better.
type BudgetsHealth struct {
	Status Health            `json:"status"`
	Store  BudgetStore       `json:"store"`
	Mode   cost.StoreFailure `json:"mode,omitempty"`  // what happens while the store is away; "" in memory
	Since  *time.Time        `json:"since,omitempty"` // when the store stopped answering; nil while it answers

	// LocalDecisions is how many reservations this process has decided by itself since
	// its start, because the store was away.
	LocalDecisions uint64 `json:"localDecisions,omitempty"`
}

// BudgetStore says where budgets are.
type BudgetStore string

// The places of budgets.
const (
	InMemory BudgetStore = "memory" // of this process
	InRedis  BudgetStore = "redis"
)

// effect is what a store that is away means for calls, in words.
func (b BudgetsHealth) effect() string {
	switch {
	case b.Status != Down:
		return ""
	case b.Mode == cost.FailClosed:
		return "calls are refused with 503, but for callers that cost.enforce never refuses"
	default:
		return "this process decides by itself, with limits divided by cost.replicas"
	}
}

type budgetsComponent struct {
	BudgetsHealth
	Effect string `json:"effect,omitempty"`
}

type budgetAnswer struct {
	Principal string `json:"principal"`
	Tier      string `json:"tier"`
	cost.Shown
	Local bool `json:"local,omitempty"` // told by this process alone
}

// budget answers with what a principal has left. It writes nothing, and opens no
// hour: looking at a budget does not change it.
func (h *Handler) budget(w http.ResponseWriter, r *http.Request) {
	principal := lastPart(r)
	if !isPrincipal(principal) {
		writeError(w, http.StatusNotFound, "no principal is called so: want key:ID, oauth:ID, proxy:VALUE or "+cost.Anonymous+
			", with / ? # and % of it written as %2F %3F %23 and %25")
		return
	}
	b, err := h.o.Budgets(r.Context(), principal)
	switch {
	case errors.Is(err, ErrNoPrincipal):
		writeError(w, http.StatusNotFound, "there is no such principal: the API key is not in the keys file")
	case err != nil && r.Context().Err() != nil: // nobody reads the answer
	case err != nil:
		h.o.Logger.Debug("a budget cannot be told", slog.Any("cause", err))
		writeError(w, http.StatusServiceUnavailable, "the budget store cannot be asked now")
	default:
		writeJSON(w, http.StatusOK, budgetAnswer{Principal: principal, Tier: b.Tier, Shown: b.Shown(), Local: b.Local})
	}
}

// isPrincipal reports whether text has a form that principals have. Who is called
// so, it does not know.
func isPrincipal(text string) bool {
	if text == cost.Anonymous {
		return true
	}
	kind, name, found := strings.Cut(text, ":")
	invisible := strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' })
	switch kind {
	case "key", "oauth", "proxy":
		return found && name != "" && !invisible
	}
	return false
}
