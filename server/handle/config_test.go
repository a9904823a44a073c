package handle

import (
	"fmt"
	"testing"
)

func TestConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for size, valid := range map[int]bool{-1: false, 0: false, 127: false, 128: true, 65536: true, 65537: false} {
		c := DefaultConfig()
		c.MaxSignedBytes = size
		want := "<nil>"
		if !valid {
			want = fmt.Sprintf("handles.maxSignedBytes: must be from 128 to 65536, is %d", size)
		}
		if got := fmt.Sprint(c.Validate()); got != want {
			t.Errorf("%d: %s, want %s", size, got, want)
		}
	}
}
