// A card of the page with one chart. The chart is drawn again when its numbers, its width or the theme
// change; the pointer or the arrow keys read its values.

import { CHART_HEIGHT, drawChart, ends, MARGIN, scalesOf } from "./chart.js";
import { el, svg } from "./dom.js";
import { show } from "./numbers.js";
import { saveMenu } from "./save.js";
import { range } from "./scale.js";
import { lineStyle, swatch, themeColour } from "./theme.js";

const MOST_VALUES = 10;

/** A card with a chart: {node, update(spec), draw()}. */
export function chartCard(first) {
  let spec = first;
  const tip = el("div", { class: "tip", role: "status", "aria-live": "polite", hidden: true });
  const stage = el("div", { class: "stage", tabindex: 0, role: "group" });
  const heading = el("h3", {}, spec.title);
  const note = el("span", { class: "note" });
  const logs = el("input", {
    type: "checkbox",
    onchange: () => {
      forced = logs.checked;
      draw();
    },
  });
  const tools = el(
    "div",
    { class: "tools" },
    el("label", { class: "log" }, logs, "log"),
    saveMenu(() => ({ ...spec, log: isLog() })),
  );
  const node = el(
    "section",
    { class: "card chart" },
    el("header", {}, el("div", {}, heading, note), tools),
    stage,
    tip,
  );
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
    stage.setAttribute(
      "aria-label",
      `${spec.title}: ${spec.yLabel} against ${spec.xLabel}, ${runs} ${runs === 1 ? "run" : "runs"}. Arrow keys read values.`,
    );
    stage.replaceChildren(drawChart(drawn, width, CHART_HEIGHT));
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
    point(
      scalesOf({ ...spec, log: isLog() }, width, CHART_HEIGHT).x.back(
        event.clientX - stage.getBoundingClientRect().left,
      ),
      width,
    );
  });
  stage.addEventListener("pointerleave", leave);
  stage.addEventListener("blur", leave);
  stage.addEventListener("keydown", (event) => {
    const places = spec.lines.find((line) => line.points.length)?.points.map(([x]) => x) || [];
    if (event.key === "Escape") leave();
    if (!["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key) || !places.length) return;
    event.preventDefault();
    const now = cursor === null ? -1 : nearest(places, cursor);
    const next = {
      ArrowLeft: now < 0 ? places.length - 1 : now - 1,
      ArrowRight: now + 1,
      Home: 0,
      End: places.length - 1,
    }[event.key];
    point(places[Math.max(0, Math.min(places.length - 1, next))]);
  });
  // Charts outside the visible part of the page are not drawn: a hundred runs have many curves.
  new IntersectionObserver(
    (entries) => {
      seen = entries.some((entry) => entry.isIntersecting);
      if (seen) draw();
    },
    { rootMargin: "200px" },
  ).observe(stage);
  new ResizeObserver(() => {
    if (seen) draw();
  }).observe(stage);
  return {
    node,
    update(next) {
      spec = next;
      if (seen) draw();
    },
    draw,
  };
}

export function canLog(spec) {
  return (
    spec.lines.every((line) => line.points.every(([, y]) => y > 0) && (line.star ?? 1) > 0) &&
    ends(spec).every((limit) => limit > 0) &&
    spec.lines.some((line) => line.points.length)
  );
}

/** A logarithmic axis is the default for positive values that span more than a factor of 15. */
export function wantsLog(spec) {
  if (!spec.mayLog || !canLog(spec)) return false;
  const [low, high] = range(
    spec.lines.flatMap((line) => line.points.map(([, y]) => y)),
    true,
  );
  return high / low > 15;
}

/** The index of the position nearest to `x` in a sorted list. */
export function nearest(places, x) {
  let low = 0;
  let high = places.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (places[middle] < x) low = middle;
    else high = middle;
  }
  return Math.abs(places[high] - x) < Math.abs(places[low] - x) ? high : low;
}

/** Draw the cursor at `x` and list the values of the curves there, the highest first. */
function readValues(stage, tip, spec, x, width) {
  const scales = scalesOf(spec, width, CHART_HEIGHT);
  const found = spec.lines
    .filter((line) => line.points.length && !line.faint)
    .map((line) => {
      const k = nearest(
        line.points.map(([place]) => place),
        x,
      );
      return { line, x: line.points[k][0], y: line.points[k][1] };
    });
  stage.querySelector(".cursor")?.remove();
  if (!found.length) return;
  const at = found.reduce((a, b) => (Math.abs(b.x - x) < Math.abs(a.x - x) ? b : a)).x;
  const group = svg("g", { class: "cursor" });
  group.append(
    svg("line", {
      x1: scales.x.at(at),
      x2: scales.x.at(at),
      y1: MARGIN.top,
      y2: CHART_HEIGHT - MARGIN.bottom,
      stroke: themeColour("muted"),
      "stroke-dasharray": "3 3",
    }),
  );
  for (const { line, x: px, y } of found)
    group.append(
      svg("circle", {
        cx: scales.x.at(px),
        cy: scales.y.at(y),
        r: 3.5,
        fill: lineStyle(line.number).colour,
        stroke: themeColour("card"),
      }),
    );
  stage.firstElementChild.append(group);
  found.sort((a, b) => b.y - a.y);
  const lines = found
    .slice(0, MOST_VALUES)
    .map(({ line, y }) =>
      el(
        "div",
        { class: "read" },
        swatch(line.number),
        el("span", { class: "who" }, line.held ? `${line.name} (held out)` : line.name),
        el("b", {}, show(y, spec.yKind, 5)),
      ),
    );
  const more =
    found.length > MOST_VALUES
      ? [el("div", { class: "read" }, `and ${found.length - MOST_VALUES} more`)]
      : [];
  tip.replaceChildren(
    el("div", { class: "at" }, `${spec.xLabel}: ${show(at, spec.xKind, 5)}`),
    ...lines,
    ...more,
  );
  tip.hidden = false;
  const side = scales.x.at(at) > width / 2;
  tip.style.left = side ? "auto" : `${scales.x.at(at) + stage.offsetLeft + 12}px`;
  tip.style.right = side ? `${width - scales.x.at(at) + 24}px` : "auto";
}
