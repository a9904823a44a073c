package registry

import (
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tagging answers 200 with a body and its ETag, or 304 to who has that already.
func tagging(etag, body string) page {
	return func(req *http.Request) (*http.Response, error) {
		if etag != "" && req.Header.Get("If-None-Match") == etag {
			return with(status(http.StatusNotModified, ""), etag)(req)
		}
		return with(says(body), etag)(req)
	}
}

// with adds an ETag to an answer, unless it is "".
func with(p page, etag string) page {
	return func(req *http.Request) (*http.Response, error) {
		resp, err := p(req)
		if etag != "" {
			resp.Header.Set("ETag", etag)
		}
		return resp, err
	}
}

// sent are the If-None-Match headers of the fetches from an address; "" stands
// for none.
func (w *world) sent(url string) (tags []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range w.visits {
		if v.url == url {
			tags = append(tags, v.header.Get("If-None-Match"))
		}
	}
	return tags
}

func wantSent(t *testing.T, w *world, url string, tags ...string) {
	t.Helper()
	if diff := cmp.Diff(tags, w.sent(url)); diff != "" {
		t.Errorf("If-None-Match sent to %s (-want +got)\n%s", url, diff)
	}
}

// onDemand makes every request check both origins, unless they come within a second.
func onDemand(o *Options) {
	o.Config.Portal.RefreshTTL, o.Config.Manifest.RefreshTTL = time.Second, time.Second
}

func TestNotModifiedIsASuccess(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.put(portalURL, tagging(`"p1"`, portalAnswer(map[string][]svc{"plant": {alpha}})))
		w.put(alpha.url(), tagging(`W/"a1"`, manifestOf("alpha", "a.one")))
		r := w.loaded(t)
		first := ask(t, r, "plant")
		w.at(300)
		if again := ask(t, r, "plant"); again != first {
			t.Error("a 304 made a new snapshot")
		}
		wantSent(t, w, portalURL, "", `"p1"`)
		wantSent(t, w, alpha.url(), "", `W/"a1"`)
		if got := r.NextCheck("plant"); got != 300*time.Second {
			t.Errorf("the next check is in %v, want the TTL", got)
		}
		st := r.Status()
		for name, o := range map[string]OriginStatus{"Portal": st.Portal.OriginStatus, "service": st.Routes[0].Bundles[0].OriginStatus} {
			if o.Condition != Healthy || !o.LastSuccessAt.Equal(w.began.Add(300*time.Second)) {
				t.Errorf("the %s is %s, last success at %v", name, o.Condition, o.LastSuccessAt)
			}
		}
		w.put(portalURL, tagging(`"p2"`, portalAnswer(map[string][]svc{"plant": {alpha}, "lab": {}})))
		w.put(alpha.url(), tagging(`W/"a2"`, manifestOf("alpha", "a.two")))
		w.at(600)
		wantTools(t, ask(t, r, "plant"), "a.two")
		wantTools(t, ask(t, r, "lab"), "")
		w.at(900)
		ask(t, r, "plant")
		wantSent(t, w, portalURL, "", `"p1"`, `"p1"`, `"p2"`)
		// The Portal's change of another route is none of this service's.
		wantSent(t, w, alpha.url(), "", `W/"a1"`, `W/"a1"`, `W/"a2"`)
	})
}

// tagsOf is an origin with documents it may answer with.
type tagsOf struct {
	url         string
	full, other string
	none        string // one that is empty
	invalid     string
}

var bothOrigins = map[string]tagsOf{
	"Portal": {
		portalURL,
		portalAnswer(map[string][]svc{"plant": {alpha}}), portalAnswer(map[string][]svc{"plant": {alpha}, "lab": {}}),
		portalAnswer(nil), `{"routes":null}`,
	},
	"service": {alpha.url(), manifestOf("alpha", "a.one"), manifestOf("alpha", "a.two"), manifestOf("alpha"), `{}`},
}

