//go:build !linux

package redistest

import (
	"errors"
	"os"
	"os/exec"
)

func bindToParent(*exec.Cmd) {}

var errLinuxOnly = errors.New("suspending a process is built for Linux only")

func suspend(*os.Process) error { return errLinuxOnly }
func resume(*os.Process) error  { return errLinuxOnly }
