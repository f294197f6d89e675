// Line charts as SVG.
//
// A chart is described by a spec: {title, note, xLabel, xKind, yLabel, yKind, log, lines, limits, lowers}.
// `limits` and `lowers` are lists of numbers, which values must not be above or below. Each line is {name, number, points, star, held, strong, faint}:
// `number` chooses its colour, `points` is a list of [x, y], `star` is the value of the returned model
// or null, `held` marks values on held-out rows, `dotted` an estimate, `marked` draws every point, `strong` and `faint` emphasise one run.

import { svg } from "./dom.js";
import { show } from "./numbers.js";
import { linearScale, logScale, range } from "./scale.js";
import { lineStyle, themeColour } from "./theme.js";

export const CHART_HEIGHT = 236;
export const MARGIN = { left: 62, right: 14, top: 12, bottom: 40 };

let clipPaths = 0;

/** The scales of a chart of this size: {x, y}. */
export function scalesOf(spec, width, height) {
  const xs = spec.lines.flatMap((line) => line.points.map(([x]) => x));
  const ys = spec.lines.flatMap((line) => line.points.map(([, y]) => y));
  const stars = spec.lines.map((line) => line.star).filter(Number.isFinite);
  const all = [...ys, ...stars, ...ends(spec)];
  const logarithmic = Boolean(spec.log) && all.length > 0 && all.every((value) => value > 0);
  const [low, high] = range(all, logarithmic);
  const [first, last] = range(xs, false);
  const scale = logarithmic ? logScale : linearScale;
  return {
    x: linearScale(first, last, MARGIN.left, width - MARGIN.right),
    y: scale(low, high, height - MARGIN.bottom, MARGIN.top),
  };
}

/** All limits of a chart, upper and lower ones. */
export function ends({ limits, lowers = [] }) {
  return [...limits, ...lowers];
}

/** The band of values that keep all limits, as [low, high]; null stands for the end of the chart, or
 *  for the whole band if there is none. */
export function bandOf({ limits, lowers = [] }) {
  const high = limits.length ? Math.min(...limits) : null;
  const low = lowers.length ? Math.max(...lowers) : null;
  const none = (high === null && low === null) || (high !== null && low !== null && low > high);
  return none ? null : [low, high];
}

