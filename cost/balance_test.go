package cost

import (
	"encoding/json"
	"math"
	"testing"
	"time"
)

func TestABalanceIsShownInWholeSecondsRoundedUp(t *testing.T) {
	for want, b := range map[string]Balance{
		`{"burst":{"limit":300,"remaining":40,"refillPerSecond":25,"fullSeconds":11},"hour":{"limit":1000,"remaining":0,"resetSeconds":3600}}`: {
			BurstLimit: 300, BurstRemaining: 40, RefillPerSecond: 25, FullIn: 10*time.Second + time.Microsecond, HourLimit: 1000, HourResetIn: time.Hour},
		`{"burst":{"limit":300,"remaining":300,"refillPerSecond":25,"fullSeconds":0},"hour":{"limit":1000,"remaining":1000}}`: {
			BurstLimit: 300, BurstRemaining: 300, RefillPerSecond: 25, HourLimit: 1000, HourRemaining: 1000},
	} {
		if got, err := json.Marshal(b.Shown()); err != nil || string(got) != want {
			t.Errorf("%v\n%s, want\n%s", err, got, want)
		}
	}
}

func TestCeil(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Second - 1: 1, time.Second: 1, time.Second + 1: 2, math.MaxInt64: math.MaxInt64/int64(time.Second) + 1,
	} {
		if got := Ceil(d, time.Second); got != want {
			t.Errorf("%v is %d s, want %d", d, got, want)
		}
	}
}
