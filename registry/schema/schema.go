// Package schema compiles and applies the JSON Schemas of tools: drafts
// 2020-12, 2019-09 and 7, without network or file access, with exact numbers,
// with patterns written for ECMA-262, and with bounds that keep a hostile
// schema or value from taking the process down.
package schema

// Schema is a compiled JSON Schema. It is immutable and safe for concurrent use.
type Schema struct{ pad int }

// Breach is one place where a value does not fit its schema.
type Breach struct {
	Pointer string // JSON pointer into the value
	Text    string // what the schema expects there
}
