package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// keyDoc is one configuration key as docs/configuration.md has to list it.
type keyDoc struct {
	Path    string // dotted; * stands for a name of the user's choice, [] for a list entry
	Default string // as it would be written in YAML
}

// allKeys lists every configuration key.
func allKeys() []keyDoc {
	return keysOf(reflect.ValueOf(*Default()), "")
}

func keysOf(v reflect.Value, prefix string) []keyDoc {
	var keys []keyDoc
	for i := range v.NumField() {
		name, inline := fieldKey(v.Type().Field(i))
		field, path := v.Field(i), join(prefix, name)
		switch {
		case inline:
			keys = append(keys, keysOf(field, prefix)...)
		case name == "":
		case field.Kind() == reflect.Struct:
			keys = append(keys, keysOf(field, path)...)
		case field.Kind() == reflect.Map && field.Type().Elem().Kind() == reflect.Struct:
			for _, entry := range field.MapKeys() { // those that are there by default
				keys = append(keys, keysOf(field.MapIndex(entry), join(path, entry.String()))...)
			}
		case field.Kind() == reflect.Map:
			entry := reflect.New(field.Type().Elem().Elem())
			if d, ok := entry.Interface().(defaulter); ok {
				d.setDefaults()
			}
			keys = append(keys, keysOf(entry.Elem(), path+".*[]")...)
		default:
			keys = append(keys, keyDoc{Path: path, Default: written(field)})
		}
	}
	return keys
}

// written returns v as one would write it in the file.
func written(v reflect.Value) string {
	switch value := v.Interface().(type) {
	case time.Duration:
		return shortDuration(value)
	case []string:
		return "[" + strings.Join(value, ", ") + "]"
	}
	if v.Kind() == reflect.String && v.Len() == 0 {
		return `""`
	}
	return fmt.Sprint(v.Interface())
}

// shortDuration writes whole seconds as seconds, as the documents do.
func shortDuration(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprintf("%ds", int64(d/time.Second))
	}
	return d.String()
}
