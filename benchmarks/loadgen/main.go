// Command loadgen makes closed-loop unary gRPC calls over cleartext HTTP/2 and says how long they took.
//
// It exists because h2load sends the same body every time, while each call to Placet needs an idempotency key of its
// own. It writes a fresh key into the body of every call, reads each call's grpc-status, and at the end waits for all
// open calls, so that calls made and rows found can be compared.
//
// On standard output it says `connected`; on standard input `go` starts the load and `again` makes it connect anew.
// During the load it says `begin` and `end` where the measured time does, and at last one JSON document.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/http2/hpack"
)

const (
	keyDigits   = "0123456789abcdef"
	prefixBytes = 5
)

type load struct {
	target     string
	fields     []hpack.HeaderField
	body       []byte
	keyOffsets []int // where the 16 changing characters of each key begin
	base       time.Time
	warmup     int64
	end        int64
}

type report struct {
	Calls          int            `json:"calls"`   // ended within the measured time
	Seconds        float64        `json:"seconds"` // the measured time
	P50Ms          float64        `json:"p50_ms"`
	P99Ms          float64        `json:"p99_ms"`
	Statuses       map[string]int `json:"statuses"` // of all calls, warm-up included
	CPUSeconds     float64        `json:"cpu_seconds"`
	CallsPerSecond float64        `json:"calls_per_second"`
}

func main() {
	target := flag.String("target", "", "host:port")
	path := flag.String("path", "", "/package.Service/Method")
	body := flag.String("body", "", "file with the request message")
	keyOffsets := flag.String("key-offsets", "", "where 16 bytes of the message change with each call, separated by commas")
	authorization := flag.String("authorization-file", "", "file with the value of the authorization header")
	connections := flag.Int("connections", 8, "connections")
	calls := flag.Int("calls", 64, "calls in flight")
	warmup := flag.Duration("warmup", time.Second, "time before the measured time")
	measured := flag.Duration("measured", 2*time.Second, "the measured time")
	flag.Parse()

	// One thread and no collector: what is measured is the server, on the same machine.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(1 << 30)

	message := read(*body)
	l := &load{target: *target, body: framed(message), fields: fields(*target, *path)}
	for _, text := range strings.FieldsFunc(*keyOffsets, func(r rune) bool { return r == ',' }) {
		offset, err := strconv.Atoi(text)
		must(err)
		l.keyOffsets = append(l.keyOffsets, offset+prefixBytes)
	}
	if *authorization != "" {
		value := strings.TrimSpace(string(read(*authorization)))
		l.fields = append(l.fields, hpack.HeaderField{Name: "authorization", Value: value})
	}
	opened := l.connect(*connections)
	l.base = time.Now()
	l.warmup, l.end = int64(*warmup), int64(*warmup+*measured)
	l.run(opened, *calls)
	must(json.NewEncoder(os.Stdout).Encode(l.report(opened, *measured)))
}

func (l *load) now() int64 { return int64(time.Since(l.base)) }

// connect opens the connections, and opens them anew as often as it is told to: where several processes share a
// port, whoever drives us may want another distribution.
func (l *load) connect(count int) []*connection {
	input := bufio.NewScanner(os.Stdin)
	for {
		opened := make([]*connection, count)
		for number := range opened {
			c, err := connect(l, number)
			must(err)
			opened[number] = c
		}
		fmt.Println("connected")
		if !input.Scan() {
			must(fmt.Errorf("standard input ended: no `go`"))
		}
		if input.Text() == "go" {
			return opened
		}
		for _, c := range opened {
			c.socket.Close()
		}
	}
}

func (l *load) run(opened []*connection, calls int) {
	told := make(chan struct{})
	go func() {
		defer close(told)
		time.Sleep(time.Duration(l.warmup - l.now()))
		fmt.Println("begin")
		time.Sleep(time.Duration(l.end - l.now()))
		fmt.Println("end")
	}()
	done := make(chan error)
	for number, c := range opened {
		depth := calls / len(opened)
		if number < calls%len(opened) {
			depth++
		}
		go func() { done <- c.run(depth) }()
	}
	for range opened {
		must(<-done)
	}
	// The last call may end as soon as the time does.
	<-told
}

// writeKeys makes the keys unique among the calls of this load; whoever drives us makes them unique among loads, and
// those of one message among each other.
func (l *load) writeKeys(body []byte, connection int, call uint32) {
	for _, offset := range l.keyOffsets {
		number := uint64(connection)<<32 | uint64(call)
		for at := offset + 15; at >= offset; at-- {
			body[at] = keyDigits[number&15]
			number >>= 4
		}
	}
}

func (l *load) report(opened []*connection, measured time.Duration) report {
	var latencies []int64
	statuses := map[string]int{}
	for _, c := range opened {
		latencies = append(latencies, c.latencies...)
		for status, count := range c.ended {
			statuses[status] += count
		}
	}
	slices.Sort(latencies)
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return report{
		Calls: len(latencies), Seconds: measured.Seconds(), Statuses: statuses,
		CallsPerSecond: float64(len(latencies)) / measured.Seconds(),
		P50Ms:          quantile(latencies, 0.50), P99Ms: quantile(latencies, 0.99),
		CPUSeconds: float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9,
	}
}

func quantile(sorted []int64, part float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[int(part*float64(len(sorted)-1))]) / 1e6
}

func fields(target, path string) []hpack.HeaderField {
	return []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: path},
		{Name: ":authority", Value: target},
		{Name: "te", Value: "trailers"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "user-agent", Value: "placet-loadgen"},
		{Name: "grpc-timeout", Value: "30S"},
	}
}

// framed is the message with gRPC's prefix: not compressed, four bytes of length.
func framed(message []byte) []byte {
	length := len(message)
	return append([]byte{0, byte(length >> 24), byte(length >> 16), byte(length >> 8), byte(length)}, message...)
}

func read(path string) []byte {
	content, err := os.ReadFile(path)
	must(err)
	return content
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "loadgen:", err)
		os.Exit(1)
	}
}
