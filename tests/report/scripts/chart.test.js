import assert from "node:assert/strict";
import { test } from "node:test";
import { makeRun, PALETTE } from "./dom.js";

const { canLog, nearest, wantsLog } = await import("../../../src/fedssca/report/static/card.js");
const { bandOf, drawChart, labelPlace, MARGIN, scalesOf, thinned } = await import(
  "../../../src/fedssca/report/static/chart.js"
);
const { csvText, fileName } = await import("../../../src/fedssca/report/static/files.js");
const { limitNames, panelsOf, sinceFirstRow, tightestLimits } = await import(
  "../../../src/fedssca/report/static/panels.js"
);
const { chartRows, chartWithLegend } = await import("../../../src/fedssca/report/static/save.js");
const { lineStyle, startTheme } = await import("../../../src/fedssca/report/static/theme.js");

startTheme(PALETTE);

function specOf(lines, more = {}) {
  const full = lines.map((points, number) => ({
    name: `run ${number}`,
    number,
    points,
    star: null,
  }));
  const about = { title: "Cost", xLabel: "rounds", xKind: "count", yLabel: "loss" };
  return { ...about, yKind: "number", limits: [], lines: full, ...more };
}

test("every line is a path through its points", () => {
  const spec = specOf([
    [
      [0, 1],
      [10, 0],
    ],
    [],
  ]);
  const drawing = drawChart(spec, 300, 200);
  const [path, ...others] = drawing.all("path", "curve");
  assert.equal(others.length, 0);
  assert.equal(path.attributes["data-points"], "2");
  assert.equal(path.attributes.stroke, "red");
  const scales = scalesOf(spec, 300, 200);
  const at = (x, y) => `${scales.x.at(x).toFixed(1)},${scales.y.at(y).toFixed(1)}`;
  assert.equal(path.attributes.d, `M${at(0, 1)}L${at(10, 0)}`);
  assert.equal(scales.x.at(0), MARGIN.left);
});

test("a limit is a line with its number, and the kept side is shaded", () => {
  const drawing = drawChart(specOf([[[0, 1]]], { limits: [0.5] }), 300, 200);
  assert.equal(drawing.all("line", "limit").length, 1);
  assert.equal(drawing.all("rect", "kept").length, 1);
  assert.match(drawing.textContent, /limit 0\.5/);
});

test("between a lower and an upper limit lies one band", () => {
  const spec = specOf([[[0, 1]]], { limits: [0.5], lowers: [-0.5] });
  const drawing = drawChart(spec, 300, 200);
  assert.equal(drawing.all("line", "limit").length, 2);
  const [band, ...others] = drawing.all("rect", "kept");
  assert.equal(others.length, 0);
  const { y } = scalesOf(spec, 300, 200);
  assert.ok(Math.abs(Number(band.attributes.height) - (y.at(-0.5) - y.at(0.5))) < 1e-9);
});

test("a chart without points says so, and has no ticks", () => {
  assert.equal(
    drawChart(specOf([[]], { limits: [0.5] }), 300, 200).textContent,
    "roundslossno rows yet",
  );
});

test("the number of a limit stands where no curve is, and below the curves", () => {
  const falling = Array.from({ length: 50 }, (_, k) => [k, 1 - k / 49]);
  const along = Array.from({ length: 50 }, (_, k) => [k, k < 20 ? 0.9 : 0.46]);
  const spec = specOf([falling, along], { limits: [0.5] });
  const scales = scalesOf(spec, 400, 236);
  const y = scales.y.at(0.5);
  const box = labelPlace(spec, scales, { y, wide: 60, right: 386, bottom: 196, taken: [] });
  for (const { points } of spec.lines)
    for (const [px, py] of points) {
      const [x, at] = [scales.x.at(px), scales.y.at(py)];
      assert.ok(x < box.left || x > box.right || at < box.top || at > box.bottom);
    }
  const drawing = drawChart(spec, 400, 236);
  const order = drawing.children.map((child) => child.attributes?.class ?? child.tag);
  assert.ok(order.indexOf("limitname") < order.lastIndexOf("g"));
  const other = labelPlace(spec, scales, { y, wide: 60, right: 386, bottom: 196, taken: [box] });
  assert.notDeepEqual(other, box);
});

