// The menu that saves a chart: SVG and PNG as drawn, CSV with its numbers.

import { drawChart, MARGIN } from "./chart.js";
import { el, svg } from "./dom.js";
import { csvText, download, fileName } from "./files.js";
import { lineStyle, themeColour } from "./theme.js";

const WIDTH = 720;
const HEIGHT = 400;
const TITLE = 24;
const LEGEND_ROW = 18;
const LEGEND_ROWS = 12;

/** A menu with the entries PNG, SVG and CSV; `spec()` gives the chart as it is at that moment. */
export function saveMenu(spec) {
  const menu = el("details", { class: "menu" });
  const entry = (label, make) =>
    el(
      "button",
      {
        type: "button",
        onclick: async () => {
          const now = spec();
          download(fileName(now.title, label.toLowerCase()), await make(now));
          menu.open = false;
          menu.querySelector("summary").focus();
        },
      },
      label,
    );
  menu.append(
    el("summary", { "aria-label": "Save this chart" }, "Save"),
    el("div", {}, entry("PNG", pngBlob), entry("SVG", svgBlob), entry("CSV", csvBlob)),
  );
  menu.addEventListener("keydown", (event) => {
    if (event.key === "Escape") menu.open = false;
  });
  menu.addEventListener("focusout", (event) => {
    if (!menu.contains(event.relatedTarget)) menu.open = false;
  });
  return menu;
}

/** Rows of a chart's numbers, one per point. */
export function chartRows(spec) {
  const rows = [["run", spec.xLabel, spec.yLabel, "rows"]];
  for (const line of spec.lines)
    for (const [x, y] of line.points)
      rows.push([line.name, x, y, line.held ? "held out" : "training"]);
  return rows;
}

/** The chart with its title and a legend, as one SVG element. */
export function chartWithLegend(spec) {
  const lines = spec.lines.filter((line) => !line.held).slice(0, LEGEND_ROWS);
  const drawing = drawChart(spec, WIDTH, HEIGHT, true);
  const tall = HEIGHT + TITLE + LEGEND_ROW * lines.length + 8;
  const legend = svg("g", {});
  drawing.setAttribute("height", tall);
  drawing.setAttribute("viewBox", `0 ${-TITLE} ${WIDTH} ${tall}`);
  legend.append(
    svg("rect", {
      x: 0,
      y: HEIGHT,
      width: WIDTH,
      height: tall - HEIGHT - TITLE,
      fill: themeColour("card"),
    }),
  );
  lines.forEach((line, k) => {
    const style = lineStyle(line.number);
    const y = HEIGHT + 12 + LEGEND_ROW * k;
    legend.append(
      svg("line", {
        x1: MARGIN.left,
        x2: MARGIN.left + 26,
        y1: y,
        y2: y,
        stroke: style.colour,
        "stroke-width": 2.5,
        "stroke-dasharray": style.dash,
      }),
      svg(
        "text",
        { x: MARGIN.left + 34, y: y + 4, fill: themeColour("text"), "font-size": 12 },
        line.name,
      ),
    );
  });
  drawing.append(legend);
  return drawing;
}

function csvBlob(spec) {
  return new Blob([csvText(chartRows(spec))], { type: "text/csv" });
}

function svgText(spec) {
  return new XMLSerializer().serializeToString(chartWithLegend(spec));
}

function svgBlob(spec) {
  return new Blob([svgText(spec)], { type: "image/svg+xml" });
}

/** The SVG drawn on a canvas of twice its size. */
async function pngBlob(spec) {
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText(spec))}`;
  await picture.decode();
  const canvas = el("canvas", { width: picture.width * 2, height: picture.height * 2 });
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => {
    canvas.toBlob(resolve, "image/png");
  });
}