// TestWhichETagIsSent follows an origin over several answers, and looks at the
// condition of every fetch: the tag of the last accepted body, or none.
func TestWhichETagIsSent(t *testing.T) {
	type answer = func(tagsOf) page
	full := func(etag string) answer { return func(o tagsOf) page { return with(says(o.full), etag) } }
	other := func(etag string) answer { return func(o tagsOf) page { return with(says(o.other), etag) } }
	none := func(etag string) answer { return func(o tagsOf) page { return with(says(o.none), etag) } }
	bad := func(etag string) answer { return func(o tagsOf) page { return with(says(o.invalid), etag) } }
	code := func(code int, etag string) answer { return func(tagsOf) page { return with(status(code, ""), etag) } }
	down := func(tagsOf) page { return nil }
	for name, test := range map[string]struct {
		answers []answer // the first at start, then one a minute
		sent    []string
		kind    FailureKind // of the last fetch; "" = it succeeded
	}{
		"no tag":                           {[]answer{full(""), full("")}, []string{"", ""}, ""},
		"the same":                         {[]answer{full(`"1"`), code(304, ""), code(304, `"1"`)}, []string{"", `"1"`, `"1"`}, ""},
		"weak in the 304":                  {[]answer{full(`"1"`), code(304, `W/"1"`), full("")}, []string{"", `"1"`, `"1"`}, ""},
		"another body":                     {[]answer{full(`"1"`), other(`"2"`), full("")}, []string{"", `"1"`, `"2"`}, ""},
		"another body, same tag":           {[]answer{full(`"1"`), other(`"1"`), full("")}, []string{"", `"1"`, `"1"`}, ""},
		"same body, another tag":           {[]answer{full(`"1"`), full(`"2"`), full("")}, []string{"", `"1"`, `"2"`}, ""},
		"a 200 without a tag":              {[]answer{full(`"1"`), full(""), full("")}, []string{"", `"1"`, ""}, ""},
		"a tag that cannot be kept":        {[]answer{full(`"1"`), full(`2`), full("")}, []string{"", `"1"`, ""}, ""},
		"a 304 that nobody asked for":      {[]answer{full(""), code(304, "")}, []string{"", ""}, statusNotModified},
		"a tagged one nobody asked for":    {[]answer{full(""), code(304, `"1"`)}, []string{"", ""}, statusNotModified},
		"a 304 about another tag":          {[]answer{full(`"1"`), code(304, `"2"`)}, []string{"", `"1"`}, statusNotModified},
		"after a 304 about another tag":    {[]answer{full(`"1"`), code(304, `"2"`), full("")}, []string{"", `"1"`, ""}, ""},
		"invalid":                          {[]answer{full(`"1"`), bad(`"2"`), code(304, "")}, []string{"", `"1"`, `"1"`}, ""},
		"unreachable":                      {[]answer{full(`"1"`), down, code(304, "")}, []string{"", `"1"`, `"1"`}, ""},
		"who fails over the condition":     {[]answer{full(`"1"`), code(412, ""), full("")}, []string{"", `"1"`, ""}, ""},
		"empty and not confirmed":          {[]answer{full(`"1"`), none(`"2"`), code(304, "")}, []string{"", `"1"`, `"1"`}, ""},
		"empty and confirmed":              {[]answer{full(`"1"`), none(`"2"`), none(`"2"`), code(304, "")}, []string{"", `"1"`, `"1"`, `"2"`}, ""},
		"empty with the tag of the former": {[]answer{full(`"1"`), none(`"1"`), full("")}, []string{"", `"1"`, `"1"`}, ""},
	} {
		for what, o := range bothOrigins {
			t.Run(what+": "+name, func(t *testing.T) {
				in(t, func(t *testing.T, w *world) {
					onePlant(w)
					w.put(alpha.url(), says(bothOrigins["service"].full))
					answer := func(i int) { w.put(o.url, test.answers[i](o)) }
					answer(0)
					r := w.registry(t, func(o *Options) { onDemand(o); o.Config.EmptyConfirm = time.Minute; o.Config.RefreshWait = time.Minute })
					<-r.Preloaded()
					for i := 1; i < len(test.answers); i++ {
						w.at(float64(60 * i))
						answer(i)
						_, _ = r.Snapshot(t.Context(), "plant")
					}
					if got := w.fetched(o.url); len(got) != len(test.sent) {
						t.Fatalf("fetched at %v, want %d times", got, len(test.sent))
					}
					wantSent(t, w, o.url, test.sent...)
					rec := r.portal.recorded()
					if what == "service" {
						rec = r.route("plant").live.Load().services[0].recorded()
					}
					if got := rec.failure; (got == nil) != (test.kind == "") || got != nil && got.Kind != test.kind {
						t.Errorf("the last fetch: %v, want %q", got, test.kind)
					}
				})
			})
		}
	}
}

