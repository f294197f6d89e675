"use strict";
// All about one run: its certificate, its audit, its notes, its settings.

/** Value, limit, margin and price of every constraint, and whether the returned model keeps all. */
function certificateCard(run) {
  const certificate = run.result?.certificate;
  if (!certificate || !Array.isArray(certificate.constraints)) return null;
  const entries = certificate.constraints;
  const head = [
    "constraint",
    "kept",
    "value",
    "limit",
    "margin",
    "held out",
    "multiplier",
    "0.01 more buys",
  ];
  const rows = entries.map((entry) => [
    String(entry.name),
    el("span", { class: entry.feasible ? "good" : "bad" }, entry.feasible ? "✓ kept" : "✗ broken"),
    show(entry.value),
    show(entry.limit),
    show(entry.margin, "number", 3),
    show(entry.test_rate),
    show(entry.multiplier, "number", 3),
    show(entry["relaxing_by_0.01_buys"], "number", 3),
  ]);
  const words = entries.length
    ? certificate.feasible
      ? "✓ all limits kept"
      : "✗ limits broken"
    : "no limits were set";
  const place = Number.isFinite(certificate.returned?.round)
    ? ` · returned model: round ${certificate.returned.round}`
    : "";
  return el(
    "section",
    { class: "card certificate" },
    el(
      "header",
      {},
      el(
        "div",
        {},
        el("h3", {}, "Certificate"),
        el(
          "span",
          { class: `note ${certificate.feasible ? "good" : "bad"}` },
          entries.length ? `${words}, on the full training data` : words,
        ),
      ),
      el(
        "div",
        { class: "tools" },
        el(
          "button",
          {
            type: "button",
            class: "quiet small",
            onclick: () =>
              download(
                "certificate.csv",
                csv([
                  head,
                  ...entries.map((e) => [
                    e.name,
                    e.feasible,
                    e.value,
                    e.limit,
                    e.margin,
                    e.test_rate,
                    e.multiplier,
                    e["relaxing_by_0.01_buys"],
                  ]),
                ]),
              ),
          },
          "CSV",
        ),
      ),
    ),
    entries.length
      ? el(
          "div",
          { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "Certificate" },
          el(
            "table",
            {},
            el(
              "thead",
              {},
              el(
                "tr",
                {},
                head.map((label, k) =>
                  el("th", { scope: "col", class: k > 1 ? "figure" : "" }, label),
                ),
              ),
            ),
            el(
              "tbody",
              {},
              rows.map((cells) =>
                el(
                  "tr",
                  {},
                  cells.map((content, k) =>
                    k
                      ? el("td", { class: k > 1 ? "figure" : "" }, content)
                      : el("th", { scope: "row" }, content),
                  ),
                ),
              ),
            ),
          ),
        )
      : null,
    el(
      "p",
      { class: "note" },
      `KKT residual ${show(certificate.kkt_residual)} (0: nothing left to gain)${place}`,
    ),
  );
}

/** Keys and values of anything, nested ones indented. */
function factsTable(tree, depth = 0) {
  const entries = Object.entries(tree || {});
  return el(
    "table",
    { class: "facts" },
    el(
      "tbody",
      {},
      entries.map(([key, value]) => {
        const nested =
          value &&
          typeof value === "object" &&
          !(Array.isArray(value) && value.every((item) => typeof item !== "object"));
        const content =
          nested && depth < 3
            ? factsTable(value, depth + 1)
            : typeof value === "number"
              ? show(value, "number", 6)
              : Array.isArray(value)
                ? value
                    .slice(0, 100)
                    .map((item) => (typeof item === "number" ? show(item) : String(item)))
                    .join(", ")
                : typeof value === "object"
                  ? JSON.stringify(value)
                  : String(value);
        return el(
          "tr",
          {},
          el("th", { scope: "row" }, key.replaceAll("_", " ")),
          el("td", {}, content),
        );
      }),
    ),
  );
}

function auditCard(run) {
  if (!run.audit && !run.audit_picture) return null;
  return el(
    "section",
    { class: "card audit" },
    el(
      "header",
      {},
      el(
        "div",
        {},
        el("h3", {}, "Privacy audit"),
        el("span", { class: "note" }, "what attacks on this run's model found"),
      ),
    ),
    run.audit_picture ? el("img", { src: run.audit_picture, alt: `Audit of ${run.name}` }) : null,
    run.audit ? el("div", { class: "scroll" }, factsTable(run.audit)) : null,
  );
}

/** All about one run below its curves: notes, certificate, bars, audit, settings. */
function detailsOf(run) {
  const notes = [...(Array.isArray(run.result?.notes) ? run.result.notes : []), ...run.trouble];
  const events = run.events.map((event) => `round ${event.round}: ${event.site} ${event.event}`);
  const parts = [
    notes.length
      ? el(
          "ul",
          { class: "notes" },
          notes.map((note) => el("li", {}, String(note))),
        )
      : null,
    el("div", { class: "grid wide" }, certificateCard(run), ...barsOf(run), auditCard(run)),
    run.more_constraints > 0
      ? el(
          "p",
          { class: "note" },
          `${run.more_constraints} more constraints have no curves of their own: the worst are drawn.`,
        )
      : null,
    events.length
      ? el(
          "details",
          { class: "more" },
          el("summary", {}, `Events (${events.length})`),
          el(
            "ul",
            { class: "notes" },
            events.map((line) => el("li", {}, line)),
          ),
        )
      : null,
    el(
      "details",
      { class: "more" },
      el("summary", {}, "All settings"),
      el(
        "div",
        { class: "card" },
        factsTable({
          ...run.settings,
          ...(run.result?.versions
            ? {
                versions: Object.entries(run.result.versions)
                  .map(([name, number]) => `${name} ${number}`)
                  .join(", "),
              }
            : {}),
        }),
      ),
    ),
  ];
  return el("div", { class: "details" }, parts);
}

/** One run of several, to unfold: all about it is made when it is first looked at. */
function foldedRun(run, number, open) {
  const box = el(
    "details",
    { class: "run", open },
    el(
      "summary",
      {},
      swatch(number),
      el("span", { class: "words" }, run.name),
      badge(run.state),
      verdict(run),
    ),
  );
  const fill = () => {
    if (box.open && !box.querySelector(".details")) box.append(detailsOf(run));
  };
  box.addEventListener("toggle", fill);
  fill();
  return box;
}
