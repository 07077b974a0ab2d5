package lockkeeper

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func binary() string {
	if path := os.Getenv("LOCKKEEPER_BINARY"); path != "" {
		return path
	}
	return "../../target/debug/lockkeeper"
}

// server is a real server of its own on a free port.
type server struct {
	t       *testing.T
	process *exec.Cmd
	url     string
}

func startServer(t *testing.T, options ...string) *server {
	t.Helper()
	return startServerAt(t, "127.0.0.1:0", options...)
}

func startServerAt(t *testing.T, listen string, options ...string) *server {
	t.Helper()
	words := append([]string{"serve", "--listen", listen, "--engine", "memory:"}, options...)
	s := &server{t: t, process: exec.Command(binary(), words...)}
	s.process.Stderr = os.Stderr
	output, err := s.process.StdoutPipe()
	must(t, err)
	must(t, s.process.Start())
	t.Cleanup(s.kill)
	line, err := bufio.NewReader(output).ReadString('\n')
	must(t, err)
	s.url = strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
	return s
}

type claim struct {
	ID    string `json:"id"`
	Token uint64 `json:"token"`
}

// claims of a lock, in order.
func (s *server) claims(name string) []claim {
	s.t.Helper()
	response, err := http.Get(s.url + "/v1/locks/" + name)
	must(s.t, err)
	defer response.Body.Close()
	var lock struct {
		Claims []claim `json:"claims"`
	}
	must(s.t, json.NewDecoder(response.Body).Decode(&lock))
	return lock.Claims
}

func (s *server) waitForClaims(name string, count int) {
	s.t.Helper()
	until(s.t, func() bool { return len(s.claims(name)) == count })
}

// ask is a request for a hold that no client knows of.
func (s *server) ask(session, name string) {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{"session": session, "names": []string{name}})
	must(s.t, err)
	response, err := http.Post(s.url+"/v1/holds", "application/json", bytes.NewReader(body))
	must(s.t, err)
	response.Body.Close()
	check(s.t, response.StatusCode == 201, "it is granted")
}

func (s *server) evict(name string) {
	s.t.Helper()
	request, err := http.NewRequest("DELETE", s.url+"/v1/locks/"+name+"/claims/"+s.claims(name)[0].ID, nil)
	must(s.t, err)
	response, err := http.DefaultClient.Do(request)
	must(s.t, err)
	response.Body.Close()
}

func (s *server) pause() { must(s.t, s.process.Process.Signal(syscall.SIGSTOP)) }
func (s *server) goOn()  { must(s.t, s.process.Process.Signal(syscall.SIGCONT)) }

func (s *server) kill() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func check(t *testing.T, condition bool, what string) {
	t.Helper()
	if !condition {
		t.Fatal(what)
	}
}

// until waits for something that no message tells of.
func until(t *testing.T, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !condition(); time.Sleep(10 * time.Millisecond) {
		check(t, time.Now().Before(end), "it did not happen")
	}
}

// lostWithin says whether the signal fires in this time.
func lostWithin(hold *Hold, limit time.Duration) bool {
	select {
	case <-hold.Lost():
		return true
	case <-time.After(limit):
		return false
	}
}

const page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 20\r\nConnection: close\r\n\r\n<html>Sign in</html>"

// refusal is a reply as the server's to what it refuses.
func refusal(status int, code string) string {
	body := fmt.Sprintf(`{"status":%d,"code":"%s","detail":"%s"}`, status, code, code)
	head := "HTTP/1.1 %d Refused\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
	return fmt.Sprintf(head, status, len(body), body)
}

// proxy forwards connections to a server, until it is told otherwise.
type proxy struct {
	url string

	mutex  sync.Mutex
	frozen chan struct{}
	// Replies to requests that begin with this text are lost with their connection, this many times,
	loses  string
	losses int
	lost   int
	// or something else comes in their place,
	replaces     string
	replacements int
	replacement  string
	replaced     int
	// or come late.
	delays string
	delay  time.Duration
}

func startProxy(t *testing.T, s *server) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{url: "http://" + listener.Addr().String()}
	t.Cleanup(func() { listener.Close(); p.thaw() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
			if err != nil {
				client.Close()
				continue
			}
			asked := make(chan []byte, 64)
			go p.pump(client, server, func(data []byte) bool {
				if bytes.Contains(data, []byte(" HTTP/1.1\r\n")) {
					asked <- append([]byte{}, data...)
				}
				return true
			})
			var last []byte
			go p.pump(server, client, func([]byte) bool {
				for more := true; more; {
					select {
					case last = <-asked:
					default:
						more = false
					}
				}
				return p.replies(last, client)
			})
		}
	}()
	return p
}

func (p *proxy) set(change func()) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	change()
}

// freeze keeps back all data, in both directions, and keeps the connections open.
func (p *proxy) freeze() { p.set(func() { p.frozen = make(chan struct{}) }) }

func (p *proxy) thaw() {
	p.set(func() {
		if p.frozen != nil {
			close(p.frozen)
			p.frozen = nil
		}
	})
}

func (p *proxy) losesNow(text string, times int) { p.set(func() { p.loses, p.losses = text, times }) }

func (p *proxy) lostCount() (count int) {
	p.set(func() { count = p.lost })
	return count
}

func (p *proxy) replacesNow(text string, times int, by string) {
	p.set(func() { p.replaces, p.replacements, p.replacement = text, times, by })
}

func (p *proxy) replacedCount() (count int) {
	p.set(func() { count = p.replaced })
	return count
}

// replies says whether the reply to this request passes.
func (p *proxy) replies(asked []byte, client net.Conn) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.losses > 0 && bytes.HasPrefix(asked, []byte(p.loses)) {
		p.losses--
		p.lost++
		return false
	}
	if p.replacements > 0 && bytes.HasPrefix(asked, []byte(p.replaces)) {
		p.replacements--
		p.replaced++
		_, _ = client.Write([]byte(p.replacement))
		return false
	}
	if p.delays != "" && bytes.HasPrefix(asked, []byte(p.delays)) {
		delay := p.delay
		p.mutex.Unlock()
		time.Sleep(delay)
		p.mutex.Lock()
	}
	return true
}

func (p *proxy) pump(source, target net.Conn, passes func([]byte) bool) {
	defer source.Close()
	defer target.Close()
	buffer := make([]byte, 65536)
	for {
		count, err := source.Read(buffer)
		var frozen chan struct{}
		p.set(func() { frozen = p.frozen })
		if frozen != nil {
			<-frozen
		}
		if count > 0 && !passes(buffer[:count]) {
			return
		}
		if _, failed := io.Copy(target, bytes.NewReader(buffer[:count])); err != nil || failed != nil {
			return
		}
	}
}
