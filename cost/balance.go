package cost

import "time"

// Shown is a [Balance] as it is told in JSON, to whoever asks and whoever is refused.
type Shown struct {
	Burst ShownBurst `json:"burst"`
	Hour  ShownHour  `json:"hour"`
}

// ShownBurst is the bucket.
type ShownBurst struct {
	Limit           int64 `json:"limit"`
	Remaining       int64 `json:"remaining"`
	RefillPerSecond int64 `json:"refillPerSecond"`
	FullSeconds     int64 `json:"fullSeconds"` // 0: it is full
}

// ShownHour is the hourly total.
type ShownHour struct {
	Limit        int64 `json:"limit"`
	Remaining    int64 `json:"remaining"`
	ResetSeconds int64 `json:"resetSeconds,omitempty"` // absent: no hour has begun
}

// Shown is the balance in whole seconds, rounded up.
func (b Balance) Shown() Shown {
	return Shown{
		Burst: ShownBurst{b.BurstLimit, b.BurstRemaining, b.RefillPerSecond, Ceil(b.FullIn, time.Second)},
		Hour:  ShownHour{b.HourLimit, b.HourRemaining, Ceil(b.HourResetIn, time.Second)},
	}
}

// Ceil is how many units a duration takes, rounded up, as everything that says when
// to come back: who comes too early is refused again. d is not negative.
func Ceil(d, unit time.Duration) int64 { return ceilDiv(int64(d), int64(unit)) }
