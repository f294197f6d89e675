import assert from "node:assert/strict";
import { test } from "node:test";
import { makeRun, PALETTE } from "./dom.js";

const { comparisonOf, limitRows } = await import(
  "../../../src/fedssca/report/static/comparison.js"
);
const { detailsOf } = await import("../../../src/fedssca/report/static/details.js");
const { el } = await import("../../../src/fedssca/report/static/dom.js");
const { estimate, reach, relaxed } = await import("../../../src/fedssca/report/static/price.js");
const { verdict } = await import("../../../src/fedssca/report/static/state.js");
const { sitesSection } = await import("../../../src/fedssca/report/static/sites.js");
const { compare } = await import("../../../src/fedssca/report/static/sorting.js");
const { differing, lastOf, runsTable } = await import(
  "../../../src/fedssca/report/static/tables.js"
);
const { startTheme } = await import("../../../src/fedssca/report/static/theme.js");

startTheme(PALETTE);

test("text stays text, and null is left out", () => {
  const node = el("p", { title: null, hidden: true }, "<b>", null, ["x", undefined]);
  assert.deepEqual(node.children, ["<b>", "x"]);
  assert.deepEqual(node.attributes, { hidden: "" });
});

test("settings that differ are found with the most frequent value", () => {
  const settings = [
    { a: "1", b: "x" },
    { a: "1", b: "y" },
    { a: "1", b: "x", c: "2" },
  ];
  assert.deepEqual(differing(settings.map((each) => ({ settings: each }))), [
    { key: "b", usual: "x", repeated: true },
    { key: "c", usual: null, repeated: true },
  ]);
  const limits = ["0.1", "0.2"].map((limit) => ({ settings: { limit } }));
  assert.equal(differing(limits)[0].repeated, false);
});

test("cells are ordered by number, then by text, unknown ones last", () => {
  assert.deepEqual([10, null, 9].sort(compare), [9, 10, null]);
  assert.deepEqual(["run 10", "run 9", null].sort(compare), ["run 9", "run 10", null]);
});

test("the result counts before the last row", () => {
  assert.equal(lastOf(makeRun("a"), "train_cost"), 0.2);
  assert.equal(lastOf(makeRun("a", { result: { train_cost: 0.1 } }), "train_cost"), 0.1);
  assert.equal(lastOf(makeRun("a"), "nothing"), null);
});

test("a verdict comes from the certificate, before the end from the last row", () => {
  assert.equal(verdict(makeRun("a")).textContent, "○ 1 of 1 so far");
  assert.equal(verdict(makeRun("a", { more_constraints: 3 })).textContent, "–");
  const constraints = [{ feasible: true }, { feasible: false }];
  const broken = makeRun("a", { result: { certificate: { constraints } } });
  assert.equal(verdict(broken).textContent, "✗ 1 of 2");
  const limits = [{ status: "kept" }, { status: "held-out" }, { status: "part" }];
  const half = makeRun("a", { result: { certificate: { constraints, limits } } });
  assert.equal(verdict(half).textContent, "! 2 of 2");
  assert.equal(verdict(half).attributes.class, "warn");
  const free = makeRun("a", { result: { certificate: { constraints: [] } } });
  assert.equal(verdict(free).textContent, "no limits");
});

test("the table has a row per run and marks unusual settings", () => {
  const runs = ["a", "b", "c"].map((name) => makeRun(name));
  runs[2].settings = { "algorithm.batch": "20" };
  const { node } = runsTable(runs);
  const rows = node.all("tbody")[0].all("tr");
  assert.equal(rows.length, 3);
  assert.deepEqual(
    rows.map((row) => row.all("td", "differs").map((cell) => cell.textContent)),
    [[], [], ["20"]],
  );
  assert.match(node.textContent, /1 setting differs/);
});

test("both sides of a limit are one row, with the interval of held-out rows", () => {
  const limit = {
    ...{ name: "parity_sex", title: "parity", status: "held-out", low: -0.05, high: 0.05 },
    ...{ value: 0.04, test_value: -0.1, margin: 0.01, multiplier: null },
    ...{ test_interval: [-0.2, 0.01], interval_kind: "Clopper-Pearson" },
    ...{
      test_counts: [
        [12, 60],
        [9, 83],
      ],
      note: "parity is broken",
    },
  };
  const certificate = { feasible: true, kkt_residual: 0.1, constraints: [{}, {}], limits: [limit] };
  const result = { certificate, notes: ["parity is broken", "another note"] };
  const details = detailsOf(makeRun("a", { result }));
  assert.match(
    details.textContent,
    /parity! broken on held-out rows±0\.050\.04-0\.1-0\.2 to 0\.01 · 12 of 60, 9 of 830\.01withheld/,
  );
  assert.deepEqual(
    details.all("li", "warn").map((line) => line.textContent),
    ["parity is broken"],
  );
});