/** The chart as an SVG element with its colours written in, so that it also works as a file. */
export function drawChart(spec, width, height, titled = false) {
  const colour = {
    text: themeColour("text"),
    muted: themeColour("muted"),
    grid: themeColour("grid"),
    card: themeColour("card"),
    good: themeColour("good"),
  };
  const scales = scalesOf(spec, width, height);
  const bottom = height - MARGIN.bottom;
  const right = width - MARGIN.right;
  const text = (x, y, words, more = {}) =>
    svg("text", { x, y, fill: colour.muted, "font-size": 11, ...more }, words);
  clipPaths += 1;
  const clip = `clip-${clipPaths}`;
  const root = svg("svg", {
    xmlns: "http://www.w3.org/2000/svg",
    width,
    height: titled ? height + 24 : height,
    viewBox: titled ? `0 -24 ${width} ${height + 24}` : `0 0 ${width} ${height}`,
    "font-family": "system-ui, -apple-system, 'Segoe UI', sans-serif",
  });
  root.append(
    svg(
      "clipPath",
      { id: clip },
      svg("rect", {
        x: MARGIN.left,
        y: MARGIN.top - 4,
        width: Math.max(0, right - MARGIN.left + 4),
        height: bottom - MARGIN.top + 4,
      }),
    ),
  );
  if (titled) {
    root.append(svg("rect", { x: 0, y: -24, width, height: height + 24, fill: colour.card }));
    root.append(
      text(MARGIN.left, -6, spec.title, { fill: colour.text, "font-size": 13, "font-weight": 600 }),
    );
  }
  const inside = (value) => Math.max(MARGIN.top, Math.min(bottom, scales.y.at(value)));
  const empty = !spec.lines.some((line) => line.points.length);
  const band = empty ? null : bandOf(spec);
  if (band) {
    const [low, high] = band;
    const y = high === null ? MARGIN.top : inside(high);
    const end = low === null ? bottom : inside(low);
    root.append(
      svg("rect", {
        class: "kept",
        x: MARGIN.left,
        y,
        width: Math.max(0, right - MARGIN.left),
        height: Math.max(0, end - y),
        fill: colour.good,
        "fill-opacity": 0.13,
      }),
    );
  }
  for (const tick of empty ? [] : scales.y.ticks(5)) {
    if (spec.yKind === "count" && !Number.isInteger(tick)) continue;
    const y = scales.y.at(tick);
    root.append(svg("line", { x1: MARGIN.left, x2: right, y1: y, y2: y, stroke: colour.grid }));
    root.append(text(MARGIN.left - 7, y + 4, show(tick, spec.yKind, 3), { "text-anchor": "end" }));
  }
  for (const tick of empty ? [] : scales.x.ticks(Math.max(2, Math.floor(width / 60)))) {
    const x = scales.x.at(tick);
    root.append(svg("line", { x1: x, x2: x, y1: bottom, y2: bottom + 4, stroke: colour.muted }));
    root.append(text(x, bottom + 16, show(tick, spec.xKind, 3), { "text-anchor": "middle" }));
  }
  root.append(
    svg("line", { x1: MARGIN.left, x2: right, y1: bottom, y2: bottom, stroke: colour.muted }),
  );
  root.append(
    text((MARGIN.left + right) / 2, height - 6, spec.xLabel, { "text-anchor": "middle" }),
  );
  const middle = (MARGIN.top + bottom) / 2;
  root.append(
    text(12, middle, spec.yLabel, {
      "text-anchor": "middle",
      transform: `rotate(-90 12 ${middle})`,
    }),
  );
  if (!empty) drawLimits(root, spec, scales, colour, { right, bottom });
  const curves = svg("g", { "clip-path": `url(#${clip})`, fill: "none" });
  for (const line of spec.lines) curves.append(...drawLine(line, scales, colour));
  root.append(curves);
  if (empty) {
    root.append(
      text((MARGIN.left + right) / 2, middle, "no rows yet", { "text-anchor": "middle" }),
    );
  }
  return root;
}

function drawLine(line, scales, colour) {
  const style = lineStyle(line.number);
  const out = [];
  const places = thinned(line.points, scales).map(
    ([x, y]) => `${scales.x.at(x).toFixed(1)},${scales.y.at(y).toFixed(1)}`,
  );
  if (places.length) {
    out.push(
      svg("path", {
        class: "curve",
        d: `M${places.join("L")}`,
        stroke: style.colour,
        "stroke-dasharray": line.held || line.dotted ? "1.5 3.5" : style.dash,
        "stroke-width": line.strong ? 3 : line.held || line.dotted ? 1.4 : 1.9,
        "stroke-opacity": line.faint ? 0.16 : 1,
        "stroke-linejoin": "round",
        "stroke-linecap": "round",
        "data-points": line.points.length,
      }),
    );
  }
  if (line.marked || (places.length && places.length < 3 && !line.dotted)) {
    for (const [x, y] of line.points)
      out.push(
        svg("circle", { cx: scales.x.at(x), cy: scales.y.at(y), r: 2.5, fill: style.colour }),
      );
  }
  if (line.star !== null && line.star !== undefined && places.length && !line.faint) {
    const at = line.points[line.points.length - 1][0];
    out.push(
      svg("path", {
        class: "star",
        d: star(scales.x.at(at) - 3, scales.y.at(line.star), 7),
        fill: style.colour,
        stroke: colour.card,
        "stroke-width": 1,
      }),
    );
  }
  return out;
}

/** Points that can be told apart: in every column of pixels the first, lowest, highest and last. */
export function thinned(points, scales) {
  if (points.length < 2000) return points;
  const out = [];
  let column = null;
  let group = [];
  const flush = () => {
    if (group.length < 5) return out.push(...group);
    const values = group.map(([, y]) => y);
    const low = values.indexOf(Math.min(...values));
    const high = values.indexOf(Math.max(...values));
    const kept = [...new Set([0, low, high, group.length - 1])].sort((a, b) => a - b);
    return out.push(...kept.map((k) => group[k]));
  };
  for (const point of points) {
    const at = Math.round(scales.x.at(point[0]));
    if (at !== column) {
      flush();
      column = at;
      group = [];
    }
    group.push(point);
  }
  flush();
  return out;
}

