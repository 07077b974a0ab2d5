package lockkeeper

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const program = `package main

import (
	"context"
	"fmt"
	"lockkeeper"
)

func main() {
	ctx := context.Background()
	%s
	fmt.Println("held with token", token, err)
}
`

// The examples of the pages run as they stand there.
func TestEveryExampleRuns(t *testing.T) {
	server := startServer(t)
	client, err := filepath.Abs(".")
	must(t, err)
	for _, page := range []string{"clients/go/README.md", "docs/clients.md"} {
		text, err := os.ReadFile(filepath.Join("../..", page))
		must(t, err)
		examples := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
		if len(examples) == 0 {
			t.Fatalf("%s has no example", page)
		}
		for _, example := range examples {
			folder := t.TempDir()
			body := strings.ReplaceAll(example[1], "http://127.0.0.1:7670", server.url)
			module := "module example\n\ngo 1.19\n\nrequire lockkeeper v0.0.0\n\nreplace lockkeeper => " + client + "\n"
			must(t, os.WriteFile(filepath.Join(folder, "go.mod"), []byte(module), 0o600))
			must(t, os.WriteFile(filepath.Join(folder, "main.go"), []byte(fmt.Sprintf(program, body)), 0o600))
			command := exec.Command("go", "run", ".")
			command.Dir = folder
			output, err := command.CombinedOutput()
			if err != nil || !strings.HasPrefix(string(output), "held with token ") || !strings.HasSuffix(string(output), "<nil>\n") {
				t.Fatalf("%s: %v\n%s\n%s", page, err, example[1], output)
			}
		}
	}
}
