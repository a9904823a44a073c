package management

import (
	"net/http"

	"tollgate/registry"
)

const refreshPrefix = "/actuator/refresh/"

// toolBundles answers with all the registry knows, as it marshals itself: no
// address, prefix, header or message text is in there.
func (h *Handler) toolBundles(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, struct {
		Identity string `json:"identity"`
		registry.Status
	}{h.o.Identity, h.o.Registry.Status()})
}
