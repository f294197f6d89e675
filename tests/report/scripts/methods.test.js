// Methods on problems: which training stands for a cell, what is best, and what limits cost.

import assert from "node:assert/strict";
import { test } from "node:test";
import "./dom.js";

const { grouped, summaryOf } = await import("../../../src/fedssca/report/static/methods.js");
const { methodsCard } = await import("../../../src/fedssca/report/static/matrix.js");

function training(method, objective, more = {}) {
  return {
    ...{
      problem: "p",
      without: "free",
      title: "loans",
      limited: true,
      method,
      run: `run-${method}`,
    },
    ...{ state: "kept", over: 0, objective, price: 0.5, seconds: 2, bytes: 100, ...more },
  };
}

test("the lowest objective that keeps the limits is best, and the gap of others is against it", () => {
  const { methods, problems } = grouped([
    training("penalty", 3, { state: "broken", over: 0.2 }),
    training("penalty", 1, { state: "broken", over: 0.1 }),
    training("ssca", 5),
    training("ssca", 4),
    training("switching", 5),
  ]);
  assert.deepEqual(methods, ["ssca", "penalty", "switching"]);
  const [{ best, cells }] = problems;
  assert.equal(best, 4);
  assert.equal(cells.get("ssca").gap, 0);
  assert.equal(cells.get("ssca").count, 2);
  assert.equal(cells.get("switching").gap, 0.25);
  assert.equal(cells.get("penalty").gap, null);
  assert.equal(cells.get("penalty").shown.over, 0.1);
  assert.equal(cells.get("penalty").kept, 0);
});

test("a known best value counts, with the unit of a problem whose best value is 0", () => {
  const known = { best: 0, unit: 2 };
  const [{ best, cells }] = grouped([training("ssca", 1, known)]).problems;
  assert.equal(best, 0);
  assert.equal(cells.get("ssca").gap, 0.5);
});

test("the cost of limits is against the same problem without them", () => {
  const free = training("ssca", 2, { problem: "q", limited: false });
  const { problems } = grouped([training("ssca", 2.5), free]);
  const limited = problems.find(({ key }) => key === "p");
  assert.equal(limited.cells.get("ssca").cost, 0.25);
  assert.equal(problems.find(({ key }) => key === "q").cells.get("ssca").cost, null);
});

test("a method is summed up over its problems; those that are not finished are left out", () => {
  const { problems } = grouped([
    training("ssca", 1),
    training("ssca", 2.2, { problem: "q", title: "q" }),
    training("penalty", 2, { problem: "q", title: "q" }),
    training("ssca", null, { problem: "r", title: "r", state: "unfinished" }),
    training("penalty", null, { problem: "r", title: "r", state: "failed" }),
  ]);
  const { tried, kept, best, gap } = summaryOf(problems, "ssca");
  assert.deepEqual([tried, kept, best], [2, 2, 1]);
  assert.ok(Math.abs(gap - 0.05) < 1e-9);
  assert.equal(summaryOf(problems, "penalty").kept, 1);
});

test("the card shows problems with several methods, and opens the runs of a cell", () => {
  assert.equal(methodsCard([training("ssca", 1), training("ssca", 2)]), null);
  const opened = [];
  const trainings = [
    training("ssca", 1),
    training("penalty", 3, { state: "broken", over: 0.1, run: null }),
    training("ssca", 1, { problem: "alone", title: "alone" }),
  ];
  const node = methodsCard(trainings, (names) => opened.push(...names));
  assert.match(node.textContent, /✓ keeps the limits, bestobjective 1/);
  assert.match(node.textContent, /✗ over by 0\.1/);
  assert.match(node.textContent, /also 1 with a single method/);
  assert.equal(node.all("tbody")[0].all("tr").length, 1);
  const [button] = node.all("button", "open");
  button.listeners.click();
  assert.deepEqual(opened, ["run-ssca"]);
});
