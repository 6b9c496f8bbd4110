// Command conformance is a Go client that does as it is told: it reads calls from standard input, makes them with the
// generated stubs over a channel with default options, and writes what it saw to standard output, one JSON object a line.
// What the objects say is written in tests/conformance/program.py.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	placetv1 "placet.dev/api/placet/v1"
)

// A line may hold a request of some size.
const lineBytesMax = 64 << 20

type order struct {
	Call     int               `json:"call"`
	Cancel   int               `json:"cancel"`
	RPC      string            `json:"rpc"`
	Path     string            `json:"path"`
	Request  json.RawMessage   `json:"request"`
	Raw      string            `json:"raw"`
	Metadata map[string]string `json:"metadata"`
	Seconds  float64           `json:"seconds"`
	Times    int               `json:"times"`
}

type report struct {
	Call    int      `json:"call"`
	Answers []answer `json:"answers"`
}

// method makes one call and passes every response on.
type method func(ctx context.Context, o order, take func(proto.Message), opts ...grpc.CallOption) error

func main() {
	connection, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	desk := &desk{methods: methods(connection), connection: connection, running: map[int]context.CancelFunc{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, lineBytesMax)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			log.Fatal(err)
		}
		desk.take(o)
	}
}

// desk runs the calls that were ordered, each in a goroutine of its own.
type desk struct {
	methods    map[string]method
	connection *grpc.ClientConn
	lock       sync.Mutex
	running    map[int]context.CancelFunc
}

func (d *desk) take(o order) {
	d.lock.Lock()
	defer d.lock.Unlock()
	if o.Cancel != 0 {
		d.running[o.Cancel]()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.running[o.Call] = cancel
	go d.run(ctx, o)
}

func (d *desk) run(ctx context.Context, o order) {
	told := report{Call: o.Call}
	for range o.Times {
		told.Answers = append(told.Answers, d.answer(ctx, o))
	}
	line, err := json.Marshal(told)
	if err != nil {
		log.Fatal(err)
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	d.running[o.Call]()
	os.Stdout.Write(append(line, '\n'))
}

func (d *desk) answer(ctx context.Context, o order) answer {
	for name, value := range o.Metadata {
		ctx = metadata.AppendToOutgoingContext(ctx, name, value)
	}
	if o.Seconds > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(o.Seconds*float64(time.Second)))
		defer cancel()
	}
	var headers, trailers metadata.MD
	responses := []json.RawMessage{}
	take := func(response proto.Message) { responses = append(responses, jsonOf(response)) }
	called := d.methods[o.RPC]
	if o.Path != "" {
		called = raw(d.connection)
	}
	err := called(ctx, o, take, grpc.Header(&headers), grpc.Trailer(&trailers))
	return answerOf(err, headers, trailers, responses)
}

