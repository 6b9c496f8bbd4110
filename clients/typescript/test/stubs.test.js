import assert from "node:assert/strict";
import test from "node:test";

import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { ErrorReason } from "@placet/api/placet/v1/error_reason_pb.js";
import { ExecuteRequestSchema, RuntimeService } from "@placet/api/placet/v1/runtime_service_pb.js";

test("a request survives the wire", () => {
  const request = create(ExecuteRequestSchema, { invocation: { capability: "payments.refund" } });
  const received = fromBinary(ExecuteRequestSchema, toBinary(ExecuteRequestSchema, request));
  assert.equal("payments.refund", received.invocation?.capability);
});

test("the service is described by its full name", () => {
  assert.equal("placet.v1.RuntimeService", RuntimeService.typeName);
  assert.equal(0, ErrorReason.UNSPECIFIED);
});

test("the server's validation rules are not published", () => {
  const imports = RuntimeService.file.dependencies.map((file) => file.name);
  assert.ok(!imports.some((name) => name.startsWith("buf/")), imports.join(", "));
});