test("time begins with the first row", () => {
  assert.deepEqual(sinceFirstRow({ seconds: [20, 21, 23] }), [0, 1, 3]);
  assert.equal(sinceFirstRow({}), undefined);
  const slow = makeRun("a");
  slow.series.seconds = [20, 21, 23];
  const panels = panelsOf([slow], "seconds", new Set(), null);
  const cost = panels.find(({ key }) => key === "train_cost");
  assert.deepEqual(
    cost.spec.lines[0].points.map(([x]) => x),
    [0, 1, 3],
  );
  const time = panels.find(({ key }) => key === "seconds");
  assert.equal(time.spec.note, "before it: 20 s of loading and compiling");
});

test("of many limits the tightest are drawn, or those that are chosen", () => {
  const run = makeRun("a");
  run.constraints = [0, 1, 2].map((m) => ({ index: m, indices: [m], name: `c${m}`, limit: 1 }));
  [0.1, 0.3, 0.2].forEach((value, m) => {
    run.series[`value.${m}`] = [value, value, value];
  });
  assert.deepEqual(limitNames([run]), ["c0", "c1", "c2"]);
  assert.deepEqual(tightestLimits([run], 2), ["c1", "c2"]);
  const drawn = panelsOf([run], "round", new Set(), null, new Set(["c2"]));
  const limits = drawn.filter(({ section }) => section === "Limits");
  assert.deepEqual(
    limits.map(({ key }) => key),
    ["value c2"],
  );
});

test("the returned model is a star", () => {
  const spec = specOf([[[0, 1]]]);
  spec.lines[0].star = 0.5;
  assert.equal(drawChart(spec, 300, 200).all("path", "star").length, 1);
});

test("of many points the extremes of every column are kept", () => {
  const points = Array.from({ length: 10000 }, (_, k) => [k, k === 5000 ? 99 : k % 7]);
  const kept = thinned(points, scalesOf(specOf([points]), 300, 200));
  assert.ok(kept.length < 1200);
  assert.deepEqual(kept[0], points[0]);
  assert.deepEqual(kept.at(-1), points.at(-1));
  assert.ok(kept.some(([, y]) => y === 99));
  assert.equal(thinned(points.slice(0, 100), null).length, 100);
});

test("a logarithmic axis is chosen for positive values over more than a factor of 15", () => {
  const wide = specOf(
    [
      [
        [0, 1],
        [1, 100],
      ],
    ],
    { mayLog: true },
  );
  assert.ok(wantsLog(wide));
  assert.ok(!wantsLog({ ...wide, mayLog: false }));
  assert.ok(!canLog({ ...wide, limits: [0] }));
  assert.ok(!canLog(specOf([[]])));
});

test("the nearest position is found", () => {
  assert.equal(nearest([0, 10, 20], 14), 1);
  assert.equal(nearest([0, 10, 20], 16), 2);
  assert.equal(nearest([0, 10, 20], -5), 0);
  assert.equal(nearest([7], 100), 0);
});

test("runs beyond the palette are told apart by dashes", () => {
  assert.deepEqual(lineStyle(0), { colour: "red", dash: "" });
  assert.deepEqual(lineStyle(3), { colour: "blue", dash: "7 4" });
  assert.equal(new Set([0, 1, 2, 3, 4, 5].map((k) => JSON.stringify(lineStyle(k)))).size, 6);
});

test("a saved chart has its title and a legend", () => {
  const drawing = chartWithLegend(specOf([[[0, 1]], [[0, 2]]]));
  assert.match(drawing.textContent, /Cost/);
  assert.match(drawing.textContent, /run 0.*run 1$/);
  assert.equal(drawing.attributes.height, String(400 + 24 + 2 * 18 + 8));
});

test("CSV has a row per point, and no cell that a spreadsheet would compute", () => {
  const spec = specOf([[[0, 1]], [[0, 2]]]);
  spec.lines[0].name = '=1+1,"x"';
  assert.equal(
    csvText(chartRows(spec)),
    'run,rounds,loss,rows\r\n"\'=1+1,""x""",0,1,training\r\nrun 1,0,2,training\r\n',
  );
  assert.equal(fileName("Loss of each client: ä", "csv"), "loss-of-each-client-a.csv");
  assert.equal(fileName("…", "png"), "chart.png");
});

test("a run has charts of its curves, limits and multipliers", () => {
  const panels = panelsOf([makeRun("a"), makeRun("b")], "round", new Set(), null);
  const titles = panels.map(({ section, spec }) => `${section}: ${spec.title}`);
  assert.deepEqual(titles, [
    "Training: Training cost",
    "Training: Test accuracy",
    "Limits: loss",
    "Multipliers: Multiplier of loss",
    "Resources: Bytes up",
    "Resources: Bytes down",
    "Resources: Time",
  ]);
  const { spec } = panels[2];
  assert.deepEqual(spec.limits, [0.3]);
  assert.deepEqual(
    spec.lines[0].points.map(([, y]) => Number(y.toFixed(6))),
    [0.9, 0.5, 0.2],
  );
});