func methods(connection *grpc.ClientConn) map[string]method {
	runtime := placetv1.NewRuntimeServiceClient(connection)
	approvals := placetv1.NewApprovalServiceClient(connection)
	catalog := placetv1.NewCatalogServiceClient(connection)
	operations := placetv1.NewOperationsServiceClient(connection)
	policy := placetv1.NewPolicyServiceClient(connection)
	recovery := placetv1.NewRecoveryServiceClient(connection)
	return map[string]method{
		"Execute":            unary(runtime.Execute),
		"ExecuteStream":      stream(runtime.ExecuteStream),
		"Submit":             unary(runtime.Submit),
		"SubmitBatch":        unary(runtime.SubmitBatch),
		"GetAction":          unary(runtime.GetAction),
		"ListActions":        unary(runtime.ListActions),
		"WaitAction":         unary(runtime.WaitAction),
		"WatchAction":        stream(runtime.WatchAction),
		"ResumeAction":       unary(runtime.ResumeAction),
		"ResumeActionStream": stream(runtime.ResumeActionStream),
		"WatchEvents":        stream(runtime.WatchEvents),
		"CancelAction":       unary(runtime.CancelAction),
		"CancelActions":      unary(runtime.CancelActions),
		"GetCaller":          unary(runtime.GetCaller),
		"GetApproval":        unary(approvals.GetApproval),
		"ListApprovals":      unary(approvals.ListApprovals),
		"DecideApproval":     unary(approvals.DecideApproval),
		"RevokeDecision":     unary(approvals.RevokeDecision),
		"ProvideInput":       unary(approvals.ProvideInput),
		"ClaimApproval":      unary(approvals.ClaimApproval),
		"ReleaseApproval":    unary(approvals.ReleaseApproval),
		"WatchApprovals":     stream(approvals.WatchApprovals),
		"AdmitManifest":      unary(catalog.AdmitManifest),
		"WithdrawCapability": unary(catalog.WithdrawCapability),
		"GetCapability":      unary(catalog.GetCapability),
		"ListQueues":         unary(operations.ListQueues),
		"ListServers":        unary(operations.ListServers),
		"ListDeliveries":     unary(operations.ListDeliveries),
		"GetDelivery":        unary(operations.GetDelivery),
		"RedeliverCallback":  unary(operations.RedeliverCallback),
		"PauseQueue":         unary(operations.PauseQueue),
		"ResumeQueue":        unary(operations.ResumeQueue),
		"ValidatePolicySet":  unary(policy.ValidatePolicySet),
		"AdmitPolicySet":     unary(policy.AdmitPolicySet),
		"RollBackPolicySet":  unary(policy.RollBackPolicySet),
		"GetPolicySet":       unary(policy.GetPolicySet),
		"ListPolicySets":     unary(policy.ListPolicySets),
		"DryRunPolicySet":    unary(policy.DryRunPolicySet),
		"ExplainDecision":    unary(policy.ExplainDecision),
		"ListDeadLetters":    unary(recovery.ListDeadLetters),
		"Redrive":            unary(recovery.Redrive),
		"ListAmbiguous":      unary(recovery.ListAmbiguous),
		"ResolveAmbiguous":   unary(recovery.ResolveAmbiguous),
		"Reconcile":          unary(recovery.Reconcile),
		"Recover":            unary(recovery.Recover),
		"GetReport":          unary(recovery.GetReport),
		"ListReports":        unary(recovery.ListReports),
	}
}

func unary[Request, Response any, R message[Request], S message[Response]](
	call func(context.Context, R, ...grpc.CallOption) (S, error),
) method {
	return func(ctx context.Context, o order, take func(proto.Message), opts ...grpc.CallOption) error {
		response, err := call(ctx, request[Request, R](o), opts...)
		if err == nil {
			take(response)
		}
		return err
	}
}

func stream[Request, Response any, R message[Request]](
	call func(context.Context, R, ...grpc.CallOption) (grpc.ServerStreamingClient[Response], error),
) method {
	return func(ctx context.Context, o order, take func(proto.Message), opts ...grpc.CallOption) error {
		responses, err := call(ctx, request[Request, R](o), opts...)
		for err == nil {
			var response *Response
			if response, err = responses.Recv(); err == nil {
				take(any(response).(proto.Message))
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
}

// raw sends bytes to a path, whatever they are.
func raw(connection *grpc.ClientConn) method {
	return func(ctx context.Context, o order, _ func(proto.Message), opts ...grpc.CallOption) error {
		sent, err := base64.StdEncoding.DecodeString(o.Raw)
		if err != nil {
			log.Fatal(err)
		}
		var received []byte
		return connection.Invoke(ctx, o.Path, &sent, &received, append(opts, grpc.ForceCodec(bytesCodec{}))...)
	}
}

type message[Message any] interface {
	proto.Message
	*Message
}

func request[Message any, M message[Message]](o order) M {
	made := M(new(Message))
	if err := protojson.Unmarshal(o.Request, made); err != nil {
		log.Fatal(err)
	}
	return made
}

func jsonOf(message proto.Message) json.RawMessage {
	text, err := protojson.Marshal(message)
	if err != nil {
		log.Fatal(err)
	}
	return text
}

type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(value any) ([]byte, error) { return *value.(*[]byte), nil }

func (bytesCodec) Unmarshal(data []byte, value any) error {
	*value.(*[]byte) = append([]byte(nil), data...)
	return nil
}
