package main

import (
	"debug/elf"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// instruction is one of a Dockerfile, its continuation lines joined.
type instruction struct{ name, rest string }

var dockerfile = filepath.Join("docs", "deploy", "Dockerfile")

// instructions reads the part of the language that the Dockerfile uses.
func instructions(t *testing.T) (list []instruction) {
	t.Helper()
	text := strings.ReplaceAll(readText(t, dockerfile), "\\\n", "")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		if !slices.Contains([]string{"FROM", "WORKDIR", "COPY", "RUN", "LABEL", "USER", "EXPOSE", "ENTRYPOINT"}, name) {
			t.Errorf("an instruction these tests do not know: %s", line)
		}
		list = append(list, instruction{name, strings.TrimSpace(rest)})
	}
	return list
}

// all are the arguments of every instruction of that name.
func all(list []instruction, name string) (rest []string) {
	for _, i := range list {
		if i.name == name {
			rest = append(rest, i.rest)
		}
	}
	return rest
}

var (
	goImage = regexp.MustCompile(`^golang:(\d+\.\d+)\.(\d+)-[a-z]+ AS build$`)
	goLine  = regexp.MustCompile(`(?m)^go (\d+\.\d+)\.\d+$`)
)

// TestTheImageIsWhatItsCommentsSay holds the Dockerfile against go.mod, the files
// that are there, and the manifests.
func TestTheImageIsWhatItsCommentsSay(t *testing.T) {
	list := instructions(t)
	from := all(list, "FROM")
	if len(from) != 2 || from[1] != "gcr.io/distroless/static-debian13:nonroot" {
		t.Fatalf("stages are %q, want the build and a static base", from)
	}
	image, module := goImage.FindStringSubmatch(from[0]), goLine.FindStringSubmatch(readText(t, "go.mod"))
	if image == nil || module == nil || image[1] != module[1] {
		t.Errorf("the build runs on %q, go.mod says %q", from[0], module)
	}
	for _, sources := range all(list, "COPY") {
		words := strings.Fields(sources)
		if strings.HasPrefix(words[0], "--from=build") {
			if !strings.Contains(all(list, "RUN")[1], " -o "+words[1]+" ") {
				t.Errorf("COPY %s: the build writes another file", sources)
			}
			if want := []string{`["` + words[2] + `"]`}; !slices.Equal(all(list, "ENTRYPOINT"), want) {
				t.Errorf("ENTRYPOINT is %q, want %q", all(list, "ENTRYPOINT"), want)
			}
			continue
		}
		for _, source := range words[:len(words)-1] {
			if _, err := os.Stat(source); err != nil {
				t.Errorf("COPY %s: %v", sources, err)
			}
		}
	}
	if user := all(list, "USER"); len(user) != 1 || !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(user[0]) {
		t.Errorf("USER is %q, want numbers that are not root's", user)
	}
}

// TestTheBuildGetsWhatGitHas: what git ignores may be a secret, or large, and must
// not be sent; what it does not ignore must not be missing, or the version says
// that the source was changed.
func TestTheBuildGetsWhatGitHas(t *testing.T) {
	var want []string
	for _, pattern := range patterns(t, ".gitignore") {
		pattern = strings.TrimSuffix(pattern, "/")
		below := strings.TrimPrefix(pattern, "/")
		if !strings.Contains(pattern, "/") {
			below = "**/" + below // in any directory to git; docker's are about the root
		}
		want = append(want, below)
	}
	if diff := cmp.Diff(want, patterns(t, ".dockerignore")); diff != "" {
		t.Errorf("(-.gitignore as docker has it, +.dockerignore):\n%s", diff)
	}
	if ignored := shell(t, "git ls-files --cached --ignored --exclude-standard"); ignored != "" {
		t.Errorf("git has files that it ignores, which an image would lack:\n%s", ignored)
	}
}

// patterns are the lines of an ignore file that are no comments.
func patterns(t *testing.T, file string) (list []string) {
	t.Helper()
	for line := range strings.Lines(readText(t, file)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			list = append(list, line)
		}
	}
	return list
}

// TestTheImagesBinary runs the build as the image does, on a copy of what the build
// gets, with a .git of its own.
func TestTheImagesBinary(t *testing.T) {
	source, out := t.TempDir(), t.TempDir()
	for name := range strings.SplitSeq(strings.TrimSuffix(shell(t, "git ls-files -z --cached --others --exclude-standard"), "\x00"), "\x00") {
		copyFile(t, name, filepath.Join(source, filepath.FromSlash(name)))
	}
	shell(t, "cd "+source+" && git init -q && git add -A && git -c user.name=test -c user.email=test@example.invalid -c commit.gpgsign=false -c core.hooksPath=/dev/null commit -q -m test")
	commit := strings.TrimSpace(shell(t, "git -C "+source+" rev-parse HEAD"))

	runs := all(instructions(t), "RUN")
	build := strings.ReplaceAll(runs[len(runs)-1], " /out/", " "+out+"/")
	cmd := exec.CommandContext(t.Context(), "sh", "-c", build)
	cmd.Dir = source
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, text)
	}
	built := filepath.Join(out, "tollgate")
	if needs := dynamic(t, built); needs != "" {
		t.Errorf("the binary is not static, it needs %s", needs)
	}
	version, err := exec.CommandContext(t.Context(), built, "version").Output()
	if err != nil || !strings.Contains(string(version), "\ncommit   "+commit+"\n") {
		t.Errorf("version of a build of commit %s: %v\n%s", commit, err, version)
	}
	text, err := os.ReadFile(built)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), source) {
		t.Errorf("the binary knows that it was built in %s", source)
	}
}

// copyFile copies one file, or leaves it out if it is gone from the work tree.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	info, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, info.Mode()); err != nil {
		t.Fatal(err)
	}
}

// dynamic is what a binary needs to run, "" for nothing. Only Linux's are looked at:
// elsewhere the build makes one that no image could run, anyway.
func dynamic(t *testing.T, file string) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		return ""
	}
	binary, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	for _, part := range binary.Progs {
		if part.Type == elf.PT_INTERP {
			return "an interpreter"
		}
	}
	libraries, err := binary.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(libraries, " ")
}

var ownImage = regexp.MustCompile(`registry\.example\.internal/tollgate:[\w.]+`)

// TestOneImageIsNamedEverywhere: what is built, pushed and run has one name.
func TestOneImageIsNamedEverywhere(t *testing.T) {
	image := container(t).Image
	if !ownImage.MatchString(image) || path.Base(image) == "tollgate:latest" {
		t.Errorf("the Deployment's image is %q, want one with a version", image)
	}
	for _, file := range []string{dockerfile, filepath.Join("docs", "deploy", "README.md")} {
		found := ownImage.FindAllString(readText(t, file), -1)
		for _, name := range found {
			if name != image {
				t.Errorf("%s names the image %s, the Deployment %s", file, name, image)
			}
		}
		if len(found) == 0 {
			t.Errorf("%s does not name the image", file)
		}
	}
}