func TestNotModifiedEndsTheWaitForASecondEmptyAnswer(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		full := tagging(`"1"`, manifestOf("alpha", "a.one"))
		w.put(alpha.url(), full)
		r := w.loaded(t, onDemand)
		empty := with(says(manifestOf("alpha")), `"2"`)
		for _, step := range []struct {
			at   float64
			page page
			want string
		}{
			{10, empty, "a.one"},
			{20, full, "a.one"}, // 304: the wait is over
			{30, empty, "a.one"},
			{59, empty, "a.one"}, // 49 s after the first, 29 s after the one that counts
			{60, empty, ""},
			{70, with(status(304, ""), `"2"`), ""},
		} {
			w.put(alpha.url(), step.page)
			w.at(step.at)
			wantTools(t, ask(t, r, "plant"), step.want)
		}
		wantSent(t, w, alpha.url(), "", `"1"`, `"1"`, `"1"`, `"1"`, `"1"`, `"2"`)
	})
}

func TestETagOfARefusedFirstAnswerIsNeverSent(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		w.put(alpha.url(), with(says(`{}`), `"1"`))
		r := w.loaded(t)
		w.put(alpha.url(), with(says(manifestOf("alpha", "a.one")), `"2"`))
		w.at(7)
		wantTools(t, ask(t, r, "plant"), "a.one")
		w.at(400)
		ask(t, r, "plant")
		wantSent(t, w, alpha.url(), "", "", `"2"`)
	})
}

func TestSameETagWithAnotherBodyIsAChange(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		w.put(alpha.url(), with(says(manifestOf("alpha", "a.one")), `"1"`))
		r := w.loaded(t)
		w.put(alpha.url(), with(says(manifestOf("alpha", "a.two")), `"1"`))
		w.at(300)
		wantTools(t, ask(t, r, "plant"), "a.two")
	})
}

func TestRevisionShownAfterANotModified(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		body := func(revision string) string {
			return `{"bundleId":"alpha","revision":"` + revision + `","tools":[]}`
		}
		w.put(alpha.url(), tagging(`"1"`, body("r1")))
		r := w.loaded(t, onDemand)
		first, err := r.Current("plant")
		if err != nil {
			t.Fatal(err)
		}
		w.put(alpha.url(), tagging(`"2"`, body("r2")))
		for range 2 { // the second time it is a 304
			time.Sleep(time.Second)
			if ask(t, r, "plant") != first {
				t.Error("a new revision with the same content made a new snapshot")
			}
			if got := r.Status().Routes[0].Bundles[0].Revision; got != "r2" {
				t.Errorf("revision %s is shown, want r2", got)
			}
		}
		wantSent(t, w, alpha.url(), "", `"1"`, `"2"`)
	})
}

func TestNewDeclarationStartsWithoutAnETag(t *testing.T) {
	for name, change := range map[string]svc{
		"another address": {key: "alpha", prefix: "a.", domain: "http://elsewhere.test"},
		"another entry":   {key: "alpha", prefix: "a.", path: "/v2"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				onePlant(w)
				w.put(alpha.url(), tagging(`"1"`, manifestOf("alpha", "a.one")))
				r := w.loaded(t, func(o *Options) { o.Config.Manifest.RefreshTTL = time.Hour })
				w.declare(map[string][]svc{"plant": {change}})
				w.put(change.url(), tagging(`"1"`, manifestOf("alpha", "a.new")))
				w.at(310)
				wantTools(t, ask(t, r, "plant"), "a.new")
				if sent := w.sent(change.url()); sent[len(sent)-1] != "" {
					t.Errorf("sent %q with the first fetch under the new declaration", sent)
				}
			})
		})
	}
}

// A panic between taking a body and noting its tag must not leave the former
// tag with the new body: a 304 would then stand for a list that nobody serves.
func TestPanicLeavesNoETagOfAnotherBody(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		w.put(alpha.url(), tagging(`"1"`, manifestOf("alpha", "a.one")))
		armed := false
		r := w.loaded(t, onDemand, func(o *Options) {
			o.Logger = slog.New(&onRecord{o.Logger.Handler(), func(rec slog.Record) {
				if armed && rec.Message == "route has a new tool list" {
					panic("kept me from telling")
				}
			}})
		})
		armed = true
		w.put(alpha.url(), tagging(`"2"`, manifestOf("alpha", "a.two")))
		w.at(10)
		ask(t, r, "plant")
		armed = false
		w.put(alpha.url(), tagging(`"1"`, manifestOf("alpha", "a.one")))
		w.at(20)
		wantTools(t, ask(t, r, "plant"), "a.one")
		wantSent(t, w, alpha.url(), "", `"1"`, "")
	})
}
