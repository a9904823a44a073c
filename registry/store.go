package registry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"tollgate/jsonwire"
)

// Store keeps copies of what was last good beyond the life of a process, for
// replicas that start while the origins are down. It may lose anything at any
// time: what is not there is fetched anew. Every operation bounds its own time,
// and a Store that is out of reach fails at once after the first time-out, until
// it is worth another try. All methods are safe for concurrent use.
type Store interface {
	// Get returns the value of a key; nil, nil when there is none. An error about
	// the value itself, as one of more than limit bytes, has a method
	// ValueFault() string that says what is wrong with it in one word, "too_large"
	// in that case; with other errors nobody knows what is there.
	Get(ctx context.Context, key string, limit int) ([]byte, error)

	Set(ctx context.Context, key string, value []byte) error

	// Delete removes a key. One that is not there is no error.
	Delete(ctx context.Context, key string) error
}

// valueFault is an error of [Store.Get] about the value itself: what is there is
// known not to be a copy. It is told by its method, so that a Store need not
// import this package. "" is an error of the other kind.
type valueFault interface {
	error
	ValueFault() string
}

// The keys of copies in a Store.
const (
	portalCopyKey = "registry:portal"
	routeCopyKeys = "registry:route:" // and the route's key
)

func routeCopyKey(key RouteKey) string { return routeCopyKeys + string(key) }

// defect is why a value in a Store, or a service's part of it, is not used, in one
// word. It is as good as none.
type defect string

const (
	sound          defect = ""
	foreignFormat  defect = "format"      // another version's, or somebody else's value
	badHash        defect = "hash"        // not what was written
	badMAC         defect = "mac"         // not signed with a key that is here, although there are keys
	badForm        defect = "form"        // not JSON of the form that is written here
	badManifest    defect = "manifest"    // a manifest in it is not valid for its service
	badDeclaration defect = "declaration" // a route in it is not valid, or the manifests do not fit the route
	tooLarge       defect = "too_large"   // more than what is written here can be
	unkept         defect = "unkept"      // nothing, but its tools have states that this process cannot keep
)

// manifestCopy is one manifest in a route's copy.
type manifestCopy struct {
	Key ServiceKey      `json:"key"`
	Raw json.RawMessage `json:"manifest"` // without white space around it
}

// encodeRouteCopy makes the value of a route: the manifests, as they came, of
// its services, which are sorted by key. It holds no address.
func encodeRouteCopy(manifests []manifestCopy) []byte {
	size := 64
	for _, m := range manifests {
		size += len(m.Raw) + copySlack
	}
	body := make([]byte, 0, size)
	body = append(body, `{"services":[`...)
	for i, m := range manifests {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, `{"key":`...)
		body = jsonwire.AppendString(body, string(m.Key))
		body = append(body, `,"manifest":`...)
		body = append(append(body, m.Raw...), '}')
	}
	return seal(append(body, "]}"...))
}

// decodeRouteCopy takes only what encodeRouteCopy makes. Whether the manifests
// are valid is for their reader to find out.
func decodeRouteCopy(value []byte) ([]manifestCopy, defect) {
	body, why := unseal(value)
	if why != sound {
		return nil, why
	}
	var doc struct {
		Services []manifestCopy `json:"services"`
	}
	if json.Unmarshal(body, &doc) != nil {
		return nil, badForm
	}
	for i, m := range doc.Services {
		if !validKey(string(m.Key)) || i > 0 && doc.Services[i-1].Key >= m.Key {
			return nil, badForm
		}
	}
	if !bytes.Equal(encodeRouteCopy(doc.Services), value) {
		return nil, badForm
	}
	return doc.Services, sound
}

// copySlack is more than a copy needs for one service beside its manifest.
const copySlack = 256

// spareServices are services that a route's value may have beyond those declared
// here: other processes may have heard of others.
const spareServices = 4

