// The report: a table of runs, their curves, and the details of each run.

import { comparisonOf } from "./comparison.js";
import { curvesOf } from "./curves.js";
import { foldedRun } from "./details.js";
import { el, pageData } from "./dom.js";
import { methodsCard } from "./matrix.js";
import { runsTable } from "./tables.js";
import { startTheme, themeButton } from "./theme.js";

const MOST_OPEN = 3;

const { runs, trainings, palette } = pageData();
const single = runs.length === 1;
startTheme(palette);
const curves = curvesOf(runs);
const table = runsTable(runs, { toggle: single ? null : curves.toggle });
document.getElementById("page").append(
  el(
    "header",
    { class: "top" },
    el("h1", {}, single ? runs[0].name : `${runs.length} runs compared`),
    themeButton(),
  ),
  el(
    "main",
    {},
    ...[table.node, curves.node, comparisonOf(runs), methodsCard(trainings)].filter(Boolean),
    el(
      "section",
      {},
      el("h2", {}, single ? "Details" : "Each run"),
      runs.map((run, number) => foldedRun(run, number, runs.length <= MOST_OPEN)),
    ),
  ),
  el(
    "footer",
    {},
    "Written by fedssca report. This file contains everything it shows and loads nothing from the network. ★ marks the returned model where it is not that of the last row.",
  ),
);
