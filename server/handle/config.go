package handle

import "fmt"

// Config is the handles section of the configuration. Start from [DefaultConfig]:
// the zero value fails [Config.Validate].
type Config struct {
	// KeysFile is the path of a file with the keys that sign handles, as
	// [ParseKeys] reads them; [Config.Keys] does. The environment variable
	// TOLLGATE_HANDLE_KEYS holds them as well; only one of the two may be given.
	// Default "": no file.
	KeysFile string `yaml:"keysFile"`

	// MaxSignedBytes bounds signed handles, in bytes: models make mistakes when
	// they copy long strings. From 128 to 65536; default 1024.
	MaxSignedBytes int `yaml:"maxSignedBytes"`

	// EphemeralKeys lets a gateway without keys serve tools with signed state, by a
	// random key that ends with the process and that no replica has. Default false:
	// such tools are refused.
	EphemeralKeys bool `yaml:"ephemeralKeys"`

	// MemoryStore lets a gateway without Redis serve tools with stored state, in a
	// memory that ends with the process and that no replica has. Default false: such
	// tools are refused.
	MemoryStore bool `yaml:"memoryStore"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config { return Config{MaxSignedBytes: 1024} }

// ConfigError is one mistake in a Config.
type ConfigError struct {
	Key  string // the YAML key below handles: "maxSignedBytes"
	Text string // what is wrong and what would be right; never a secret
}

// Error names the key and the mistake.
func (e *ConfigError) Error() string { return "handles." + e.Key + ": " + e.Text }

// minSigned is room for a state of a few dozen bytes.
const minSigned = 128

// Validate returns nil or a *ConfigError. It reads no file.
func (c Config) Validate() error {
	if c.MaxSignedBytes < minSigned || c.MaxSignedBytes > maxHandle {
		return &ConfigError{"maxSignedBytes", fmt.Sprintf("must be from %d to %d, is %d", minSigned, maxHandle, c.MaxSignedBytes)}
	}
	return nil
}
