"use strict";
// A chart in a card of the page: redrawn when its numbers, its width or the theme change; a pointer
// or the arrow keys read its values.

/** A card with a chart in it: `node`, `update(spec)`. */
function chartCard(spec) {
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
    point(
      layout({ ...spec, log: isLog() }, width, HEIGHT).x.back(
        event.clientX - stage.getBoundingClientRect().left,
      ),
      width,
    );
  });
  stage.addEventListener("pointerleave", leave);
  stage.addEventListener("blur", leave);
  stage.addEventListener("keydown", (event) => {
    const places = spec.lines.find((line) => line.points.length)?.points.map(([x]) => x) || [];
    if (event.key === "Escape") return leave();
    if (!["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key) || !places.length)
      return undefined;
    event.preventDefault();
    const now = cursor === null ? -1 : nearest(places, cursor);
    const next = {
      ArrowLeft: now < 0 ? places.length - 1 : now - 1,
      ArrowRight: now + 1,
      Home: 0,
      End: places.length - 1,
    }[event.key];
    return point(places[Math.max(0, Math.min(places.length - 1, next))]);
  });
  // Only what is on the screen is drawn: a hundred runs have many curves.
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

function canLog(spec) {
  return (
    spec.lines.every((line) => line.points.every(([, y]) => y > 0) && (line.star ?? 1) > 0) &&
    spec.limits.every((limit) => limit > 0) &&
    spec.lines.some((line) => line.points.length)
  );
}

/** Log where it tells more: positive numbers over more than a factor of 15. */
function wantsLog(spec) {
  if (!spec.mayLog || !canLog(spec)) return false;
  const [low, high] = range(
    spec.lines.flatMap((line) => line.points.map(([, y]) => y)),
    true,
  );
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
      x1: plan.x.at(at),
      x2: plan.x.at(at),
      y1: MARGIN.top,
      y2: HEIGHT - MARGIN.bottom,
      stroke: Theme.colour("muted"),
      "stroke-dasharray": "3 3",
    }),
  );
  for (const { line, x: px, y } of found)
    group.append(
      svg("circle", {
        cx: plan.x.at(px),
        cy: plan.y.at(y),
        r: 3.5,
        fill: looks(line.number).colour,
        stroke: Theme.colour("card"),
      }),
    );
  stage.firstElementChild.append(group);
  found.sort((a, b) => b.y - a.y);
  const lines = found
    .slice(0, 10)
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
    found.length > 10 ? [el("div", { class: "read" }, `and ${found.length - 10} more`)] : [];
  tip.replaceChildren(
    el("div", { class: "at" }, `${spec.xLabel}: ${show(at, spec.xKind, 5)}`),
    ...lines,
    ...more,
  );
  tip.hidden = false;
  const side = plan.x.at(at) > width / 2;
  tip.style.left = side ? "auto" : `${plan.x.at(at) + stage.offsetLeft + 12}px`;
  tip.style.right = side ? `${width - plan.x.at(at) + 24}px` : "auto";
}
