"use strict";
// Lines against an axis, as SVG: a card that is redrawn when its numbers, its width or the theme change.
//
// A chart's spec: {title, note, xLabel, xKind, yLabel, yKind, log, lines, limits}
// with lines [{name, number, points: [[x, y]...], star: y | null, faint}] and limits [numbers].

const HEIGHT = 236;
const MARGIN = { left: 62, right: 14, top: 12, bottom: 40 };

/** Where everything goes: scales and visible lines of a spec at a width. */
function layout(spec, width, height) {
  const values = [];
  const places = [];
  for (const line of spec.lines) {
    for (const [x, y] of line.points) {
      places.push(x);
      values.push(y);
    }
    if (line.star !== null && line.star !== undefined) values.push(line.star);
  }
  const all = values.concat(spec.limits);
  const positive = all.length > 0 && all.every((value) => value > 0);
  const logarithmic = Boolean(spec.log) && positive;
  const [low, high] = range(all, logarithmic);
  const [first, last] = places.length ? range(places, false) : [0, 1];
  const make = logarithmic ? logScale : linearScale;
  const begin = places.length ? Math.min(first, places.reduce((a, b) => Math.min(a, b), Infinity)) : 0;
  return {
    x: linearScale(Math.max(begin, first), last, MARGIN.left, width - MARGIN.right),
    y: make(low, high, height - MARGIN.bottom, MARGIN.top),
    low,
    logarithmic,
  };
}

