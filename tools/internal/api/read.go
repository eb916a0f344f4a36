package api

import (
	"bytes"
	"context"
	"fmt"
	"go/importer"
	"go/token"
	"io"
	"os"
	"os/exec"
	"strings"
)

// Read returns the text of each package, by the pattern that names it, such as ./cq. The packages
// are those of the module at root, as they are for programs on linux/amd64: the text must not
// depend on who asks.
func Read(ctx context.Context, root string, packages []string) (map[string]string, error) {
	exports, err := exportData(ctx, root, packages)
	if err != nil {
		return nil, err
	}
	imp := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports.file[path])
	})
	texts := make(map[string]string, len(packages))
	for _, name := range packages {
		pkg, err := imp.Import(exports.path[name])
		if err != nil {
			return nil, fmt.Errorf("export data of %s: %w", name, err)
		}
		texts[name] = Text(pkg)
	}
	return texts, nil
}

// exports is where the compiler left what packages export.
type exports struct {
	file map[string]string // by import path
	path map[string]string // of the packages that were asked for
}

func exportData(ctx context.Context, root string, packages []string) (exports, error) {
	e := exports{map[string]string{}, map[string]string{}}
	out, err := goList(ctx, root, append([]string{"-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}, packages...))
	if err != nil {
		return e, err
	}
	for line := range strings.Lines(out) {
		path, file, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		e.file[path] = file
	}
	for _, name := range packages {
		e.path[name] = module + strings.TrimPrefix(name, "./")
		if e.file[e.path[name]] == "" {
			return e, fmt.Errorf("go list has no export data of %s", name)
		}
	}
	return e, nil
}

func goList(ctx context.Context, root string, args []string) (string, error) {
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", append([]string{"list"}, args...)...)
	cmd.Dir, cmd.Stderr = root, &errs
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go list %s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	return string(out), nil
}
