// A Node.js client that does as it is told: it reads calls from standard input, makes them with the generated stubs over
// a channel with default options, and writes what it saw to standard output, one JSON object a line.
// What the objects say is written in tests/conformance/program.py.
import process from "node:process";
import readline from "node:readline";

import { fromBinary, fromJson, isMessage, toBinary, toJson } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import { ApprovalService } from "@placet/api/placet/v1/approval_service_pb.js";
import { CatalogService } from "@placet/api/placet/v1/catalog_service_pb.js";
import { OperationsService } from "@placet/api/placet/v1/operations_service_pb.js";
import { PolicyService } from "@placet/api/placet/v1/policy_service_pb.js";
import { RecoveryService } from "@placet/api/placet/v1/recovery_service_pb.js";
import { RuntimeService, SubmitBatchResponseSchema } from "@placet/api/placet/v1/runtime_service_pb.js";

import { answerOf } from "./answer.js";

/** @typedef {import("@bufbuild/protobuf").DescMethod} DescMethod */
/** @typedef {import("@bufbuild/protobuf").JsonValue} JsonValue */
/** @typedef {grpc.ClientUnaryCall | grpc.ClientReadableStream<JsonValue>} Running */
/**
 * @typedef {object} Order
 * @property {number} call
 * @property {number} [cancel]
 * @property {string} [rpc]
 * @property {string} [path]
 * @property {JsonValue} [request]
 * @property {string} [raw]
 * @property {Record<string, string>} metadata
 * @property {number} seconds
 * @property {number} times
 */

/** @type {Map<string, DescMethod>} */
const methods = new Map();
for (const service of [RuntimeService, ApprovalService, CatalogService, OperationsService, PolicyService, RecoveryService]) {
  for (const method of service.methods) methods.set(method.name, method);
}

const client = new grpc.Client(process.argv[2] ?? "", grpc.credentials.createInsecure());
/** @type {Map<number, Running>} */
const running = new Map();

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  /** @type {Order} */
  const order = JSON.parse(line);
  if (order.cancel) running.get(order.cancel)?.cancel();
  else void run(order);
}).on("close", () => client.close());

/** @param {Order} order */
async function run(order) {
  const answers = [];
  for (let time = 0; time < order.times; time++) answers.push(await answer(order));
  process.stdout.write(`${JSON.stringify({ call: order.call, answers })}\n`);
}

/** @param {Order} order */
async function answer(order) {
  const metadata = new grpc.Metadata();
  for (const [name, value] of Object.entries(order.metadata)) metadata.set(name, value);
  /** @type {grpc.CallOptions} */
  const options = order.seconds ? { deadline: Date.now() + order.seconds * 1000 } : {};
  /** @type {JsonValue[]} */
  const responses = [];
  const call = start(order, metadata, options, (response) => responses.push(response));
  running.set(order.call, call);
  let headers = new grpc.Metadata();
  call.on("metadata", (received) => (headers = received));
  /** @type {grpc.StatusObject} */
  const status = await new Promise((resolve) => call.on("status", resolve));
  return answerOf(status, headers, responses);
}

/**
 * @param {Order} order
 * @param {grpc.Metadata} metadata
 * @param {grpc.CallOptions} options
 * @param {(response: JsonValue) => void} take
 * @returns {Running}
 */
function start(order, metadata, options, take) {
  const done = (/** @type {grpc.ServiceError | null} */ _, /** @type {JsonValue | undefined} */ response) => {
    if (response !== undefined) take(response);
  };
  if (order.path) {
    // Bytes, whatever they are.
    const bytes = Buffer.from(order.raw ?? "", "base64");
    const same = (/** @type {Buffer} */ value) => value;
    return client.makeUnaryRequest(order.path, same, () => null, bytes, metadata, options, done);
  }
  const method = methods.get(order.rpc ?? "");
  if (method === undefined) throw new Error(`no RPC ${order.rpc}`);
  const path = `/${method.parent.typeName}/${method.name}`;
  const serialize = (/** @type {JsonValue} */ value) => Buffer.from(toBinary(method.input, fromJson(method.input, value)));
  const deserialize = (/** @type {Buffer} */ bytes) => jsonOf(method, bytes);
  const request = order.request ?? {};
  if (method.methodKind === "unary") {
    return client.makeUnaryRequest(path, serialize, deserialize, request, metadata, options, done);
  }
  const call = client.makeServerStreamRequest(path, serialize, deserialize, request, metadata, options);
  call.on("data", take);
  // The status says it, too; without a listener it would end the program.
  call.on("error", () => undefined);
  return call;
}

/**
 * The details of a status are of types that these stubs do not have: answer.js reads those of a call, and of an item in a
 * batch code and message are told.
 *
 * @param {DescMethod} method
 * @param {Buffer} bytes
 */
function jsonOf(method, bytes) {
  const message = fromBinary(method.output, bytes);
  if (isMessage(message, SubmitBatchResponseSchema)) {
    for (const { result } of message.results) {
      if (result.case === "error") result.value.details = [];
    }
  }
  return toJson(method.output, message);
}