test("both sides of a limit are one chart of the reported quantity", () => {
  const own = { index: 0, indices: [0, 1], name: "gap", limit: 0.1, quantity: "gap" };
  const run = makeRun("a", { constraints: [{ ...own, title: "the gap", low: -0.1, high: 0.1 }] });
  Object.assign(run.series, { train_gap: [0.3, 0.2, 0.05], "multiplier.1": [1, 1, 1] });
  const panels = panelsOf([run], "round", new Set(), null);
  const { spec } = panels.find(({ section }) => section === "Limits");
  assert.deepEqual([spec.title, spec.limits, spec.lowers], ["the gap", [0.1], [-0.1]]);
  assert.deepEqual(
    spec.lines[0].points.map(([, y]) => y),
    [0.3, 0.2, 0.05],
  );
  const { spec: prices } = panels.find(({ section }) => section === "Multipliers");
  assert.deepEqual(
    prices.lines[0].points.map(([, y]) => y),
    [2, 3, 4],
  );
});

test("hidden runs are left out, one may be emphasised, the axis may be bytes", () => {
  const runs = [makeRun("a"), makeRun("b"), makeRun("c")];
  const [{ spec }] = panelsOf(runs, "bytes", new Set(["a"]), "b");
  assert.deepEqual(
    spec.lines.map(({ name, number, strong, faint }) => [name, number, strong, faint]),
    [
      ["b", 1, true, false],
      ["c", 2, false, true],
    ],
  );
  assert.deepEqual(
    spec.lines[0].points.map(([x]) => x),
    [0, 150, 300],
  );
});

test("the returned model is marked where it is not that of the last row", () => {
  const result = { train_cost: 0.15, constraints: [-0.2] };
  const last = { train_cost: 0.2, constraints: [-0.2] };
  const stars = (run) => panelsOf([run], "round", new Set(), null).map((p) => p.spec.lines[0].star);
  assert.deepEqual(stars(makeRun("a", { result: { ...result, last } })).slice(0, 3), [
    0.15,
    null,
    null,
  ]);
  assert.deepEqual(stars(makeRun("a", { result })).slice(0, 3), [0.15, null, -0.2 + 0.3]);
});

test("held-out values, slacks that are not zero and other numbers have curves", () => {
  const run = makeRun("a");
  Object.assign(run.series, { test_loss: [1, 1, 1], "slack.0": [1, 0, 0], my_own: [1, 2, 3] });
  const panels = panelsOf([run], "round", new Set(), null);
  const limit = panels.find(({ spec }) => spec.title === "loss").spec;
  assert.deepEqual(
    limit.lines.map(({ held }) => Boolean(held)),
    [false, true],
  );
  const more = panels.filter(({ section }) => section === "More curves");
  assert.deepEqual(
    more.map(({ spec }) => spec.title),
    ["Slack of loss", "My own"],
  );
});

test("without a known limit the value is drawn against zero", () => {
  const run = makeRun("a", { constraints: [{ index: 0, name: "loss", limit: null }] });
  const { spec } = panelsOf([run], "round", new Set(), null).find((p) => p.section === "Limits");
  assert.deepEqual(spec.limits, [0]);
  assert.equal(spec.yLabel, "value − limit");
});

test("the shaded band is that of values which keep all limits", () => {
  assert.deepEqual(bandOf({ limits: [0.2, 0.1], lowers: [-0.2, -0.1] }), [-0.1, 0.1]);
  assert.deepEqual(bandOf({ limits: [0.3] }), [null, 0.3]);
  assert.deepEqual(bandOf({ limits: [], lowers: [0.9] }), [0.9, null]);
  assert.equal(bandOf({ limits: [], lowers: [] }), null);
  assert.equal(bandOf({ limits: [0.1], lowers: [0.9] }), null);
});

test("an axis of counts has whole numbers, and a chart without rows no band", () => {
  const counted = drawChart(
    specOf(
      [
        [
          [0, 3],
          [100, 3],
        ],
      ],
      { yKind: "count" },
    ),
    640,
    236,
  );
  const labels = counted.all("text").map((node) => node.textContent);
  assert.equal(labels.filter((label) => label === "3").length, 1);
  const empty = drawChart(specOf([[]], { limits: [0.2] }), 640, 236);
  assert.equal(empty.all("rect", "kept").length, 0);
});
