// Bar charts: the loss of each client, the time and the bytes of each site.

import { card, el, svg } from "./dom.js";
import { csvButton, fileName } from "./files.js";
import { show } from "./numbers.js";

const MOST_BARS = 200;

/** A card of horizontal bars, one per entry {name, value}, with a line at the limit if there is one. */
function bars(title, entries, { kind = "number", limit = null, note = "" } = {}) {
  const known = entries.filter((entry) => Number.isFinite(entry.value));
  const top = known.reduce((most, entry) => Math.max(most, entry.value), limit ?? 1e-12) || 1e-12;
  const shown =
    known.length > MOST_BARS
      ? [...known].sort((a, b) => b.value - a.value).slice(0, MOST_BARS)
      : known;
  const position = (value) => `${(100 * value) / top}%`;
  const rows = shown.map((entry) => {
    const over = limit !== null && entry.value > limit;
    const bar = svg("svg", { class: "beam", height: 14, width: "100%", "aria-hidden": "true" });
    bar.append(
      svg("rect", {
        x: 0,
        y: 2,
        height: 10,
        rx: 3,
        width: position(Math.max(entry.value, 0)),
        class: over ? "over" : "within",
      }),
    );
    if (limit !== null)
      bar.append(
        svg("line", { x1: position(limit), x2: position(limit), y1: 0, y2: 14, class: "mark" }),
      );
    return el(
      "tr",
      {},
      el("th", { scope: "row" }, entry.name),
      el("td", { class: "track" }, bar),
      el(
        "td",
        { class: "figure" },
        show(entry.value, kind),
        over ? el("span", { class: "bad" }, " over") : null,
      ),
    );
  });
  const omitted = known.length - shown.length;
  const missing = entries.length - known.length;
  const words = [
    note,
    limit === null ? "" : `line: limit ${show(limit, kind)}`,
    omitted > 0 ? `the ${MOST_BARS} largest of ${known.length}` : "",
    missing ? `${missing} without a value` : "",
  ]
    .filter(Boolean)
    .join(" · ");
  const save = csvButton(fileName(title, "csv"), () => [
    ["name", title],
    ...known.map((entry) => [entry.name, entry.value]),
  ]);
  return card(
    "bars",
    el("h3", {}, title),
    words,
    save,
    el("div", { class: "scroll tall" }, el("table", {}, el("tbody", {}, rows))),
  );
}

/** The bar charts of a run: losses of its clients, seconds and bytes of its sites. */
export function barsOf(run) {
  const out = [];
  const losses = run.result?.client_losses;
  if (Array.isArray(losses) && losses.length) {
    const limits = (run.result.certificate?.constraints || [])
      .filter((entry) => /^client_loss_\d+$/.test(String(entry.name)))
      .map((entry) => entry.limit);
    const limit = limits.length && limits.every((each) => each === limits[0]) ? limits[0] : null;
    const names =
      run.site_names.length === losses.length
        ? run.site_names
        : losses.map((_, k) => `client ${k}`);
    out.push(
      bars(
        "Loss of each client",
        losses.map((value, k) => ({ name: names[k], value })),
        { limit, note: "loss of the returned model on the client's own training rows" },
      ),
    );
  }
  if (run.sites.length) {
    out.push(
      bars(
        "Seconds per round of each site",
        run.sites.map((site) => ({ name: site.name, value: site.seconds / site.rounds })),
        { kind: "seconds", note: "mean over the rounds" },
      ),
    );
    out.push(
      bars(
        "Bytes sent by each site",
        run.sites.map((site) => ({ name: site.name, value: site.bytes_up })),
        { kind: "bytes" },
      ),
    );
  }
  return out;
}
