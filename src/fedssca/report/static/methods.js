// Several methods on several problems: which keep the limits, what they reach, what it costs.

const ORDER = ["default", "ssca"];
const LEVEL = 0.01;

/** Trainings grouped by problem and method: {methods, problems}. A problem is {key, title, best, free,
 *  cells}, where `best` is the best known objective among those that keep the limits, `free` the one
 *  without limits, or null, and `cells` maps a method to its cell, see `cellOf`. */
export function grouped(trainings) {
  const problems = new Map();
  for (const each of trainings) {
    if (!problems.has(each.problem)) problems.set(each.problem, []);
    problems.get(each.problem).push(each);
  }
  const free = freeObjectives(trainings);
  const made = [...problems].map(([key, own]) => problemOf(key, own, free));
  const methods = [...new Set(trainings.map(({ method }) => method))].sort(
    (a, b) => rank(a) - rank(b) || a.localeCompare(b, "en"),
  );
  made.sort((a, b) => a.title.localeCompare(b.title, "en", { numeric: true }));
  return { methods, problems: made };
}

function rank(method) {
  const at = ORDER.findIndex((name) => method.startsWith(name));
  return at < 0 ? ORDER.length : at;
}

/** The lowest objective of the same data, model and objective without limits, by its problem. */
function freeObjectives(trainings) {
  const found = new Map();
  for (const { without, limited, objective } of trainings)
    if (!limited && Number.isFinite(objective))
      found.set(without, Math.min(objective, found.get(without) ?? objective));
  return found;
}

function problemOf(key, own, free) {
  const { title, without, limited } = own[0];
  const kept = own.filter(({ state }) => state === "kept").map(({ objective }) => objective);
  const told = own.map(({ best }) => best).filter(Number.isFinite);
  const best = told.length || kept.length ? Math.min(...told, ...kept) : null;
  const unit = own.map((each) => each.unit).find(Number.isFinite) ?? 0;
  const names = [...new Set(own.map(({ method }) => method))];
  const facts = { best, unit, free: limited ? (free.get(without) ?? null) : null };
  const cells = new Map(
    names.map((name) => [
      name,
      cellOf(
        own.filter(({ method }) => method === name),
        facts,
      ),
    ]),
  );
  return { key, title, limited, ...facts, cells };
}

/** The trainings of one method on one problem: {count, kept, shown, gap, cost}. `shown` is the one with
 *  the lowest objective among those that keep the limits, or else the one nearest to keeping them;
 *  `gap` is how far its objective is above the best known, `cost` above that without limits. */
export function cellOf(trainings, { best, unit, free }) {
  const kept = trainings.filter(({ state }) => state === "kept");
  const [shown] = [...trainings].sort((a, b) => order(a) - order(b) || least(a) - least(b));
  const above = (reference) =>
    shown.state === "kept" && Number.isFinite(reference)
      ? (shown.objective - reference) / Math.max(Math.abs(reference), unit, 1e-12)
      : null;
  return {
    count: trainings.length,
    kept: kept.length,
    shown,
    gap: above(best),
    cost: above(free),
    runs: trainings.map(({ run }) => run).filter(Boolean),
  };
}

/** Those that keep the limits come first, then the ones nearest to it; failures come last. */
function order({ state, over }) {
  if (state === "kept") return -1;
  return state === "broken" ? over : Number.MAX_VALUE;
}

function least({ objective }) {
  return Number.isFinite(objective) ? objective : Number.MAX_VALUE;
}

/** How a method does over all problems: {tried, kept, best, gap}, where `best` counts the problems on
 *  which it is within 1 % of the best known, and `gap` is the median over those that it keeps. */
export function summaryOf(problems, method) {
  const cells = problems
    .map(({ cells: all }) => all.get(method))
    .filter((cell) => cell && cell.shown.state !== "unfinished");
  const gaps = cells
    .map(({ gap }) => gap)
    .filter(Number.isFinite)
    .sort((a, b) => a - b);
  return {
    tried: cells.length,
    kept: cells.filter(({ kept }) => kept).length,
    best: gaps.filter((gap) => gap <= LEVEL).length,
    gap: median(gaps),
  };
}

function median(sorted) {
  if (!sorted.length) return null;
  const half = Math.floor((sorted.length - 1) / 2);
  return (sorted[half] + sorted[sorted.length - 1 - half]) / 2;
}
