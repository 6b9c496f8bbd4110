// A closed loop of calls with a fresh key each. Arguments: port, calls in flight, seconds of warm-up, seconds measured,
// file with the body. Prints calls per second.
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { Agent, request } from "node:http";

const [port, level, warmup, measured] = process.argv.slice(2, 6).map(Number);
const body = readFileSync(process.argv[6]);
const agent = new Agent({ keepAlive: true, maxSockets: level });
const prefix = randomUUID();
const begin = performance.now() + warmup * 1000;
const end = begin + measured * 1000;
let number = 0;
let counted = 0;

function call() {
  return new Promise((resolve, reject) => {
    const headers = {
      "content-type": "application/json",
      "content-length": body.length,
      "idempotency-key": `${prefix}-${number++}`,
    };
    const sent = request({ host: "127.0.0.1", port, path: "/noop/run", method: "POST", agent, headers }, (answer) => {
      if (answer.statusCode !== 200) reject(new Error(`status ${answer.statusCode}`));
      answer.on("end", resolve).resume();
    });
    sent.on("error", reject).end(body);
  });
}

async function lane() {
  while (performance.now() < end) {
    await call();
    const now = performance.now();
    if (now >= begin && now < end) counted++;
  }
}

await Promise.all(Array.from({ length: level }, lane));
console.log(counted / measured);
agent.destroy();
