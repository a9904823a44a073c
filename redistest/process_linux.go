package redistest

import (
	"os"
	"os/exec"
	"syscall"
)

// bindToParent lets the server end with the test's process, also when that one
// runs into its time limit and cleans nothing up.
func bindToParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

func suspend(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error  { return p.Signal(syscall.SIGCONT) }
