"use strict";
// Bars: each client's own loss, each site's time and bytes.

const MOST_BARS = 200;

/** Horizontal bars with names and numbers: entries [{name, value}], and perhaps a limit. */
function bars(title, entries, { kind = "number", limit = null, note = "" } = {}) {
  const known = entries.filter((entry) => Number.isFinite(entry.value));
  const top = Math.max(...known.map((entry) => entry.value), limit ?? 0, 1e-12);
  const shown =
    known.length > MOST_BARS
      ? [...known].sort((a, b) => b.value - a.value).slice(0, MOST_BARS)
      : known;
  const place = (value) => `${(100 * value) / top}%`;
  const rows = shown.map((entry) => {
    const over = limit !== null && entry.value > limit;
    const bar = svg("svg", { class: "beam", height: 14, width: "100%", "aria-hidden": "true" });
    bar.append(
      svg("rect", {
        x: 0,
        y: 2,
        height: 10,
        rx: 3,
        width: place(Math.max(entry.value, 0)),
        class: over ? "over" : "within",
      }),
    );
    if (limit !== null)
      bar.append(svg("line", { x1: place(limit), x2: place(limit), y1: 0, y2: 14, class: "mark" }));
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
  const left = known.length - shown.length;
  const silent = entries.length - known.length;
  const words = [
    note,
    limit === null ? "" : `line: limit ${show(limit, kind)}`,
    left > 0 ? `the ${MOST_BARS} largest of ${known.length}` : "",
    silent ? `${silent} not known` : "",
  ]
    .filter(Boolean)
    .join(" · ");
  const save = el(
    "button",
    {
      type: "button",
      class: "quiet small",
      onclick: () =>
        download(
          fileName(title, "csv"),
          csv([["name", title], ...known.map((entry) => [entry.name, entry.value])]),
        ),
    },
    "CSV",
  );
  return el(
    "section",
    { class: "card bars" },
    el(
      "header",
      {},
      el("div", {}, el("h3", {}, title), el("span", { class: "note" }, words)),
      el("div", { class: "tools" }, save),
    ),
    el("div", { class: "scroll tall" }, el("table", {}, el("tbody", {}, rows))),
  );
}

/** Bars of a run: own losses of its clients, and what its sites took. */
function barsOf(run) {
  const out = [];
  const losses = run.result?.client_losses;
  if (Array.isArray(losses) && losses.length) {
    const limits = (run.result.certificate?.constraints || [])
      .filter((entry) => /^client_loss_\d+$/.test(String(entry.name)))
      .map((entry) => entry.limit);
    const limit = limits.length && limits.every((each) => each === limits[0]) ? limits[0] : null;
    const who =
      run.site_names.length === losses.length
        ? run.site_names
        : losses.map((_, k) => `client ${k}`);
    out.push(
      bars(
        "Loss of each client",
        losses.map((value, k) => ({ name: who[k], value })),
        { limit, note: "returned model, own training rows" },
      ),
    );
  }
  if (run.sites.length) {
    out.push(
      bars(
        "Seconds per round",
        run.sites.map((site) => ({ name: site.name, value: site.seconds / site.rounds })),
        { kind: "seconds", note: "mean of each site" },
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
