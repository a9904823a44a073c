package schema

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"tollgate/jsonwire"
)

const (
	maxDocument   = 64 << 10 // bytes
	maxSubschemas = 1000     // the library's time grows with their square
	// maxPasses is how often the library may see a document, a few milliseconds
	// each. It is once more than there are faults of the kinds that it reports
	// one by one: an $id or anchor that is malformed or used twice.
	maxPasses = 10
	// documentURL is the base of relative references. No loader knows it.
	documentURL = "schema:///tool"
)

// documentLimits bound a schema's text: as deep as docs/tool-service-guide.md
// grants, with numbers like all that a tool publishes.
var documentLimits = jsonwire.Limits{Depth: 64, NumberLength: 40, NumberExponent: 308}

// CompileError lists what is wrong with a schema: one Breach at least, with
// pointers into the schema.
type CompileError struct {
	Breaches []Breach
}

// Error joins all breaches.
func (e *CompileError) Error() string {
	texts := make([]string, len(e.Breaches))
	for i, b := range e.Breaches {
		texts[i] = b.String()
	}
	return "schema: " + strings.Join(texts, "; ")
}

// Compile compiles a JSON Schema, the text of an object or a boolean. Its error
// is a *CompileError with all breaches that can be found, in the order of their
// pointers. The Schema refers to doc, which must not be modified afterwards.
//
// The schema's draft is 2020-12 unless $schema says 2019-09 or draft-07. It is
// at most 64 KiB long and 64 levels deep and has at most 1000 subschemas; its
// references stay inside it. Some patterns may be skipped, see Skipped. Compile
// never panics.
func Compile(doc []byte) (*Schema, error) {
	if len(doc) > maxDocument {
		return nil, &CompileError{[]Breach{{Text: fmt.Sprintf("a schema of more than %d bytes", maxDocument)}}}
	}
	if err := jsonwire.Check(doc, documentLimits); err != nil {
		return nil, &CompileError{[]Breach{BreachOf(err)}}
	}
	if k := jsonwire.KindOf(doc); k != jsonwire.KindObject && k != jsonwire.KindBool {
		return nil, &CompileError{[]Breach{{Text: "a schema must be an object, not " + k.String()}}}
	}
	c := compilation{}
	if _, err := c.run(doc); err != nil {
		c.breach("", "could not be compiled")
	}
	if len(c.breaches) > 0 {
		return nil, &CompileError{inOrder(c.breaches)}
	}
	kind, _ := jsonwire.Get(doc, "type")
	return &Schema{doc: doc, skipped: c.skipped, object: string(kind) == `"object"`}, nil
}

func inOrder(breaches []Breach) []Breach {
	slices.SortStableFunc(breaches, func(a, b Breach) int { return comparePointers(a.Pointer, b.Pointer) })
	breaches = slices.Compact(breaches)
	return breaches[:min(len(breaches), maxBreaches)]
}

// compilation is the state of one Compile.
type compilation struct {
	doc      any
	breaches []Breach
	skipped  []string // see Schema.Skipped
	removed  []string // pointers of what was removed to look further
	passes   int      // how often the library has seen the document
}

func (c *compilation) breach(pointer, text string) {
	c.breaches = append(c.breaches, Breach{pointer, text})
}

// run compiles doc. It fails only if the library panics.
func (c *compilation) run(doc []byte) (made *compiled, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("compile: %v", r)
		}
	}()
	if c.doc, err = jsonschema.UnmarshalJSON(bytes.NewReader(doc)); err != nil {
		return nil, err
	}
	if countSubschemas(c.doc) > maxSubschemas {
		c.breach("", fmt.Sprintf("a schema of more than %d subschemas", maxSubschemas))
		return nil, nil
	}
	c.checkDocument(c.doc, "")
	if len(c.breaches) > 0 {
		return nil, nil
	}
	compiler, root := c.link()
	if root == nil {
		return nil, nil
	}
	g := newGraph(root, c.anchored(compiler))
	c.breaches = append(c.breaches, g.breaches...)
	c.checkReached(g)
	made = &compiled{}
	if c.skipped, made.root = g.skipPatterns(); made.root != root {
		g = newGraph(made.root, nil)
	}
	made.graph = g
	if len(g.breaches) == 0 {
		made.perByte = g.costPerByte()
		made.quick = newQuick(g)
		c.checkUsable(made)
	}
	return made, nil
}

// checkUsable refuses a schema whose combinators make even the smallest object
// too much work: no value would ever pass.
func (c *compilation) checkUsable(made *compiled) {
	if _, found := made.graph.survey(map[string]any{}, maxWork); found != nil {
		c.breach("", "combines so many subschemas that no value can be checked: refer to each from fewer places")
	}
}

// link has the library resolve all references and check all keywords. It stops
// at its first fault; so that more are found, what is faulty is taken out of the
// document and the rest is tried again.
func (c *compilation) link() (*jsonschema.Compiler, *jsonschema.Schema) {
	engine := newPatterns()
	for c.passes < maxPasses {
		c.passes++
		compiler := jsonschema.NewCompiler()
		compiler.DefaultDraft(jsonschema.Draft2020)
		compiler.UseLoader(noLoader{})
		compiler.UseRegexpEngine(engine.compile)
		if err := compiler.AddResource(documentURL, c.doc); err != nil {
			c.breach("", "could not be compiled")
			return nil, nil
		}
		root, err := compiler.Compile(documentURL)
		if err == nil {
			return compiler, root
		}
		if !c.remove(c.locate(err)) {
			return nil, nil
		}
	}
	return nil, nil
}

// noLoader keeps the library from the network and from files.
type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errors.ErrUnsupported }

// locate records what the library complains of and returns the places.
func (c *compilation) locate(err error) (places []string) {
	add := func(pointer, text string) {
		c.breach(pointer, text)
		places = append(places, pointer)
	}
	switch e := err.(type) {
	case *jsonschema.SchemaValidationError:
		base := pointerOf(e.URL)
		for _, b := range flatten(e.Err) {
			add(base+b.Pointer, b.Text)
		}
	case *jsonschema.JSONPointerNotFoundError, *jsonschema.InvalidJsonPointerError, *jsonschema.AnchorNotFoundError,
		*jsonschema.LoadURLError, *jsonschema.ParseURLError:
		return c.dangling()
	case *jsonschema.ParseIDError:
		add(pointerOf(e.URL)+"/$id", "not a URI reference")
	case *jsonschema.ParseAnchorError:
		add(pointerOf(e.URL)+"/$id", "not an anchor")
	case *jsonschema.DuplicateIDError:
		add(later(e.Ptr1, e.Ptr2)+"/$id", "the $id is used twice")
	case *jsonschema.DuplicateAnchorError:
		add(later(e.Ptr1, e.Ptr2)+"/$anchor", "the anchor is used twice")
	case *jsonschema.InvalidRegexError:
		add(pointerOf(e.URL), "not a usable pattern: "+e.Err.Error())
	default:
		add("", "could not be compiled")
	}
	return places
}

func later(a, b string) string {
	if comparePointers(a, b) > 0 {
		return a
	}
	return b
}
