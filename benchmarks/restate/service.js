// A durable handler with one step, as Restate's documentation writes it. Argument: the port.
import { EventEmitter } from "node:events";

EventEmitter.defaultMaxListeners = 0;
// The SDK wants a newer Node than the oldest that is supported here.
Promise.withResolvers ??= function () {
  let resolve, reject;
  const promise = new this((a, b) => ([resolve, reject] = [a, b]));
  return { promise, resolve, reject };
};
const restate = await import("@restatedev/restate-sdk");

const noop = restate.service({
  name: "noop",
  handlers: {
    run: async (context, order) => context.run("step", async () => ({ order: order.order })),
  },
});
await restate.serve({ services: [noop], port: Number(process.argv[2]) });
