import { fileURLToPath } from "node:url";

import { fromBinary, toJson } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { OutcomeSchema } from "@placet/api/placet/v1/outcome_pb.js";

/** @typedef {import("@bufbuild/protobuf").JsonValue} JsonValue */

const google = loadSync(["google/rpc/status.proto", "google/rpc/error_details.proto"], {
  includeDirs: [fileURLToPath(new URL("../../../third_party/googleapis", import.meta.url))],
  arrays: true,
  keepCase: true,
  longs: Number,
});

/**
 * What a program sees of one call.
 *
 * @param {grpc.StatusObject} status
 * @param {grpc.Metadata} headers
 * @param {JsonValue[]} responses
 */
export function answerOf(status, headers, responses) {
  const answer = {
    code: grpc.status[status.code],
    message: status.code === grpc.status.OK ? "" : status.details,
    details: 0,
    infos: /** @type {object[]} */ ([]),
    outcomes: /** @type {JsonValue[]} */ ([]),
    retry_seconds: /** @type {number[]} */ ([]),
    violations: /** @type {string[][]} */ ([]),
    quota: /** @type {string[][]} */ ([]),
    headers: ours(headers),
    trailers: ours(status.metadata),
    responses,
  };
  for (const { type_url, value } of detailsOf(status.metadata)) {
    answer.details += 1;
    const name = type_url.slice(type_url.lastIndexOf("/") + 1);
    if (name === "placet.v1.Outcome") {
      answer.outcomes.push(toJson(OutcomeSchema, fromBinary(OutcomeSchema, value)));
    } else if (name === "google.rpc.ErrorInfo") {
      const { domain, reason, metadata } = decode(name, value);
      answer.infos.push({ domain, reason, metadata: metadata ?? {} });
    } else if (name === "google.rpc.RetryInfo") {
      const { seconds, nanos } = decode(name, value).retry_delay;
      answer.retry_seconds.push((seconds ?? 0) + (nanos ?? 0) / 1e9);
    } else if (name === "google.rpc.BadRequest") {
      for (const { field, description, reason } of decode(name, value).field_violations) {
        answer.violations.push([field ?? "", description ?? "", reason ?? ""]);
      }
    } else if (name === "google.rpc.QuotaFailure") {
      for (const { subject, description } of decode(name, value).violations) {
        answer.quota.push([subject ?? "", description ?? ""]);
      }
    }
  }
  return answer;
}

/**
 * The details of google.rpc.Status. Bytes that are none have none: gRPC itself looks no further than code and message.
 *
 * @param {grpc.Metadata} trailers
 * @returns {{ type_url: string; value: Buffer }[]}
 */
function detailsOf(trailers) {
  const [bytes] = trailers.get("grpc-status-details-bin");
  if (!(bytes instanceof Buffer)) return [];
  try {
    return decode("google.rpc.Status", bytes).details;
  } catch {
    return [];
  }
}

/**
 * @param {string} name
 * @param {Buffer} bytes
 * @returns {any}
 */
function decode(name, bytes) {
  const definition = google[name];
  if (definition === undefined || !("deserialize" in definition)) throw new Error(`${name} is no message`);
  const { deserialize } = /** @type {import("@grpc/proto-loader").MessageTypeDefinition<object, object>} */ (definition);
  return deserialize(bytes);
}

/** @param {grpc.Metadata} metadata */
function ours(metadata) {
  /** @type {Record<string, string>} */
  const kept = {};
  for (const name of Object.keys(metadata.getMap())) {
    if (name.startsWith("placet-") || name === "grpc-retry-pushback-ms") kept[name] = metadata.get(name).join(",");
  }
  return kept;
}
