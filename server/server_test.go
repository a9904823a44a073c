package server

import "testing"

func TestNewWantsWhatHasNoDefault(t *testing.T) {
	good := Options{Identity: "tollgate", MaxRequestBytes: 1, Version: "1", CacheScope: CachePublic}
	if _, err := New(good); err != nil {
		t.Errorf("refused: %v", err)
	}
	for what, change := range map[string]func(*Options){
		"no name":         func(o *Options) { o.Identity = "" },
		"no body at all":  func(o *Options) { o.MaxRequestBytes = 0 },
		"a negative body": func(o *Options) { o.MaxRequestBytes = -1 },
	} {
		o := good
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
}