test("every client and every group has its results", () => {
  const entry = (rows, accuracy) => ({ rows, train: { cost: 0.5, accuracy } });
  const per_group = [{ column: "sex", group: "1", ...entry(5, 0.25), test: { accuracy: 1 } }];
  const result = { per_client: [entry(10, 0.5), entry(20, 0.75)], per_group };
  const run = makeRun("a", { result });
  const text = detailsOf(run).textContent;
  assert.match(
    sitesSection(run).textContent,
    /clientrowslossaccuracyclient 0100\.550%client 1200\.575%/,
  );
  assert.match(text, /sexrowslossaccuracyaccuracy, held out150\.525%100%/);
  const hidden = { per_client: [], per_client_hidden: "hidden by the secure sum" };
  assert.match(
    sitesSection(makeRun("a", { result: hidden })).textContent,
    /hidden by the secure sum/,
  );
});

test("details show the certificate, notes and nested facts", () => {
  const entry = { name: "loss", feasible: true, value: 0.29, limit: 0.3, margin: 0.01 };
  const certificate = { feasible: true, kkt_residual: 0.1, constraints: [entry] };
  const run = makeRun("a", {
    result: { certificate, notes: ["a note"] },
    audit: { attack: { advantage: 0.01, list: [1, 2] }, none: null },
  });
  const text = detailsOf(run).textContent;
  assert.match(text, /a note/);
  assert.match(text, /all limits kept on training rows/);
  assert.match(text, /loss○ kept, not checked on held-out rows≤ 0\.30\.29–0\.01/);
  assert.match(text, /attackadvantage0\.01list1, 2nonenull/);
});

test("what is promised for new rows stands beside its limit", () => {
  const entry = (certified, high) => ({
    ...{ title: "fnr", low: null, high: 0.1, value: 0.02, feasible: true, multiplier: 0 },
    status: certified ? "certified" : "kept",
    promise: { low: null, high, certified, confidence: 0.95 },
  });
  const text = (certified, high, certify) => {
    const promised = { certified, confidence: 0.95, certify };
    const certificate = { constraints: [{}], limits: [entry(certified, high)], ...promised };
    return detailsOf(makeRun("a", { result: { certificate } })).textContent;
  };
  const sure = text(true, 0.1, "each_site");
  assert.match(sure, /✓ all limits certified for new rows/);
  assert.match(sure, /fnr✓ certified for new rows≤ 0\.10\.02–≤ 0\.195 % confidence/);
  assert.match(sure, /the limits hold on new rows of every client, with 95 % confidence/);
  const unsure = text(false, 0.2, "pooled");
  assert.match(unsure, /fnr✓ kept≤ 0\.10\.02–≤ 0\.2 alone/);
  assert.match(unsure, /! not certified for new rows at 95 % confidence/);
});

test("the price of a limit is the slope of its multiplier", () => {
  const upper = { title: "fnr", low: null, high: 0.2, multiplier: 5 };
  assert.deepEqual(relaxed(upper, 0.05), { low: null, high: 0.25 });
  assert.deepEqual(relaxed({ low: -0.1, high: 0.1 }, 0.1), { low: -0.2, high: 0.2 });
  assert.equal(estimate(3, upper, 0.1), 2.5);
  assert.equal(reach(upper), 0.05);
  assert.equal(reach({ low: null, high: 0 }), 0.05);
  const certificate = { constraints: [{}], limits: [{ ...upper, status: "kept", value: 0.2 }] };
  const details = detailsOf(makeRun("a", { result: { certificate, objective: 3 } }));
  const [slider] = details.all("section", "pricing")[0].all("input");
  slider.value = "100";
  slider.listeners.input();
  assert.match(
    details.textContent,
    /With ≤ 0\.25 instead of ≤ 0\.2, the objective would be about 2\.75 instead of 3, -8\.3 %/,
  );
});

test("a limit without a price has no slider", () => {
  const limit = { title: "fnr", low: null, high: 0.2, multiplier: null, status: "kept" };
  const certificate = { constraints: [{}], limits: [limit] };
  const details = detailsOf(makeRun("a", { result: { certificate, objective: 3 } }));
  assert.equal(details.all("section", "pricing").length, 0);
});

test("any number of limits are compared, the tightest first", () => {
  const limit = (k, margin) => ({
    ...{ name: `loss_${k}`, title: `client ${k}`, low: null, high: 1, value: 1 - margin, margin },
    status: margin < 0 ? "broken" : "kept",
  });
  const withLimits = (name, margins) =>
    makeRun(name, {
      result: { certificate: { constraints: [], limits: margins.map((m, k) => limit(k, m)) } },
    });
  const many = Array.from({ length: 30 }, (_, k) => 0.5 - k / 100);
  const runs = [withLimits("a", many), withLimits("b", [0.1, -0.2])];
  const rows = limitRows(runs);
  assert.equal(rows.length, 30);
  assert.deepEqual([rows[0].title, rows[1].title], ["client 1", "client 0"]);
  assert.equal(rows[5].entries[1], null);
  const section = comparisonOf(runs);
  assert.match(section.textContent, /All 30 limits/);
  assert.equal(section.all("tbody")[0].all("tr").length, 30);
  assert.equal(comparisonOf([runs[0]]), null);
});