/** The whole chart as an SVG element that stands alone: no style sheet, its own colours. */
function drawChart(spec, width, height, titled = false) {
  const colour = { text: Theme.colour("text"), muted: Theme.colour("muted"), grid: Theme.colour("grid"), card: Theme.colour("card"), good: Theme.colour("good") };
  const plan = layout(spec, width, height);
  const bottom = height - MARGIN.bottom;
  const right = width - MARGIN.right;
  const text = (x, y, words, more = {}) => svg("text", { x, y, fill: colour.muted, "font-size": 11, ...more }, words);
  const clip = `clip-${drawChart.count = (drawChart.count || 0) + 1}`;
  const root = svg("svg", {
    xmlns: "http://www.w3.org/2000/svg", width, height: titled ? height + 24 : height,
    viewBox: titled ? `0 -24 ${width} ${height + 24}` : `0 0 ${width} ${height}`,
    "font-family": "system-ui, -apple-system, 'Segoe UI', sans-serif",
  });
  root.append(svg("clipPath", { id: clip }, svg("rect", { x: MARGIN.left, y: MARGIN.top - 4, width: Math.max(0, right - MARGIN.left + 4), height: bottom - MARGIN.top + 4 })));
  if (titled) {
    root.append(svg("rect", { x: 0, y: -24, width, height: height + 24, fill: colour.card }));
    root.append(text(MARGIN.left, -6, spec.title, { fill: colour.text, "font-size": 13, "font-weight": 600 }));
  }
  for (const limit of spec.limits) {
    const y = Math.max(MARGIN.top, Math.min(bottom, plan.y.at(limit)));
    root.append(svg("rect", { class: "kept", x: MARGIN.left, y, width: Math.max(0, right - MARGIN.left), height: Math.max(0, bottom - y), fill: colour.good, "fill-opacity": 0.13 }));
  }
  for (const tick of plan.y.ticks(5)) {
    const y = plan.y.at(tick);
    root.append(svg("line", { x1: MARGIN.left, x2: right, y1: y, y2: y, stroke: colour.grid }));
    root.append(text(MARGIN.left - 7, y + 4, show(tick, spec.yKind, 3), { "text-anchor": "end" }));
  }
  for (const tick of plan.x.ticks(Math.max(2, Math.floor(width / 75)))) {
    const x = plan.x.at(tick);
    root.append(svg("line", { x1: x, x2: x, y1: bottom, y2: bottom + 4, stroke: colour.muted }));
    root.append(text(x, bottom + 16, show(tick, spec.xKind, 3), { "text-anchor": "middle" }));
  }
  root.append(svg("line", { x1: MARGIN.left, x2: right, y1: bottom, y2: bottom, stroke: colour.muted }));
  root.append(text((MARGIN.left + right) / 2, height - 6, spec.xLabel, { "text-anchor": "middle" }));
  const middle = (MARGIN.top + bottom) / 2;
  root.append(text(12, middle, spec.yLabel, { "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }));
  const curves = svg("g", { "clip-path": `url(#${clip})`, fill: "none" });
  for (const line of spec.lines) curves.append(...drawLine(line, plan, colour));
  root.append(curves);
  drawLimits(root, spec, plan, colour, { right, bottom });
  if (!spec.lines.some((line) => line.points.length)) {
    root.append(text((MARGIN.left + right) / 2, middle, "no rows yet", { "text-anchor": "middle" }));
  }
  return root;
}

function drawLine(line, plan, colour) {
  const look = looks(line.number);
  const out = [];
  const places = line.points.map(([x, y]) => `${plan.x.at(x).toFixed(1)},${plan.y.at(y).toFixed(1)}`);
  if (places.length) {
    out.push(svg("path", {
      class: "curve", d: `M${places.join("L")}`, stroke: look.colour, "stroke-dasharray": line.held ? "1.5 3.5" : look.dash,
      "stroke-width": line.strong ? 3 : line.held ? 1.4 : 1.9, "stroke-opacity": line.faint ? 0.16 : 1,
      "stroke-linejoin": "round", "stroke-linecap": "round", "data-points": line.points.length,
    }));
  }
  if (places.length && places.length < 3) {
    for (const [x, y] of line.points) out.push(svg("circle", { cx: plan.x.at(x), cy: plan.y.at(y), r: 2.5, fill: look.colour }));
  }
  if (line.star !== null && line.star !== undefined && places.length && !line.faint) {
    const at = line.points[line.points.length - 1][0];
    out.push(svg("path", { class: "star", d: star(plan.x.at(at) - 3, plan.y.at(line.star), 7), fill: look.colour, stroke: colour.card, "stroke-width": 1 }));
  }
  return out;
}

function star(x, y, size) {
  const corners = [];
  for (let k = 0; k < 10; k += 1) {
    const radius = k % 2 ? size * 0.42 : size;
    const turn = (Math.PI * k) / 5 - Math.PI / 2;
    corners.push(`${(x + radius * Math.cos(turn)).toFixed(1)},${(y + radius * Math.sin(turn)).toFixed(1)}`);
  }
  return `M${corners.join("L")}Z`;
}

/** Limits on top of the curves, with their number on a plate of the card's colour. */
function drawLimits(root, spec, plan, colour, { right, bottom }) {
  const ordered = [...spec.limits].sort((a, b) => b - a).slice(0, 4);
  for (const limit of ordered) {
    const y = plan.y.at(limit);
    const words = `limit ${show(limit, spec.yKind, 4)}`;
    const wide = words.length * 6.2 + 8;
    const crowded = ordered.some((other) => other > limit && y - plan.y.at(other) < 22);
    const up = y - 18 > MARGIN.top && !crowded;
    root.append(svg("line", { class: "limit", x1: MARGIN.left, x2: right, y1: y, y2: y, stroke: colour.text, "stroke-width": 1.2 }));
    root.append(svg("rect", { x: right - wide, y: up ? y - 17 : y + 3, width: wide, height: 15, rx: 3, fill: colour.card, "fill-opacity": 0.85 }));
    root.append(svg("text", { x: right - wide / 2, y: up ? y - 6 : y + 14, fill: colour.text, "font-size": 11, "text-anchor": "middle" }, words));
  }
  if (spec.limits.length && bottom - plan.y.at(Math.min(...spec.limits)) > 30) {
    root.append(svg("text", { x: MARGIN.left + 6, y: bottom - 6, fill: colour.good, "font-size": 11 }, "kept"));
  }
}

/** A card with a chart in it: `node`, `update(spec)`. */
function chartCard(spec) {
  const tip = el("div", { class: "tip", role: "status", "aria-live": "polite", hidden: true });
  const stage = el("div", { class: "stage", tabindex: 0, role: "group" });
  const heading = el("h3", {}, spec.title);
  const note = el("span", { class: "note" });
  const logs = el("input", { type: "checkbox", onchange: () => { forced = logs.checked; draw(); } });
  const tools = el("div", { class: "tools" }, el("label", { class: "log" }, logs, "log"), saveMenu(() => ({ ...spec, log: isLog() })));
  const node = el("section", { class: "card chart" }, el("header", {}, el("div", {}, heading, note), tools), stage, tip);
  let forced = null;
  let seen = false;
  let cursor = null;

  const isLog = () => (forced === null ? wantsLog(spec) : forced);
  function draw() {
    const width = Math.max(240, Math.floor(stage.clientWidth || 320));
    const drawn = { ...spec, log: isLog() };
    logs.checked = drawn.log;
    logs.parentElement.hidden = !canLog(spec);
    heading.textContent = spec.title;
    note.textContent = spec.note || "";
    const runs = new Set(spec.lines.map((line) => line.name)).size;
    stage.setAttribute("aria-label", `${spec.title}: ${spec.yLabel} against ${spec.xLabel}, ${runs} ${runs === 1 ? "run" : "runs"}. Arrow keys read values.`);
    stage.replaceChildren(drawChart(drawn, width, HEIGHT));
    if (cursor !== null) point(cursor, width);
  }
  function point(x, width = Math.max(240, Math.floor(stage.clientWidth))) {
    cursor = x;
    readValues(stage, tip, { ...spec, log: isLog() }, x, width);
  }
  function leave() {
    cursor = null;
    tip.hidden = true;
    stage.querySelector(".cursor")?.remove();
  }
  stage.addEventListener("pointermove", (event) => {
    const width = Math.max(240, Math.floor(stage.clientWidth));
    point(layout({ ...spec, log: isLog() }, width, HEIGHT).x.back(event.clientX - stage.getBoundingClientRect().left), width);
  });
  stage.addEventListener("pointerleave", leave);
  stage.addEventListener("blur", leave);
  stage.addEventListener("keydown", (event) => {
    const places = spec.lines.find((line) => line.points.length)?.points.map(([x]) => x) || [];
    if (event.key === "Escape") return leave();
    if (!["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key) || !places.length) return undefined;
    event.preventDefault();
    const now = cursor === null ? -1 : nearest(places, cursor);
    const next = { ArrowLeft: now < 0 ? places.length - 1 : now - 1, ArrowRight: now + 1, Home: 0, End: places.length - 1 }[event.key];
    return point(places[Math.max(0, Math.min(places.length - 1, next))]);
  });
  // Only what is on the screen is drawn: a hundred runs have many curves.
  new IntersectionObserver((entries) => {
    seen = entries.some((entry) => entry.isIntersecting);
    if (seen) draw();
  }, { rootMargin: "200px" }).observe(stage);
  new ResizeObserver(() => { if (seen) draw(); }).observe(stage);
  return {
    node,
    update(next) {
      spec = next;
      if (seen) draw();
    },
    draw,
  };
}

function canLog(spec) {
  return spec.lines.every((line) => line.points.every(([, y]) => y > 0)) && spec.limits.every((limit) => limit > 0) && spec.lines.some((line) => line.points.length);
}

/** Log where it tells more: positive numbers over more than a factor of 15. */
function wantsLog(spec) {
  if (!spec.mayLog || !canLog(spec)) return false;
  const [low, high] = range(spec.lines.flatMap((line) => line.points.map(([, y]) => y)), true);
  return high / low > 15;
}

function nearest(places, x) {
  let low = 0;
  let high = places.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (places[middle] < x) low = middle;
    else high = middle;
  }
  return Math.abs(places[high] - x) < Math.abs(places[low] - x) ? high : low;
}

/** The cursor line and what the curves are there, the highest first, ten at most. */
function readValues(stage, tip, spec, x, width) {
  const plan = layout(spec, width, HEIGHT);
  const found = spec.lines.filter((line) => line.points.length && !line.faint).map((line) => {
    const k = nearest(line.points.map(([place]) => place), x);
    return { line, x: line.points[k][0], y: line.points[k][1] };
  });
  stage.querySelector(".cursor")?.remove();
  if (!found.length) return;
  const at = found.reduce((a, b) => (Math.abs(b.x - x) < Math.abs(a.x - x) ? b : a)).x;
  const group = svg("g", { class: "cursor" });
  group.append(svg("line", { x1: plan.x.at(at), x2: plan.x.at(at), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, stroke: Theme.colour("muted"), "stroke-dasharray": "3 3" }));
  for (const { line, x: px, y } of found) group.append(svg("circle", { cx: plan.x.at(px), cy: plan.y.at(y), r: 3.5, fill: looks(line.number).colour, stroke: Theme.colour("card") }));
  stage.firstElementChild.append(group);
  found.sort((a, b) => b.y - a.y);
  const lines = found.slice(0, 10).map(({ line, y }) => el("div", { class: "read" }, swatch(line.number), el("span", { class: "who" }, line.held ? `${line.name} (held out)` : line.name), el("b", {}, show(y, spec.yKind, 5))));
  const more = found.length > 10 ? [el("div", { class: "read" }, `and ${found.length - 10} more`)] : [];
  tip.replaceChildren(el("div", { class: "at" }, `${spec.xLabel}: ${show(at, spec.xKind, 5)}`), ...lines, ...more);
  tip.hidden = false;
  const side = plan.x.at(at) > width / 2;
  tip.style.left = side ? "auto" : `${plan.x.at(at) + stage.offsetLeft + 12}px`;
  tip.style.right = side ? `${width - plan.x.at(at) + 24}px` : "auto";
}
