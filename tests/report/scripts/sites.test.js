// The sites of a run: whose limits are whose, and how sites answered.

import assert from "node:assert/strict";
import { test } from "node:test";
import { makeRun } from "./dom.js";

const { clientOf } = await import("../../../src/fedssca/report/static/breakdown.js");
const { answerStrip, hasSites, quantityPanels, sitesSection, summaryWords } = await import(
  "../../../src/fedssca/report/static/sites.js"
);

test("the name of a limit tells the client that it is about", () => {
  assert.deepEqual(clientOf("client_loss_3"), { client: 3, quantity: "client_loss" });
  assert.deepEqual(clientOf("client_loss_gap_12"), { client: 12, quantity: "client_loss_gap" });
  assert.deepEqual(clientOf("fnr_sex_F_client_2"), { client: 2, quantity: "fnr_sex_F" });
  assert.equal(clientOf("parity_sex"), null);
  assert.equal(clientOf("group_3"), null);
});

test("the results of clients are drawn as beams; those above their limit are marked", () => {
  const limits = [0, 1, 2].map((k) => ({
    ...{ name: `client_loss_${k}`, title: `loss, client ${k}`, low: null, high: 0.5 },
    ...{ status: k === 1 ? "broken" : "kept", margin: 0.1 },
  }));
  const result = {
    client_losses: [0.4, 0.6, null],
    certificate: { constraints: [{}], limits },
  };
  const run = makeRun("a", { result });
  assert.ok(hasSites(run));
  const node = sitesSection(run);
  assert.equal(node.all("tbody")[0].all("tr").length, 3);
  assert.equal(node.all("rect", "over").length, 1);
  assert.equal(node.all("line", "mark").length, 2);
  assert.match(node.textContent, /client 10\.6✗ ≤ 0\.5/);
});

test("each quantity of clients has one chart, with a line for every client", () => {
  const constraints = [0, 1].map((k) => ({
    ...{ name: `client_loss_${k}`, index: k, indices: [k], limit: 0.5, high: 0.5 },
  }));
  const series = { round: [0, 5], "value.0": [0.5, 0.1], "value.1": [0.2, null] };
  const [panel] = quantityPanels(makeRun("a", { constraints, series }));
  assert.equal(panel.title, "Loss of each client");
  assert.deepEqual(panel.limits, [0.5]);
  assert.deepEqual(
    panel.lines.map(({ name, points }) => [name, points]),
    [
      [
        "client 0",
        [
          [0, 1],
          [5, 0.6],
        ],
      ],
      ["client 1", [[0, 0.7]]],
    ],
  );
});

test("missing answers and a dropped site are told in words", () => {
  const site = { seconds: 6, bytes_down: 10, bytes_up: 20, late: 0, unused: 0 };
  const sites = [
    { ...site, name: "site-1", asked: 3, rounds: 3, dropped: null },
    { ...site, name: "site-2", asked: 3, rounds: 1, dropped: 2 },
  ];
  const shares = { "site-1": [0, 0, 0], "site-2": [0, 1, null] };
  const run = makeRun("a", {
    sites,
    site_rounds: { round: [1, 2, 3], seconds: {}, missing: shares },
  });
  assert.equal(
    summaryWords(run),
    "2 sites · 4 of 6 answers came in time to be used · dropped: site-2 in round 2",
  );
  const text = sitesSection({ ...run, site_rounds: { ...run.site_rounds, round: [] } }).textContent;
  assert.match(text, /site-1✓ in the run3 of 3000/);
  assert.match(text, /site-2✗ dropped in round 21 of 3200/);
  const strip = answerStrip(shares["site-2"]);
  assert.equal(strip.all("rect", "answered").length, 1);
  assert.equal(strip.all("rect", "gap").length, 1);
});

test("a run that tells nothing of its clients has no section", () => {
  assert.equal(hasSites(makeRun("a")), false);
  assert.equal(sitesSection(makeRun("a")), null);
});
