// The sites of a run: the results of each, its loss and limits over the rounds, and how it answered.

import { clientName, clientOf, clientsOf, clientTable } from "./breakdown.js";
import { chartCard } from "./card.js";
import { card, el, svg } from "./dom.js";
import { csvButton } from "./files.js";
import { show } from "./numbers.js";
import { AXES, pointsOf } from "./panels.js";
import { sortableRows, sortableTable } from "./sortable.js";

const STRIP = { width: 160, height: 16 };

/** Whether a run tells anything of its single clients or sites. */
export function hasSites(run) {
  return Boolean(
    run.sites.length || run.result?.client_losses?.length || run.result?.per_client?.length,
  );
}

/** Everything about the clients or sites of a run; null if it tells of none. */
export function sitesSection(run) {
  const charts = [...quantityPanels(run), secondsPanel(run)].filter(Boolean);
  const cards = [
    run.sites.length ? el("p", { class: "notice" }, summaryWords(run)) : null,
    clientTable(run),
    answersCard(run),
    charts.length
      ? el(
          "div",
          { class: "grid wide" },
          charts.map((spec) => chartCard(spec).node),
        )
      : null,
    eventsCard(run),
  ].filter(Boolean);
  if (!cards.length) return null;
  return el("div", { class: "sites" }, el("h2", {}, "Clients and sites"), cards);
}

/** The sites of a deployment in one sentence. */
export function summaryWords({ sites }) {
  const dropped = sites.filter(({ dropped: at }) => at !== null);
  const missing = sites.reduce((sum, { asked, rounds }) => sum + asked - rounds, 0);
  const asked = sites.reduce((sum, site) => sum + site.asked, 0);
  const parts = [
    `${show(asked - missing, "count")} of ${show(asked, "count")} answers came in time to be used`,
    dropped.length
      ? `dropped: ${dropped.map(({ name, dropped: at }) => `${name} in round ${at}`).join(", ")}`
      : "no site was dropped",
  ];
  return `${sites.length} ${sites.length === 1 ? "site" : "sites"} · ${parts.join(" · ")}`;
}

/** The charts of the quantities that limits bound at each client, with a line for each client. */
export function quantityPanels(run) {
  const groups = new Map();
  for (const entry of run.constraints) {
    const own = clientOf(entry.name);
    if (!own) continue;
    if (!groups.has(own.quantity)) groups.set(own.quantity, []);
    groups.get(own.quantity).push({ ...own, entry });
  }
  return [...groups].map(([quantity, members]) => {
    const ends = members.map(({ entry }) => entry.high ?? entry.limit).filter(Number.isFinite);
    const lines = members.map(({ client, entry }) => {
      const values = (run.series[`value.${entry.index}`] || []).map((value) =>
        Number.isFinite(value) ? value + (entry.limit ?? 0) : null,
      );
      return line(clientName(run, client), client, pointsOf(run, "round", values));
    });
    return {
      title: `${wordsOf(quantity)} of each client`,
      note: `a line for each of ${members.length}`,
      xLabel: AXES.round.label,
      xKind: AXES.round.kind,
      yLabel: wordsOf(quantity).toLowerCase(),
      yKind: "number",
      mayLog: true,
      limits: [...new Set(ends)],
      lowers: [],
      lines,
    };
  });
}

/** The seconds until each site's answer; null for a run without a record of them. */
function secondsPanel(run) {
  const { round = [], seconds = {} } = run.site_rounds || {};
  if (!round.length) return null;
  const lines = Object.entries(seconds).map(([name, values]) =>
    line(name, numberOf(run, name), pointsOf({ series: { round } }, "round", values)),
  );
  return {
    title: "Seconds until the answer of each site",
    note: "mean over neighbouring rounds; the first ones include compiling",
    xLabel: AXES.round.label,
    xKind: AXES.round.kind,
    yLabel: "seconds",
    yKind: "number",
    mayLog: true,
    limits: [],
    lowers: [],
    lines,
  };
}

/** The number of a site, which chooses its colour: that of its client if they have the same name. */
function numberOf(run, name) {
  const client = clientsOf(run).findIndex((one) => one.name === name);
  return client >= 0 ? client : run.sites.findIndex((site) => site.name === name);
}

function line(name, number, points) {
  return { name, number, points, star: null, strong: false, faint: false };
}

function wordsOf(quantity) {
  const words = quantity.replace(/^client_/, "").replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

const ANSWERS = [
  { head: "state", kind: "text", of: stateWords, cell: stateMark },
  { head: "answers used", kind: "number", of: ({ rounds }) => rounds, cell: answersCell },
  { head: "missing", kind: "count", of: ({ asked, rounds }) => asked - rounds },
  { head: "times late", kind: "count", of: ({ late }) => late },
  { head: "unusable", kind: "count", of: ({ unused }) => unused },
  {
    head: "seconds per round",
    kind: "seconds",
    of: ({ seconds, rounds }) => (rounds ? seconds / rounds : null),
  },
  { head: "received", kind: "bytes", of: (site) => site.bytes_down },
  { head: "sent", kind: "bytes", of: (site) => site.bytes_up },
];

/** How every site of a deployment answered, over all rounds; null without a record. */
function answersCard(run) {
  if (!run.sites.length) return null;
  const shares = run.site_rounds?.missing || {};
  const rows = run.sites.map((site) => ({
    ...site,
    number: numberOf(run, site.name),
    shares: shares[site.name] || [],
  }));
  return card(
    "answers",
    el("h3", {}, "Answers of each site"),
    "as the server has recorded them",
    csvButton("sites.csv", () => sortableRows("site", ANSWERS, rows)),
    sortableTable("site", ANSWERS, rows, `Answers of each site of ${run.name}`),
    el(
      "p",
      { class: "note" },
      "The strip runs from the first round to the last: filled where the answer was used, low where it is missing, empty where the site was not asked.",
    ),
  );
}

function stateWords({ dropped, asked, rounds }) {
  if (dropped !== null) return `dropped in round ${dropped}`;
  return rounds < asked ? "in the run, with gaps" : "in the run";
}

function stateMark(site) {
  const [sign, kind] =
    site.dropped !== null ? ["✗", "bad"] : site.rounds < site.asked ? ["!", "warn"] : ["✓", "good"];
  return el("span", { class: kind }, `${sign} ${stateWords(site)}`);
}

function answersCell({ rounds, asked, shares }) {
  const words = `${show(rounds, "count")} of ${show(asked, "count")}`;
  return [answerStrip(shares), el("span", { class: "sub" }, words)];
}

/** The rounds of a site from left to right; `shares` are those of missing answers, null where the
 *  site was not asked. */
export function answerStrip(shares) {
  const wide = STRIP.width / Math.max(1, shares.length);
  const cells = shares.map((share, k) => {
    if (share === null) return null;
    const tall = share > 0 ? Math.max(3, (1 - share) * STRIP.height) : STRIP.height;
    return svg("rect", {
      class: share > 0 ? "gap" : "answered",
      x: (k * wide).toFixed(2),
      y: (STRIP.height - tall).toFixed(2),
      width: wide.toFixed(2),
      height: tall.toFixed(2),
    });
  });
  return svg(
    "svg",
    { class: "rounds", ...STRIP, "shape-rendering": "crispEdges", "aria-hidden": "true" },
    cells,
  );
}

function eventsCard(run) {
  if (!run.events.length) return null;
  const lines = run.events.map((event) =>
    el("li", {}, `round ${event.round}: ${event.site} ${event.event}`),
  );
  return card("", el("h3", {}, "Events"), "the latest ones", null, el("ul", {}, lines));
}
