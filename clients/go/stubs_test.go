package client

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	placetv1 "placet.dev/api/placet/v1"
)

func TestARequestSurvivesTheWire(t *testing.T) {
	sent, err := proto.Marshal(&placetv1.ExecuteRequest{
		Invocation: &placetv1.Invocation{Capability: "payments.refund"},
	})
	if err != nil {
		t.Fatal(err)
	}
	received := &placetv1.ExecuteRequest{}
	if err := proto.Unmarshal(sent, received); err != nil {
		t.Fatal(err)
	}
	if expected, actual := "payments.refund", received.GetInvocation().GetCapability(); expected != actual {
		t.Fatalf("expected %q, got %q", expected, actual)
	}
}

func TestTheServersValidationRulesAreNotPublished(t *testing.T) {
	imports := placetv1.File_placet_v1_runtime_service_proto.Imports()
	for i := range imports.Len() {
		if path := imports.Get(i).Path(); strings.HasPrefix(path, "buf/") {
			t.Fatalf("the stubs import %s", path)
		}
	}
}
