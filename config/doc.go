// Package config reads the configuration file: YAML into the structs other
// packages document, strictly, with every problem at its line and column.
//
// From the top down:
//
//   - [Config] is the whole configuration; [Default] is what it is without a file.
//   - [Load] reads a file, replaces ${NAME} by the environment, makes paths
//     absolute, and checks what single packages and what only all of them
//     together can know. Its error is a [Problems].
//   - [Config.CheckOrigin] wants exactly one place that says which routes there are.
//
// A test holds the reference in docs/configuration.md against the structs.
// The package knows no way to run anything.
package config
