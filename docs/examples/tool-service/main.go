// Command tool-service is a complete Tool Service to copy: it publishes a
// manifest and answers calls. It needs the standard library alone and knows
// nothing of MCP or of the gateway. The rules are in docs/tool-service-guide.md.
package main

import (
	_ "embed"
	"encoding/json"
	"flag"
	"log"
	"net"
	"net/http"
	"strconv"
)

// manifest is the whole tool list, served as it is.
//
//go:embed tool-manifest.json
var manifest []byte

// claim is one row of the database this example does not have.
type claim struct {
	ID       int    `json:"id"`
	Customer string `json:"customer"`
	Status   string `json:"status"`
	Amount   string `json:"amount"`
}

var claims = []claim{
	{101, "C-1", "open", "1250.00"},
	{102, "C-1", "paid", "80.50"},
	{103, "C-2", "rejected", "40.00"},
}

func main() {
	listen := flag.String("listen", "127.0.0.1:9001", "address to listen on")
	flag.Parse()

	mux := http.NewServeMux()
	mux.HandleFunc("GET /tool-manifest", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(manifest)
	})
	mux.HandleFunc("POST /mcp/claim_search", search)
	mux.HandleFunc("POST /mcp/claim_detail", detail)

	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("manifest at http://%s/tool-manifest", listener.Addr())
	log.Fatal(http.Serve(listener, mux))
}

// search answers claim_search. It costs a unit for each row it found. At most 10 rows,
// so the manifest's estimate is 10: one by limit would be 300 for a call without it.
func search(w http.ResponseWriter, r *http.Request) {
	args := struct {
		Customer string `json:"customer"`
		Limit    int    `json:"limit"`
	}{Limit: 10} // the gateway fills in no defaults
	if !readArguments(w, r, &args) {
		return
	}
	rows := []claim{} // not null: the output schema wants an array
	for _, c := range claims {
		if c.Customer == args.Customer && len(rows) < args.Limit {
			rows = append(rows, c)
		}
	}
	w.Header().Set("x-agent-cost", strconv.Itoa(len(rows)))
	answer(w, http.StatusOK, map[string]any{"rows": rows})
}

// detail answers claim_detail, or says what to do instead.
func detail(w http.ResponseWriter, r *http.Request) {
	var args struct {
		ID int `json:"id"`
	}
	if !readArguments(w, r, &args) {
		return
	}
	for _, c := range claims {
		if c.ID == args.ID {
			w.Header().Set("x-agent-cost", "1") // one row
			answer(w, http.StatusOK, c)
			return
		}
	}
	// Not 404: that would say the tool is gone. The text is for the model.
	answer(w, http.StatusUnprocessableEntity, map[string]string{
		"error": "there is no claim " + strconv.Itoa(args.ID) + "; find ids with claim_search",
	})
}

// readArguments reads the body, which the gateway has checked against the
// tool's inputSchema. Others may call, too.
func readArguments(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(into); err != nil {
		answer(w, http.StatusBadRequest, map[string]string{"error": "the arguments cannot be read: " + err.Error()})
		return false
	}
	return true
}

func answer(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(value)
}
