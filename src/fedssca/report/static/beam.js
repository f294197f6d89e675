// A value as a bar beside its number.

import { svg } from "./dom.js";

const WIDTH = 96;
const HEIGHT = 12;

/** A bar of the length value / top, with a mark at `limit`; null for an unknown value. */
export function beam(value, top, limit = null) {
  if (!Number.isFinite(value) || !(top > 0)) return null;
  const over = Number.isFinite(limit) && value > limit;
  const place = (number) => Math.max(0, Math.min(WIDTH, (number / top) * WIDTH));
  return svg(
    "svg",
    { class: "beam", width: WIDTH, height: HEIGHT, "aria-hidden": "true" },
    svg("rect", {
      x: 0,
      y: 1,
      height: HEIGHT - 2,
      rx: 2,
      width: place(value),
      class: over ? "over" : "within",
    }),
    Number.isFinite(limit)
      ? svg("line", { x1: place(limit), x2: place(limit), y1: 0, y2: HEIGHT, class: "mark" })
      : null,
  );
}
