import assert from "node:assert/strict";
import { test } from "node:test";
import "./dom.js";

const { addressOf, parseAddress } = await import(
  "../../../src/fedssca/report/live/static/address.js"
);
const { queryOf, readEvents } = await import("../../../src/fedssca/report/live/static/api.js");
const { ago } = await import("../../../src/fedssca/report/live/static/list.js");
const { addRows, insert, mostRounds } = await import(
  "../../../src/fedssca/report/live/static/run.js"
);

test("addresses hold any name", () => {
  const names = ["a/b", "<img>", "100%", ".."];
  assert.deepEqual(parseAddress(addressOf("compare", names)), ["compare", ...names]);
  assert.deepEqual(parseAddress("#/"), []);
  assert.deepEqual(parseAddress("#/run/%zz"), ["run", "%zz"]);
  assert.equal(queryOf(["a&b", "c"]), "run=a%26b&run=c");
});

test("a run that ends by itself has at most max_rounds rounds", () => {
  assert.equal(mostRounds({ "algorithm.rounds": "20", "algorithm.max_rounds": "90" }), 20);
  assert.equal(mostRounds({ "algorithm.rounds": "auto", "algorithm.max_rounds": "90" }), 90);
});

test("events are read from pieces of any size", async () => {
  const text =
    'event: run\ndata: {"name": "é"}\n\n: no news\n\nevent: rows\ndata: {"k": 1}\n\nevent: ru';
  const bytes = [...new TextEncoder().encode(text)];
  for (const size of [1, 7, 1000]) {
    const pieces = [];
    for (let k = 0; k < bytes.length; k += size) pieces.push(bytes.slice(k, k + size));
    const reader = {
      read: async () =>
        pieces.length ? { value: new Uint8Array(pieces.shift()) } : { done: true },
    };
    const events = [];
    await readEvents(reader, (kind, data) => events.push([kind, data]));
    assert.deepEqual(events, [
      ["run", { name: "é" }],
      ["rows", { k: 1 }],
    ]);
  }
});

test("rows are appended, and missing columns filled", () => {
  const series = { round: [0, 1], cost: [5, 4] };
  addRows(series, { round: [2], epsilon: [0.5] });
  assert.deepEqual(series, { round: [0, 1, 2], cost: [5, 4, null], epsilon: [null, null, 0.5] });
  const empty = {};
  addRows(empty, { round: [0] });
  assert.deepEqual(empty, { round: [0] });
});

test("runs keep the order in which they were asked for", () => {
  const runs = [];
  for (const name of ["c", "a", "b"]) insert(runs, { name }, ["a", "b", "c"]);
  assert.deepEqual(
    runs.map(({ name }) => name),
    ["a", "b", "c"],
  );
});

test("times are told as people do", () => {
  const now = 1_700_000_000;
  assert.equal(ago(0, now), "");
  assert.equal(ago(now - 5, now), "just now");
  assert.equal(ago(now - 600, now), "10 min ago");
  assert.equal(ago(now - 7200, now), "2 h ago");
  assert.match(ago(now - 90_000_000, now), /20\d\d/);
});
