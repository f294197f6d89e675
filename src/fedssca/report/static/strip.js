// A limit as a picture: what is allowed, and where the values of the model lie.

import { svg } from "./dom.js";

const WIDTH = 190;
const HEIGHT = 22;
const EDGE = 8;

/** What the marks of a strip mean. */
export const STRIP_LEGEND =
  "● training rows, ○ held-out rows with their 95% interval, shaded: allowed";
export const BOUND_LEGEND = "◆ bound for new rows";

/** A strip with the allowed values shaded, the values on training and held-out rows, the interval of
 *  the latter and the bound that is promised for new rows; null without a value. */
export function limitStrip({ low, high, value, test_value: held, test_interval: ends, promise }) {
  const interval = Array.isArray(ends) && ends.every(Number.isFinite) ? ends : [];
  const bounds = [promise?.low, promise?.high].filter(Number.isFinite);
  const all = [low, high, value, held, ...interval, ...bounds].filter(Number.isFinite);
  if (!Number.isFinite(value) || all.length < 2) return null;
  const size = Math.max(...[low, high].filter(Number.isFinite).map(Math.abs), 0);
  const at = placeOf(Math.min(...all), Math.max(...all), size / 2);
  const middle = HEIGHT / 2;
  const [from, to] = [Number.isFinite(low) ? at(low) : 0, Number.isFinite(high) ? at(high) : WIDTH];
  const edge = (x) => svg("line", { class: "edge", x1: x, x2: x, y1: 2, y2: HEIGHT - 2 });
  return svg(
    "svg",
    { class: "strip", width: WIDTH, height: HEIGHT, "aria-hidden": "true" },
    svg("rect", { class: "allowed", x: from, y: 4, width: Math.max(0, to - from), height: 14 }),
    svg("line", { class: "axis", x1: 0, x2: WIDTH, y1: middle, y2: middle }),
    [low, high].filter(Number.isFinite).map((end) => edge(at(end))),
    interval.length
      ? svg("line", { class: "range", x1: at(ends[0]), x2: at(ends[1]), y1: middle, y2: middle })
      : null,
    bounds.map((bound) => svg("path", { class: "bound", d: diamond(at(bound), middle, 5) })),
    svg("circle", { class: "training", cx: at(value), cy: middle, r: 4 }),
    Number.isFinite(held)
      ? svg("circle", { class: "heldout", cx: at(held), cy: middle, r: 3.6 })
      : null,
  );
}

/** Places of values on the strip, which spans `widest` at least: a value that is next to its limit is
 *  drawn next to it. */
function placeOf(least, most, widest) {
  const span = Math.max(most - least, widest) || 1;
  const from = (least + most - span) / 2;
  return (value) => EDGE + ((value - from) / span) * (WIDTH - 2 * EDGE);
}

function diamond(x, y, size) {
  return `M${x},${y - size}L${x + size},${y}L${x},${y + size}L${x - size},${y}Z`;
}