// routeCopyLimit bounds the value of a route with so many services. It is no less
// than what a process with the default bound writes: whoever has a smaller bound
// uses no larger manifest, but leaves it where it is.
func (r *Registry) routeCopyLimit(services int) int {
	largest := max(r.config.Manifest.MaxBytes, DefaultConfig().Manifest.MaxBytes)
	return copySlack + (services+spareServices)*(largest+copySlack)
}

// portalCopy is the Portal's value: the last-good declaration of every route,
// in a form of its own that has whole addresses.
type portalCopy struct {
	Revision string            `json:"registryRevision"`
	Routes   []declarationCopy `json:"routes"` // sorted by key, not nil
}

type declarationCopy struct {
	Key      RouteKey      `json:"routeKey"`
	Services []serviceCopy `json:"toolServices"` // sorted by key; nil = the route never had a valid declaration
}

type serviceCopy struct {
	Key          ServiceKey `json:"serviceKey"`
	ManifestURL  string     `json:"manifestUrl"`
	BaseEndpoint string     `json:"baseEndpoint"`
	NamePrefix   string     `json:"namePrefix"`
	Enabled      bool       `json:"enabled"`
}

// body is the value of the Portal without its header.
func (p portalCopy) body() []byte {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(p) // such a value has no error, and a buffer takes everything
	return bytes.TrimSuffix(body.Bytes(), []byte{'\n'})
}

func encodePortalCopy(p portalCopy, signer Signer) []byte { return sealPortal(p.body(), signer) }

// decodePortalCopy takes only what encodePortalCopy makes of valid routes. Without a
// signer, it takes the value of somebody who has one, too.
func decodePortalCopy(value []byte, signer Signer) (portalCopy, defect) {
	var p portalCopy
	body, why := unsealPortal(value, signer)
	if why != sound {
		return p, why
	}
	if json.Unmarshal(body, &p) != nil || p.Routes == nil || !bytes.Equal(p.body(), body) {
		return portalCopy{}, badForm
	}
	for i, entry := range p.Routes {
		sorted := slices.IsSortedFunc(entry.Services, func(a, b serviceCopy) int { return cmp.Compare(a.Key, b.Key) })
		if !sorted || i > 0 && p.Routes[i-1].Key >= entry.Key {
			return portalCopy{}, badForm
		}
		unclean := func(s serviceCopy) bool { return s.BaseEndpoint != cleanBase(s.BaseEndpoint) }
		if len(CheckRoute(Route{Key: entry.Key, Services: entry.services()})) > 0 || slices.ContainsFunc(entry.Services, unclean) {
			return portalCopy{}, badDeclaration
		}
	}
	return p, sound
}

// portalCopyLimit bounds the Portal's value. An entry of a copy has its origin
// twice; other than that it is no longer than the Portal's own.
func (r *Registry) portalCopyLimit() int { return 2*r.config.Portal.MaxBytes + copySlack }

func (d declarationCopy) services() []Service {
	var services []Service
	for _, s := range d.Services {
		services = append(services, Service{
			Key: s.Key, ManifestURL: s.ManifestURL, BaseEndpoint: s.BaseEndpoint, NamePrefix: s.NamePrefix, Enabled: s.Enabled,
		})
	}
	return services
}

func copyOfDeclaration(key RouteKey, declared []Service) declarationCopy {
	if declared == nil {
		return declarationCopy{Key: key}
	}
	services := make([]serviceCopy, 0, len(declared))
	for _, s := range declared {
		services = append(services, serviceCopy{s.Key, s.ManifestURL, s.BaseEndpoint, s.NamePrefix, s.Enabled})
	}
	return declarationCopy{key, services}
}

// declaration is what the copy says, as if the Portal had.
func (p portalCopy) declaration() *Declaration {
	d := &Declaration{Revision: p.Revision}
	for _, entry := range p.Routes {
		route := Route{Key: entry.Key, Services: entry.services()}
		if entry.Services == nil {
			route.Breaches = []Finding{{Breach, "/routes", "the entry of this route never was a valid one"}}
		}
		d.Routes = append(d.Routes, route)
	}
	return d
}
