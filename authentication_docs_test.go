package main

import "path/filepath"

var authenticationPage = filepath.Join("docs", "authentication.md")