function star(x, y, size) {
  const corners = [];
  for (let k = 0; k < 10; k += 1) {
    const radius = k % 2 ? size * 0.42 : size;
    const turn = (Math.PI * k) / 5 - Math.PI / 2;
    corners.push(
      `${(x + radius * Math.cos(turn)).toFixed(1)},${(y + radius * Math.sin(turn)).toFixed(1)}`,
    );
  }
  return `M${corners.join("L")}Z`;
}

/** The limits, drawn below the curves; each has its number where the fewest curves are. */
function drawLimits(root, spec, scales, colour, { right, bottom }) {
  const ordered = ends(spec).sort((a, b) => b - a);
  const taken = [];
  for (const [k, limit] of ordered.entries()) {
    const y = scales.y.at(limit);
    const words = `limit ${show(limit, spec.yKind, 4)}`;
    root.append(
      svg("line", {
        class: "limit",
        x1: MARGIN.left,
        x2: right,
        y1: y,
        y2: y,
        stroke: colour.text,
        "stroke-width": ordered.length > 2 ? 0.8 : 1.2,
      }),
    );
    if (k >= MOST_NAMED) continue;
    const box = labelPlace(spec, scales, { y, wide: words.length * 6.2 + 8, right, bottom, taken });
    taken.push(box);
    root.append(
      svg(
        "text",
        {
          class: "limitname",
          x: (box.left + box.right) / 2,
          y: box.bottom - 4,
          fill: colour.text,
          "font-size": 11,
          "text-anchor": "middle",
        },
        words,
      ),
    );
  }
  const band = bandOf(spec);
  if (!band) return;
  const foot = band[0] === null ? bottom : scales.y.at(band[0]);
  const head = band[1] === null ? MARGIN.top : scales.y.at(band[1]);
  if (foot - head > 30) {
    root.append(
      svg(
        "text",
        {
          x: MARGIN.left + 6,
          y: foot - 6,
          fill: colour.good,
          "font-size": 11,
          stroke: colour.card,
          "stroke-width": 3,
          "paint-order": "stroke",
        },
        ordered.length > 2 ? "kept by all" : "kept",
      ),
    );
  }
}

/** Limits whose numbers stand beside their lines. */
const MOST_NAMED = 4;
const LABEL_HEIGHT = 15;
const MOST_CHECKED = 200;

/** Where the words of a limit at height `y` stand: the place beside its line that the fewest pieces
 *  of curves cross, on the right if several are free. */
export function labelPlace(spec, scales, { y, wide, right, bottom, taken }) {
  const pieces = spec.lines.flatMap(({ points }) => piecesOf(points, scales));
  const boxes = [];
  for (let x = right - wide; x >= MARGIN.left + 2; x -= wide / 2)
    for (const top of [y - LABEL_HEIGHT - 2, y + 2])
      if (top >= MARGIN.top - 6 && top + LABEL_HEIGHT <= bottom)
        boxes.push({ left: x, right: x + wide, top, bottom: top + LABEL_HEIGHT });
  const fallback = { left: right - wide, right, top: y + 2, bottom: y + 2 + LABEL_HEIGHT };
  const crossed = (box) =>
    pieces.filter((piece) => overlap(piece, box)).length +
    1000 * taken.filter((other) => overlap(other, box)).length;
  let best = boxes[0] ?? fallback;
  let fewest = crossed(best);
  for (const box of boxes.slice(1)) {
    const count = fewest ? crossed(box) : 0;
    if (count < fewest) [best, fewest] = [box, count];
  }
  return best;
}

/** The boxes around the pieces of a curve between neighbouring points. */
function piecesOf(points, scales) {
  const step = Math.max(1, Math.floor(points.length / MOST_CHECKED));
  const places = points
    .filter((_, k) => k % step === 0)
    .map(([x, y]) => [scales.x.at(x), scales.y.at(y)]);
  return places.slice(1).map(([x, y], k) => ({
    left: Math.min(x, places[k][0]),
    right: Math.max(x, places[k][0]),
    top: Math.min(y, places[k][1]),
    bottom: Math.max(y, places[k][1]),
  }));
}

function overlap(a, b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}
